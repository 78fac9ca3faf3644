"""Symptom 6: "the same reminder appears five times in the prompt".

The cause was that the reminder was read before every step and never cleared. In foldlog, the
LLM_CALLED that sends a reminder adds it to the context once, and the reminder stays there.
"""

from foldlog.schemas import events as ev
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import History, with_calls

TEXT = "Run the tests before you finish."


def occurrences(history: History) -> int:
    return sum(
        block.get("text", "").count(TEXT)
        for message in history.request()["messages"]
        for block in message["content"]
    )


def step(history: History, *reminders: str) -> None:
    """Returns the result of the running call; then the model calls the tool again."""
    assert history.result(
        f"{history.turn.number}.{history.turn.step}.0", "seen", reminders=reminders
    ).accepted
    history.answer(Use("look", "{}", f"c{history.offset}"))


def test_S1_symptom_6_constraint_6_every_later_request_has_a_reminder_once():
    history = with_calls(Use("look", "{}", "a"))
    assert occurrences(history) == 0
    step(history, TEXT)
    first = history.messages()
    assert occurrences(history) == 1 and history.turn.reminders == ()
    for _ in range(2):
        step(history)
        assert occurrences(history) == 1
        assert history.messages()[: len(first)] == first, "it keeps its place"


def test_S1_symptom_6_the_next_turn_does_not_repeat_a_reminder():
    history = with_calls(Use("look", "{}", "a"))
    step(history, TEXT)
    history.result("1.2.0", "seen")
    history.answer("done")
    for _ in range(2):
        history.say("more")
        history.answer("ok")
        assert occurrences(history) == 1


def test_S1_symptom_6_a_stale_decision_does_not_repeat_a_reminder():
    """The decision that has the reminder is stale. The decision that replaces it has the reminder
    once."""
    history = with_calls(Use("look", "{}", "a"))
    history.result("1.1.0", "seen", reminders=(TEXT,))
    decided = history.in_flight("N3")
    history.say("wait, also this", when_busy="steer")
    codes = [history.append(event, role).code for event, role in decided]
    assert "stale" in codes and len(history.turn.reminders) == 1
    history.work()
    assert occurrences(history) == 1 and history.turn.reminders == ()


def test_S1_symptom_6_a_duplicate_reminder_event_adds_no_reminder():
    history = with_calls(Use("look", "{}", "a"))
    history.result("1.1.0", "seen", reminders=(TEXT,))
    history.again()
    added = ev.ReminderAdded(reminder_id="r1", text=TEXT)
    history.append(added, "sessions")
    history.append(added, "sessions")
    assert [r.text for r in history.turn.reminders] == [TEXT, TEXT]
    history.work()
    assert occurrences(history) == 2, "two different reminders, each once"
    assert history.append(added, "sessions").accepted is False
