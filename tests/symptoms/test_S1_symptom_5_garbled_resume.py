"""Symptom 5: "after a resume earlier messages are garbled".

Cause there: messages and the compaction checkpoint were written apart, and one of the writes
failed. Here one LLM_CALLED changes both, and both are folds of one log: at every offset they fit.
"""

import pytest

from foldlog.local.messages_api import ScriptedServer
from foldlog.processors.fold.cut_points import is_cut
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import initial
from foldlog.processors.request.build import request_bytes
from foldlog.schemas.codec import entry_of
from foldlog.tests.laws.api_rules import findings
from foldlog.tests.symptoms.by_background import (
    LIMITS,
    SUMMARY,
    cheap_model,
    due,
    long_result,
    opened,
    talked,
    use,
    worked,
)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A long session with tools, a short form, a summary, its adoption, and talk after it."""
    directory, history = tmp_path_factory.mktemp("blobs"), opened()
    with ScriptedServer(cheap_model) as server:
        history.say("look")
        history.answer(use(), use(id="b"))
        long_result(history)
        history.result("1.1.1", "seen")
        history.work(before=("N3",))
        worked(history, server, directory)
        history.answer("It is there.", read=2_000)
        talked(history, 7)
        history.say("look again")
        history.answer(use(), use(id="b"), read=LIMITS.soft_tokens + 1)
        assert due(history) == ["context"]
        worked(history, server, directory)
        history.result("9.1.0", "seen")
        history.result("9.1.1", "seen")
        history.answer("done", read=6_000)
        talked(history, 2)
    assert history.views.compaction.checkpoint is not None
    return history


def resumed(history, count: int):
    """What a resume finds after so many records."""
    views = initial(history.session_id)
    for entry in map(entry_of, history.records[:count]):
        if entry.session_id == history.session_id:
            views, _ = fold(views, entry)
    return views


def test_S1_symptom_5_constraint_4_at_every_offset_checkpoint_and_messages_fit(played):
    checked = 0
    for count in range(len(played.records)):
        views = resumed(played, count)
        view, request = views.compaction, views.context.request
        for summary in (view.checkpoint, view.candidate):
            if summary is not None:
                assert 0 < summary.kept_from <= len(views.context.fragments), "constraint 1"
                assert is_cut(views.context.fragments, summary.kept_from)
        if request is not None:
            assert request.start <= request.fragments <= len(views.context.fragments)
            assert not findings(request_bytes(views, played.blobs.read))
            checked += view.checkpoint is not None
    assert checked > 10


def test_S1_symptom_5_a_resume_at_any_offset_sends_what_would_have_been_sent(played):
    """A worker that dies at any offset: its successor's newest request is the same bytes."""
    live = {step.entry.offset: step.views for step in played.steps}
    for count, record in enumerate(played.records, 1):
        if record.offset in live and live[record.offset].context.request is not None:
            again = request_bytes(resumed(played, count), played.blobs.read)
            assert again == request_bytes(live[record.offset], played.blobs.read)


def test_S1_symptom_5_the_summary_stands_for_exactly_what_is_left_out(played):
    views = played.views
    kept = views.context.fragments.since(views.compaction.checkpoint.kept_from)
    shown = played.request()["messages"]
    assert SUMMARY in shown[0]["content"][0]["text"]
    said = [line for _, blocks in played.messages() for line in blocks][1:]
    numbered = [line for line in said if line[:1].isdigit()] + ["look again"]
    assert len(numbered) == sum(fragment.kind == "user" for fragment in kept)
    assert sum(line.startswith("result:") for line in said) == 2
