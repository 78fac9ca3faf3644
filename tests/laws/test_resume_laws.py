"""The laws of answers that are resumed: what is kept is said once, sent legally, and kept whole."""

import json
from typing import Any

from foldlog.consumers.transcript_stream import INITIAL, Dropped, Settled, Token, see
from foldlog.processors.fold.sessions import FoldedEvent
from foldlog.processors.request.continuation import kept_of, may_resume
from foldlog.schemas import events as ev
from foldlog.schemas.codec import ChunkSeen, entry_of
from foldlog.tests.laws.history import Step
from foldlog.tests.laws.law import SEEDS, law, world_of
from foldlog.tests.laws.resumed import resumes, said_by, sent_for
from foldlog.tests.laws.sealed import refusals
from foldlog.tests.laws.worlds import World


def takeovers(world: World) -> list[Step]:
    """The steps at which another attempt took over, by replace or by resume."""
    counted = [step for step in world.steps if step.ruling.accepted]
    return [step for step in counted if isinstance(step.entry.event, ev.GenResumed)]


def text_of(world: World, content: ev.Body) -> str:
    raw = world.blobs.read(content.ref) if content.ref else content.inline or b"[]"
    return "".join(block["text"] for block in json.loads(raw) if block["type"] == "text")


def goes_on(step: Step) -> bool:
    """Whether an event is the whole answer of an attempt that resumed."""
    generation = step.before.turn.generation
    whole = step.ruling.accepted and isinstance(step.entry.event, ev.GenComplete)
    return whole and generation is not None and bool(generation.chain)


@law()
def test_S2_9_all_that_was_said_is_kept_wherever_it_can_be_gone_on_from(world):
    for step in takeovers(world):
        event, said = step.entry.event, said_by(world, step.before, step.entry.offset)
        may = world.agent.recovery == "resume" and may_resume(step.before)
        if may and kept_of(said) is not None:
            assert (event.strategy, event.prior_seq) == ("resume", len(said) - 1)
        else:
            assert event.strategy == "replace"


@law()
def test_S1_B_the_strict_server_takes_every_request_that_has_an_answer_gone_on_with(world):
    for step in takeovers(world):
        if resumes(step.entry.event):
            sent = sent_for(world, step, world.request_at(step))
            assert sent is not None and not refusals(sent), (sent or b"").decode()


@law()
def test_S2_9_an_answer_that_was_gone_on_from_begins_with_what_was_kept(world):
    for step in filter(goes_on, world.steps):
        claimed_at = step.before.turn.generation.claim.offset
        claim = next(s for s in takeovers(world) if s.entry.offset == claimed_at)
        kept = kept_of(said_by(world, claim.views, claimed_at))
        assert text_of(world, step.entry.event.content).startswith("".join(kept.texts))


@law()
def test_beyond_1_a_viewer_sees_an_answer_that_was_gone_on_from_once_and_without_a_seam(world):
    records = {record.offset: record for record in world.records}
    viewer, text = INITIAL, ""
    for step in world.steps:
        entry: Any = step.entry
        if isinstance(entry.event, ChunkSeen):
            entry = entry_of(records[entry.offset], chunks=True)
        viewer, shown = see(viewer, FoldedEvent(entry, *step[1:4]), world.blobs.read)
        for thing in shown:
            match thing:
                case Token(kind="text"):
                    text += thing.text
                case Dropped():
                    assert not goes_on(step), f"{thing} of {text!r} by {entry.event}"
                    text = ""
                case Settled() if goes_on(step):
                    assert text == text_of(world, entry.event.content)
                    text = ""
                case Settled():
                    text = ""


def test_the_shared_histories_have_answers_that_are_resumed_and_some_that_can_not_be():
    steps = [step for seed in range(SEEDS) for step in takeovers(world_of(seed))]
    whole = [step for seed in range(SEEDS) for step in world_of(seed).steps if goes_on(step)]
    twice = [step for step in whole if len(step.before.turn.generation.chain) > 1]
    resumed = sum(resumes(step.entry.event) for step in steps)
    assert resumed >= 40 and len(whole) >= 20 and len(twice) >= 3, (resumed, len(whole), len(twice))
    assert len(steps) - resumed >= 10
