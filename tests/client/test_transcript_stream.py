"""A viewer sees each token of the winning attempt once, whenever the viewer connects."""

import json

import pytest
from hypothesis import given, strategies as st

from foldlog.client.session_fold import SessionFold
from foldlog.client.transcript_stream import (
    INITIAL,
    Dropped,
    LineAdded,
    Settled,
    Token,
    see,
    snapshot,
)
from foldlog.producers import BlobStore
from foldlog.schemas import events as ev
from foldlog.schemas.events.effects import ALIVE_SEQ
from foldlog.tests.kit.played import memory_log, opened, settings_in


@pytest.fixture
def talk(log, tmp_path):
    """The session s1 with an open turn, whose first step has called the model."""
    sessions, played = opened(log, settings_in(tmp_path))
    sessions.say("s1", "hi", message_id="m1")
    played.call()
    return sessions, played


def watched(log, *, start=0, read=None):
    """Everything that a viewer sees who starts to watch at `start`; earlier events are only
    folded."""
    shown, viewer = [], INITIAL
    with SessionFold(log, "s1", chunks=True) as folded:
        for seen in folded.upto(folded.end()):
            viewer, now = see(viewer, seen, read)
            if seen.entry.offset >= start:
                shown += now
    return shown


def text_shown(shown, kind="text"):
    """The text that remains on the screen: the tokens that were not dropped."""
    tokens = []
    for thing in shown:
        if isinstance(thing, Token):
            tokens.append(thing)
        elif isinstance(thing, Dropped):
            tokens = [token for token in tokens if token.of != thing.of]
    return "".join(token.text for token in tokens if token.kind == kind)


def test_beyond_1_each_token_is_shown_once_as_it_arrives(log, talk):
    _, played = talk
    played.start()
    played.chunk("hel")
    assert text_shown(watched(log)) == "hel"
    played.chunk("lo")
    played.complete("hello")
    played.end()
    shown = watched(log)
    assert [t.text for t in shown if isinstance(t, Token)] == ["hel", "lo"]
    kinds = [type(thing) for thing in shown[-3:]]
    assert kinds == [Token, Settled, LineAdded] and shown[-1].line.kind == "ended"


def test_P6_a_superseded_attempt_is_dropped_and_never_leaks(log, talk):
    _, played = talk
    played.start()
    played.chunk("the answer is ")
    played.resume("w2/1")
    played.chunk("The answer is 42.")
    played.chunk("zombie", seq=1, attempt=1)
    played.complete("The answer is 42.")
    shown = watched(log)
    assert text_shown(shown) == "The answer is 42."
    dropped = [thing for thing in shown if isinstance(thing, Dropped)]
    assert [d.of.attempt for d in dropped] == [1] and "attempt 2" in dropped[0].why
    lines = [thing.line.name for thing in shown if isinstance(thing, LineAdded)]
    assert "resumed" in lines


def test_P6_a_failed_attempt_is_dropped_at_once_and_an_answer_without_chunks_shown_whole(log, talk):
    _, played = talk
    played.start()
    played.chunk("half an ans")
    played.fail()
    assert text_shown(watched(log)) == ""
    played.start()
    played.complete("whole")
    assert text_shown(watched(log)) == "whole"


def test_S2_9_a_turn_that_ends_before_its_attempt_drops_the_output(log, talk):
    sessions, played = talk
    played.start()
    played.chunk("half")
    sessions.cancel("s1", turn=1)
    played.end("cancelled")
    assert text_shown(watched(log)) == ""


def test_the_output_of_a_cancelled_attempt_stays(log, talk):
    sessions, played = talk
    played.start()
    played.chunk("let me see", kind="thinking")
    played.chunk("half", block=1)
    sessions.cancel("s1", turn=1)
    played.stopped("half")
    played.end("cancelled")
    shown = watched(log)
    assert text_shown(shown) == "half" and text_shown(shown, "thinking") == "let me see"
    assert not any(isinstance(thing, Dropped) for thing in shown)


def test_S1_C_thinking_is_shown_once_where_a_cancel_stops_it(log, talk):
    """The defect: Ctrl-C during or after thinking printed all of the thinking again."""
    sessions, played = talk
    played.start()
    played.chunk("let me", kind="thinking")
    played.chunk("half", block=1)
    sessions.cancel("s1", turn=1)
    played.stopped("half", {"type": "thinking", "thinking": "let me see", "signature": "x"})
    shown = watched(log)
    assert text_shown(shown) == "half" and text_shown(shown, "thinking") == "let me see"


def test_a_stop_without_a_cancel_drops_the_output(log, talk):
    _, played = talk
    played.start()
    played.chunk("half")
    played.stopped("half")
    assert text_shown(watched(log)) == ""


def test_a_lost_chunk_is_restored_from_the_content(log, talk):
    _, played = talk
    played.start()
    played.chunk("one ")
    played.seq += 1  # "two " never arrived
    played.chunk("three")
    assert text_shown(watched(log)) == "one "
    played.complete("one two three")
    assert text_shown(watched(log)) == "one two three"


def test_a_chunk_written_twice_is_shown_once(log, talk):
    _, played = talk
    played.start()
    played.chunk("one ")
    played.chunk("one ", seq=0)
    played.chunk("two")
    played.complete("one two")
    assert [t.text for t in watched(log) if isinstance(t, Token)] == ["one ", "two"]


@pytest.mark.parametrize("text", ["", "half"])
def test_a_chunk_that_shows_that_the_stream_is_alive_is_not_shown(log, talk, text):
    _, played = talk
    played.start()
    if text:
        played.chunk(text)
    before = watched(log)
    for _ in range(2):
        played.chunk("", seq=ALIVE_SEQ)
    assert watched(log) == before
    played.chunk(" done")
    played.complete(text + " done")
    assert text_shown(watched(log)) == text + " done"
    assert "" not in [t.text for t in watched(log) if isinstance(t, Token)]


def test_chunks_that_differ_from_the_content_are_replaced_by_it(log, talk):
    _, played = talk
    played.start()
    played.chunk("something else")
    played.complete("the answer")
    shown = watched(log)
    assert text_shown(shown) == "the answer" and any(isinstance(thing, Dropped) for thing in shown)


def test_S1_C_thinking_and_calls_stream_along_with_the_text(log, talk):
    _, played = talk
    played.start()
    played.chunk("hm", kind="thinking")
    played.chunk("I look.", block=1)
    played.chunk("read", block=2, kind="tool_name")
    played.chunk('{"path":', block=2, kind="tool_input")
    content = [
        {"type": "thinking", "thinking": "hmm", "signature": "x"},
        {"type": "text", "text": "I look. Now."},
    ]
    played.complete(content=ev.Body(inline=json.dumps(content).encode()))
    shown = watched(log)
    assert (text_shown(shown), text_shown(shown, "thinking")) == ("I look. Now.", "hmm")
    assert text_shown(shown, "tool_name") == "read"


def test_an_answer_in_the_blob_store_is_shown_whole(log, talk, tmp_path):
    blobs = BlobStore(tmp_path / "blobs")
    _, played = talk
    played.start()
    played.chunk("lo")
    ref = blobs.store(b'[{"type":"text","text":"long"}]', "application/json")
    played.complete(content=ev.Body(ref=ref))
    assert text_shown(watched(log, read=lambda ref: blobs.get(ref.sha256))) == "long"
    assert isinstance(watched(log)[-1], Settled), "it settles even without the blob"


def test_calls_approvals_and_results_are_lines(log, talk):
    _, played = talk
    played.start()
    played.complete("", [("read", {}), ("charge", {})])
    played.invoke(0)
    played.invoke(1, approval="ask")
    played.tool_start(0)
    played.tool_result("seen", 0)
    kinds = [thing.line.kind for thing in watched(log) if isinstance(thing, LineAdded)]
    assert kinds == ["message", "call", "asks", "result"]


@pytest.fixture
def long_story(log, talk):
    """A session with every outcome of an attempt, one after the other."""
    _, played = talk
    played.start()
    played.chunk("dead")
    played.fail()
    played.start()
    played.chunk("dead ")
    played.chunk("too")
    played.resume("w2/1")
    played.chunk("the ")
    played.chunk("dead", seq=1, attempt=2)
    played.chunk("win")
    played.seq += 1
    played.chunk("lost one before")
    played.complete("the winner", [("read", {})])
    played.run_tool("seen")
    played.answer("and done")
    return played


def test_P5_beyond_1_a_viewer_that_resumes_at_any_offset_sees_the_same(log, long_story):
    whole = watched(log)
    for cut in range(long_story.fold.cursor + 1):
        with SessionFold(log, "s1", chunks=True) as folded:
            first, viewer = [], INITIAL
            for seen in folded.upto(cut):
                viewer, shown = see(viewer, seen)
                first += shown
        assert first + watched(log, start=cut) == whole


def test_beyond_1_a_late_viewer_sees_what_the_others_see(log, long_story):
    for cut in range(long_story.fold.cursor + 1):
        with SessionFold(log, "s1", chunks=True) as folded:
            viewer = INITIAL
            for seen in folded.upto(cut):
                viewer, _ = see(viewer, seen)
            tokens = text_shown(snapshot(viewer))
            late = [*snapshot(viewer), *watched(log, start=cut)]
        answers = [t.of for t in late if isinstance(t, Settled)]
        for attempt in answers:
            only = [t for t in late if not isinstance(t, Token) or t.of == attempt]
            assert text_shown(only) in ("the winner", "and done"), (cut, tokens)


@given(data=st.data(), text=st.text(min_size=1, max_size=60))
def test_beyond_1_repeated_chunks_of_any_size_add_up_to_the_text(tmp_path_factory, data, text):
    log = memory_log()
    sessions, played = opened(log, settings_in(tmp_path_factory.getbasetemp() / "any"))
    sessions.say("s1", "hi", message_id="m1")
    played.call()
    played.start()
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=5)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
    for seq, piece in enumerate(pieces):
        for _ in range(data.draw(st.integers(0, 2))):
            played.chunk(piece, seq=seq)
    content = json.dumps([{"type": "text", "text": text}]).encode()
    played.complete(content=ev.Body(inline=content))
    shown = watched(log)
    assert text_shown(shown) == text and not any(isinstance(thing, Dropped) for thing in shown)
