"""The laws of resumed answers: the kept text is complete, is sent legally, and is shown once."""

import json
from typing import Any

from foldlog.client.transcript_stream import INITIAL, Dropped, Settled, Token, see
from foldlog.processors.fold.sessions import FoldedEvent
from foldlog.processors.request.continuation import kept_of, may_resume
from foldlog.schemas import events as ev
from foldlog.schemas.codec import ChunkSeen, entry_of
from foldlog.tests.kit.history import Step
from foldlog.tests.kit.signed_thinking import refusals
from foldlog.tests.laws.law import SEEDS, history_of, law
from foldlog.tests.laws.random_history import RandomHistory
from foldlog.tests.laws.resumed import chunks_until, resumes, sent_request


def takeovers(history: RandomHistory) -> list[Step]:
    """The steps at which a new attempt takes over a lost answer, by replace or by resume."""
    counted = [step for step in history.steps if step.ruling.accepted]
    return [step for step in counted if isinstance(step.entry.event, ev.GenResumed)]


def text_of(history: RandomHistory, content: ev.Body) -> str:
    raw = history.blobs.read(content.ref) if content.ref else content.inline or b"[]"
    return "".join(block["text"] for block in json.loads(raw) if block["type"] == "text")


def completes_resumed(step: Step) -> bool:
    """Whether an event is the whole answer of an attempt that resumed another."""
    generation = step.before.turn.generation
    whole = step.ruling.accepted and isinstance(step.entry.event, ev.GenComplete)
    return whole and generation is not None and bool(generation.chain)


@law()
def test_S2_9_all_streamed_text_is_kept_wherever_it_can_be_continued(history):
    for step in takeovers(history):
        event, chunks = step.entry.event, chunks_until(history, step.before, step.entry.offset)
        may = history.agent.recovery == "resume" and may_resume(step.before)
        if may and kept_of(chunks) is not None:
            assert (event.strategy, event.prior_seq) == ("resume", len(chunks) - 1)
        else:
            assert event.strategy == "replace"


@law()
def test_S1_B_the_strict_server_accepts_every_request_to_continue_an_answer(history):
    for step in takeovers(history):
        if resumes(step.entry.event):
            sent = sent_request(history, step, history.request_at(step))
            assert sent is not None and not refusals(sent), (sent or b"").decode()


@law()
def test_S2_9_a_continued_answer_begins_with_the_kept_text(history):
    for step in filter(completes_resumed, history.steps):
        claimed_at = step.before.turn.generation.claim.offset
        claim = next(s for s in takeovers(history) if s.entry.offset == claimed_at)
        kept = kept_of(chunks_until(history, claim.views, claimed_at))
        assert text_of(history, step.entry.event.content).startswith("".join(kept.texts))


@law()
def test_beyond_1_a_viewer_sees_a_continued_answer_once_and_without_a_seam(history):
    records = {record.offset: record for record in history.records}
    viewer, text = INITIAL, ""
    for step in history.steps:
        entry: Any = step.entry
        if isinstance(entry.event, ChunkSeen):
            entry = entry_of(records[entry.offset], chunks=True)
        viewer, shown = see(viewer, FoldedEvent(entry, *step[1:4]), history.blobs.read)
        for thing in shown:
            match thing:
                case Token(kind="text"):
                    text += thing.text
                case Dropped():
                    assert not completes_resumed(step), f"{thing} of {text!r} by {entry.event}"
                    text = ""
                case Settled() if completes_resumed(step):
                    assert text == text_of(history, entry.event.content)
                    text = ""
                case Settled():
                    text = ""


def test_the_shared_histories_have_answers_that_are_resumed_and_some_that_cannot_be():
    steps = [step for seed in range(SEEDS) for step in takeovers(history_of(seed))]
    every = (step for seed in range(SEEDS) for step in history_of(seed).steps)
    whole = [step for step in every if completes_resumed(step)]
    twice = [step for step in whole if len(step.before.turn.generation.chain) > 1]
    resumed = sum(resumes(step.entry.event) for step in steps)
    assert resumed >= 40 and len(whole) >= 20 and len(twice) >= 3, (resumed, len(whole), len(twice))
    assert len(steps) - resumed >= 10
