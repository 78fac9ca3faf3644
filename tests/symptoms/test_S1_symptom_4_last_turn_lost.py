"""Symptom 4: "after a refresh the conversation lacks the last turn".

Cause there: the store was written after the answer had been shown, and not waited for. Here the
turn ends by an event that lies behind its answer in the log, so whoever sees the end has the turn.
"""

import pytest

from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import initial
from foldlog.schemas import events as ev
from foldlog.schemas.codec import entry_of
from foldlog.tests.laws.answers import Use
from foldlog.tests.laws.history import History, with_calls


def played() -> History:
    """Two turns, the second with a tool."""
    history = with_calls(Use("look", "{}", "a"))
    history.result("1.1.0", "seen")
    history.answer("It is there.")
    history.say("and now?")
    history.answer("Still there.")
    return history


def folded(history: History, count: int):
    """The views that a refresh finds after so many records."""
    views = initial(history.session_id)
    for entry in map(entry_of, history.records[:count]):
        if entry.session_id == history.session_id:
            views, _ = fold(views, entry)
    return views


def bodies(views, kind: str) -> list[bytes]:
    return [line.body.inline for line in views.transcript.lines if line.kind == kind]


def test_S1_symptom_4_constraint_8_what_a_turn_said_is_there_when_it_has_ended():
    history = played()
    ended = 0
    for count, record in enumerate(history.records, 1):
        if not isinstance(entry_of(record).event, ev.TurnEnded):
            continue
        ended += 1
        views = folded(history, count)
        assert not views.turn.open and len(bodies(views, "answer")) == ended + 1
        assert b"there." in bodies(views, "answer")[-1]
        assert views.context.fragments[-1].kind == "assistant"
        assert views.context.last_step_tokens > 0 and len(views.ledger.spent) == ended + 1
    assert ended == 2


@pytest.mark.parametrize("from_end", range(8))
def test_S1_symptom_4_constraint_4_at_every_offset_answer_usage_and_checkpoint_are_of_one_moment(
    from_end,
):
    """A refresh at any offset: what was answered was counted and weighed, or none of it."""
    history = played()
    views = folded(history, len(history.records) - from_end)
    answers = sum(fragment.kind == "assistant" for fragment in views.context.fragments)
    assert len(views.ledger.spent) == answers == len(bodies(views, "answer"))
    assert (views.context.last_step_tokens > 0) == (answers > 0)


def test_S1_symptom_4_the_next_request_has_the_turn_that_was_refreshed():
    history = played()
    history.views = folded(history, len(history.records))
    history.say("once more")
    history.work()
    said = [words for _, blocks in history.messages() for words in blocks]
    assert "It is there." in said and "Still there." in said and "result: seen" in said
