"""Resumed answers of random histories: which sessions resume lost answers, and how a model
continues such an answer.

The part of a lost answer that is kept is read from the chunks in the log.
"""

import json
from random import Random
from typing import Any

from foldlog.processors.fold.partial_answer import chunks_of
from foldlog.processors.fold.views import SessionViews
from foldlog.processors.request.continuation import Kept, resumed_request
from foldlog.schemas import events as ev
from foldlog.tests.kit import answers
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.continued_answer import ContinuedAnswer, StreamedBlock, pieces
from foldlog.tests.kit.history import History, Step
from foldlog.tests.kit.recorded_actions import chunks_in

ONE_IN = 4  # one in so many sessions resumes its answers
MODELS = (("claude-test", "adaptive"), ("claude-test", ""), ("claude-3-test", ""))
"""Two that are asked to continue, with thinking and without; one that accepts a last message of the
assistant's."""


def recovery_fields(seed: int, forged: bool) -> dict[str, str]:
    """The fields that let an agent resume lost answers, or {}. A separate random draw decides, so
    that the sessions without these fields remain the same."""
    chance = Random(f"recovery {seed} {forged}")
    if chance.randrange(ONE_IN):
        return {}
    model, thinking = chance.choice(MODELS)
    return {"recovery": "resume", "model": model, "thinking": thinking}


def resumes(event: Any) -> bool:
    """Whether a claim resumes a lost attempt."""
    return isinstance(event, ev.GenResumed) and event.strategy == "resume"


def chunks_until(
    history: History, views: SessionViews, before: int | None = None
) -> list[ev.GenChunk]:
    """The chunks of the attempt that these views show as running, preceded by the chunks of the
    partial answer that it resumes. With `before`, only chunks below this offset."""
    turn, generation = views.turn, views.turn.generation
    assert generation is not None
    place = (turn.number, turn.step, generation.attempt)
    return chunks_of(chunks_in(history.records, before), place, generation.chain)


def continued_answer(
    history: History, claim: Step, blocks: "list[str | Use]"
) -> ContinuedAnswer | None:
    """The answer of a claimed attempt. It consists of the kept part of a lost answer and the
    attempt's own chunks, continued with these blocks. None if the attempt resumes nothing, keeps
    chunks that do not exist, or has ended."""
    event = claim.entry.event
    chunks = chunks_until(history, claim.views) if resumes(event) else []
    if len(chunks) <= event.prior_seq or {chunk.kind for chunk in chunks} != {"text"}:
        return None
    texts: dict[int, str] = {}
    for chunk in chunks:
        texts[chunk.block] = texts.get(chunk.block, "") + chunk.delta
    kept = Kept(tuple(texts.values()), chunks[-1].block, chunks[-1].seq)
    place = {"turn": event.turn, "step": event.step, "attempt": event.attempt}
    return ContinuedAnswer(kept, place, map(_streamed, blocks))


def sent_request(history: History, claim: Step, request: bytes) -> bytes | None:
    """The request that a claimed attempt sends, made from the request of its step."""
    if not resumes(claim.entry.event):
        return request
    return resumed_request(request, claim.views, chunks_in(history.records, claim.entry.offset))


def _streamed(block: "str | Use") -> StreamedBlock:
    if isinstance(block, Use):
        start = {"type": "tool_use", "id": block.id, "name": block.name, "input": {}}
        return start, [{"type": "input_json_delta", "partial_json": block.args}]
    parsed = json.loads(answers.block_text(block))
    if parsed["type"] != "text":
        return parsed, []
    deltas = pieces(parsed["text"], max(5, (len(parsed["text"]) + 1) // 4))
    return {**parsed, "text": ""}, [{"type": "text_delta", "text": text} for text in deltas]
