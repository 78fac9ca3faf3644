"""Symptom 6: "the same reminder appears five times in the prompt".

Cause there: it was read before every step and not cleared. Here it is a row of the context, made
once by the LLM_CALLED that says it: it stays where it was said, and is never said again.
"""

from foldlog.schemas import events as ev
from foldlog.tests.laws.answers import Use
from foldlog.tests.laws.history import History, with_calls

TEXT = "Run the tests before you say that it is done."


def times_said(history: History) -> int:
    return sum(
        block.get("text", "").count(TEXT)
        for message in history.request()["messages"]
        for block in message["content"]
    )


def step(history: History, *reminders: str) -> None:
    """The running call returns, the model calls again."""
    assert history.result(
        f"{history.turn.number}.{history.turn.step}.0", "seen", reminders=reminders
    ).accepted
    history.answer(Use("look", "{}", f"c{history.offset}"))


def test_S1_symptom_6_constraint_6_a_reminder_is_said_once_in_every_later_request():
    history = with_calls(Use("look", "{}", "a"))
    assert times_said(history) == 0
    step(history, TEXT)
    first = history.messages()
    assert times_said(history) == 1 and history.turn.reminders == ()
    for _ in range(2):
        step(history)
        assert times_said(history) == 1
        assert history.messages()[: len(first)] == first, "it stays where it was said"


def test_S1_symptom_6_the_next_turn_does_not_say_it_again():
    history = with_calls(Use("look", "{}", "a"))
    step(history, TEXT)
    history.result("1.2.0", "seen")
    history.answer("done")
    for _ in range(2):
        history.say("more")
        history.answer("ok")
        assert times_said(history) == 1


def test_S1_symptom_6_a_decision_that_was_overtaken_does_not_say_it_twice():
    """The decision with the reminder is stale: the one that is made anew says it, once."""
    history = with_calls(Use("look", "{}", "a"))
    history.result("1.1.0", "seen", reminders=(TEXT,))
    decided = history.in_flight("N3")
    history.say("wait, also this", when_busy="steer")
    codes = [history.append(event, role).code for event, role in decided]
    assert "stale" in codes and len(history.turn.reminders) == 1
    history.work()
    assert times_said(history) == 1 and history.turn.reminders == ()


def test_S1_symptom_6_a_reminder_that_is_reported_twice_is_said_once():
    history = with_calls(Use("look", "{}", "a"))
    history.result("1.1.0", "seen", reminders=(TEXT,))
    history.again()
    said = ev.ReminderAdded(reminder_id="r1", text=TEXT)
    history.append(said, "sessions")
    history.append(said, "sessions")
    assert [r.text for r in history.turn.reminders] == [TEXT, TEXT]
    history.work()
    assert times_said(history) == 2, "two reminders, each once"
    assert history.append(said, "sessions").accepted is False
