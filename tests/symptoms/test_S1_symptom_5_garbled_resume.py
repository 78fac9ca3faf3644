"""Symptom 5: "after a resume earlier messages are garbled".

The cause was that messages and the compaction checkpoint were written separately, and one of the
writes failed. In foldlog, one LLM_CALLED changes both. Both are folds of the same log, so they
agree at every offset.
"""

import pytest

from foldlog.local.messages_api import ScriptedServer
from foldlog.processors.fold.cut_points import is_cut
from foldlog.processors.request.build import request_bytes
from foldlog.tests.kit.api_rules import findings
from foldlog.tests.symptoms.by_background import (
    LIMITS,
    SUMMARY,
    cheap_model,
    claimed_kinds,
    long_result,
    opened,
    run_work,
    talk,
    use,
)
from foldlog.tests.symptoms.by_model import views_after


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A long session with tools, a short form, an adopted summary, and later turns."""
    directory, history = tmp_path_factory.mktemp("blobs"), opened()
    with ScriptedServer(cheap_model) as server:
        history.say("look")
        history.answer(use(), use(id="b"))
        long_result(history)
        history.result("1.1.1", "seen")
        history.work(before=("N3",))
        run_work(history, server, directory)
        history.answer("It is there.", read=2_000)
        talk(history, 7)
        history.say("look again")
        history.answer(use(), use(id="b"), read=LIMITS.soft_tokens + 1)
        assert claimed_kinds(history) == ["context"]
        run_work(history, server, directory)
        history.result("9.1.0", "seen")
        history.result("9.1.1", "seen")
        history.answer("done", read=6_000)
        talk(history, 2)
    assert history.views.compaction.checkpoint is not None
    return history


def test_S1_symptom_5_constraint_4_checkpoint_and_messages_agree_at_every_offset(played):
    checked = 0
    for count in range(len(played.records)):
        views = views_after(played, count)
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


def test_S1_symptom_5_a_resume_at_any_offset_sends_the_same_request(played):
    """After a crash at any offset, the newest request of the next worker has the same bytes."""
    live = {step.entry.offset: step.views for step in played.steps}
    for count, record in enumerate(played.records, 1):
        if record.offset in live and live[record.offset].context.request is not None:
            again = request_bytes(views_after(played, count), played.blobs.read)
            assert again == request_bytes(live[record.offset], played.blobs.read)


def test_S1_symptom_5_the_summary_replaces_exactly_the_omitted_messages(played):
    views = played.views
    kept = views.context.fragments.since(views.compaction.checkpoint.kept_from)
    shown = played.request()["messages"]
    assert SUMMARY in shown[0]["content"][0]["text"]
    lines = [line for _, blocks in played.messages() for line in blocks][1:]
    numbered = [line for line in lines if line[:1].isdigit()] + ["look again"]
    assert len(numbered) == sum(fragment.kind == "user" for fragment in kept)
    assert sum(line.startswith("result:") for line in lines) == 2
