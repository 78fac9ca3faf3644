"""A returning viewer gets every missed line exactly once, even if lines have equal texts."""

import pytest

from foldlog.client.history import Place, after, count, missed
from foldlog.client.session_fold import SessionFold
from foldlog.client.transcript_stream import INITIAL, Dropped, Settled, Token, see
from foldlog.processors.fold.rows import Rows
from foldlog.schemas import events as ev
from foldlog.schemas.value import replace
from foldlog.tests.kit.played import memory_log, opened, settings_in

ANSWER = "once upon a time"


def place_of(worker):
    """The place of a viewer that has seen everything so far."""
    viewer, place = INITIAL, Place()
    fold = SessionFold(worker.log, worker.session_id, chunks=True)
    for seen in fold.upto(fold.end()):
        viewer, shown = see(viewer, seen)
        for thing in shown:
            place = count(place, thing)
        place = after(place, seen.entry.offset + 1)
    return place


def with_other_texts(views):
    """The views, with other texts in the lines for people."""
    lines = Rows()
    for line in views.transcript.lines:
        lines = lines.append(replace(line, code="another", note="another wording"))
    return replace(views, transcript=replace(views.transcript, lines=lines))


@pytest.mark.parametrize("reworded", [lambda views: views, with_other_texts])
@pytest.mark.parametrize(
    ("strategy", "name", "drops", "tokens", "attempt"),
    [("resume", "continued", 0, "a time", 1), ("replace", "resumed", 1, ANSWER, 2)],
)
def test_an_attempt_is_continued_by_the_name_of_its_line_and_not_by_its_text(
    tmp_path, strategy, name, drops, tokens, attempt, reworded
):
    sessions, worker = opened(memory_log(), settings_in(tmp_path))
    sessions.say("s1", "tell", message_id="m1")
    worker.call()
    worker.start()
    worker.chunk("once ")
    worker.chunk("upon ")
    place = place_of(worker)
    worker.take("w2/1")
    claim = worker._claim()
    worker.append(ev.GenResumed(**claim, strategy=strategy, prior_seq=1), "models")
    worker.complete(ANSWER)
    names = [line.name for line in worker.views.transcript.lines if line.kind == "attempt"]
    assert names == [name]
    shown = [thing for _, thing in missed(place, reworded(worker.views), INITIAL, lambda _: b"")]
    assert sum(isinstance(thing, Dropped) for thing in shown) == drops
    assert "".join(thing.text for thing in shown if isinstance(thing, Token)) == tokens
    (settled,) = [thing for thing in shown if isinstance(thing, Settled)]
    assert settled.of.attempt == attempt
