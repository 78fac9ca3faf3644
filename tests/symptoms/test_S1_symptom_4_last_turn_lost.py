"""Symptom 4: "after a refresh the conversation lacks the last turn".

The cause was that the store was written after the answer was shown, and nothing waited for the
write. In foldlog, TURN_ENDED follows the answer in the log, so a reader that has read to the end
has the whole turn.
"""

import pytest

from foldlog.schemas import events as ev
from foldlog.schemas.codec import entry_of
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import History, with_calls
from foldlog.tests.symptoms.by_model import views_after


def two_turns() -> History:
    """Plays a turn with a tool and a turn without one."""
    history = with_calls(Use("look", "{}", "a"))
    history.result("1.1.0", "seen")
    history.answer("It is there.")
    history.say("and now?")
    history.answer("Still there.")
    return history


def bodies(views, kind: str) -> list[bytes]:
    return [line.body.inline for line in views.transcript.lines if line.kind == kind]


def test_S1_symptom_4_constraint_8_an_ended_turn_has_its_answer_and_usage():
    history = two_turns()
    ended = 0
    for count, record in enumerate(history.records, 1):
        if not isinstance(entry_of(record).event, ev.TurnEnded):
            continue
        ended += 1
        views = views_after(history, count)
        assert not views.turn.open and len(bodies(views, "answer")) == ended + 1
        assert b"there." in bodies(views, "answer")[-1]
        assert views.context.fragments[-1].kind == "assistant"
        assert views.context.last_step_tokens > 0 and len(views.ledger.spent) == ended + 1
    assert ended == 2


@pytest.mark.parametrize("from_end", range(8))
def test_S1_symptom_4_constraint_4_answer_usage_and_checkpoint_change_together(from_end):
    """At any offset, a refresh finds an answer together with its usage and size, or finds none of
    them."""
    history = two_turns()
    views = views_after(history, len(history.records) - from_end)
    answers = sum(fragment.kind == "assistant" for fragment in views.context.fragments)
    assert len(views.ledger.spent) == answers == len(bodies(views, "answer"))
    assert (views.context.last_step_tokens > 0) == (answers > 0)


def test_S1_symptom_4_the_request_after_a_refresh_has_the_last_turn():
    history = two_turns()
    history.views = views_after(history, len(history.records))
    history.say("once more")
    history.work()
    texts = [text for _, blocks in history.messages() for text in blocks]
    assert {"It is there.", "Still there.", "result: seen"} <= set(texts)
