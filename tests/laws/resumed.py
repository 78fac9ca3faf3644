"""Answers of random histories that are resumed: who resumes, and what a model goes on with.

What is kept is read from the chunks in the log, and the answer is put together by the real code
from the events of a stream. Only the model and the socket are left out.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from foldlog.processors.effects.models.resumed import ResumedAnswer
from foldlog.processors.fold.partial_answer import chunks_of
from foldlog.processors.fold.views import SessionViews
from foldlog.processors.request.continuation import Kept, resumed_request
from foldlog.schemas import events as ev
from foldlog.tests.laws import answers
from foldlog.tests.laws.answers import Use, dumps
from foldlog.tests.laws.history import History, Step
from foldlog.tests.laws.recorded_actions import chunks_in

ONE_IN = 4  # sessions has its answers resumed
MODELS = (("claude-test", "adaptive"), ("claude-test", ""), ("claude-3-test", ""))
"""One that is asked to go on, with thinking and without; one that takes a last message of the
assistant's."""


def recovering(seed: int, forged: bool) -> dict[str, str]:
    """What an agent of this session has beside its shape. With a chance of its own, so that the
    sessions that do not resume are as they were."""
    chance = Random(f"recovery {seed} {forged}")
    if chance.randrange(ONE_IN):
        return {}
    model, thinking = chance.choice(MODELS)
    return {"recovery": "resume", "model": model, "thinking": thinking}


def resumes(event: Any) -> bool:
    """Whether a claim goes on from a lost attempt."""
    return isinstance(event, ev.GenResumed) and event.strategy == "resume"


def said_by(world: History, views: SessionViews, before: int | None = None) -> list[ev.GenChunk]:
    """What the attempt that runs at these views has said, with what it goes on from: up to an
    offset, or until now."""
    turn, generation = views.turn, views.turn.generation
    assert generation is not None
    place = (turn.number, turn.step, generation.attempt)
    return chunks_of(chunks_in(world.records, before), place, generation.chain)


def going_on(world: History, claim: Step, blocks: "list[str | Use]") -> "GoesOn | None":
    """What the attempt of a claim says of these blocks, behind what was kept and what it has said
    by now; None where it does not resume, keeps what was never said, or has ended."""
    said = said_by(world, claim.views) if resumes(claim.entry.event) else []
    if len(said) <= claim.entry.event.prior_seq or {chunk.kind for chunk in said} != {"text"}:
        return None
    texts: dict[int, str] = {}
    for chunk in said:
        texts[chunk.block] = texts.get(chunk.block, "") + chunk.delta
    kept = Kept(tuple(texts.values()), said[-1].block, said[-1].seq)
    return GoesOn(claim.entry.event, kept, blocks)


def sent_for(world: History, claim: Step, request: bytes) -> bytes | None:
    """What the attempt of a claim sends, of the step's request."""
    if not resumes(claim.entry.event):
        return request
    return resumed_request(request, claim.views, chunks_in(world.records, claim.entry.offset))


class GoesOn:
    """An answer that goes on from what was kept: its chunks, and what it comes to."""

    def __init__(self, claim: ev.GenResumed, kept: Kept, blocks: "list[str | Use]") -> None:
        self._claim, self._answer = claim, ResumedAnswer(kept)
        self._events, self._seq = list(_events(blocks)), kept.prior_seq + 1

    def chunks(self, upto: int | None = None) -> Iterator[ev.GenChunk]:
        """What is said of its first so many events, or of all."""
        claim = self._claim
        for event in self._events[:upto]:
            for shown in self._answer.feed(event["type"], dumps(event)):
                if shown.text:
                    yield ev.GenChunk(
                        turn=claim.turn,
                        step=claim.step,
                        attempt=claim.attempt,
                        seq=self._seq,
                        block=shown.block,
                        kind=shown.kind,
                        delta=shown.text,
                    )
                    self._seq += 1

    def complete(self, made: ev.GenComplete, blobs: Any) -> ev.GenComplete:
        """The outcome of the whole. made: with all but its content and calls."""
        ended = {"type": "message_delta", "delta": {"stop_reason": made.stop_reason}}
        self._answer.feed(ended["type"], dumps(ended))
        calls = tuple(
            ev.ProposedCall(
                index=call.index,
                call_id=call.call_id,
                name=call.name,
                args=ev.Body(inline=call.args),
                args_sha256=call.args_sha256,
                args_error=call.error,
            )
            for call in self._answer.calls()
        )
        return replace(made, content=blobs.body(self._answer.content()), calls=calls)

    def stopped(self, made: ev.GenStopped, blobs: Any) -> ev.GenStopped:
        """The outcome of what was said so far. made: with all but its content."""
        return replace(made, content=blobs.body(self._answer.content_so_far()))


def _events(blocks: "list[str | Use]") -> Iterator[dict[str, Any]]:
    """The events of a stream; texts come in pieces, the first of them behind a space."""
    for index, block in enumerate(blocks):
        begun, deltas = _parts(block)
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}


def _parts(block: "str | Use") -> tuple[dict[str, Any], list[dict[str, str]]]:
    if isinstance(block, Use):
        begun = {"type": "tool_use", "id": block.id, "name": block.name, "input": {}}
        return begun, [{"type": "input_json_delta", "partial_json": block.args}]
    parsed = json.loads(answers.block_text(block))
    if parsed["type"] != "text":
        return parsed, []
    text = " " + parsed["text"]
    cuts = range(0, len(text), max(5, len(text) // 4))
    pieces = [text[start : start + max(5, len(text) // 4)] for start in cuts]
    return {**parsed, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]
