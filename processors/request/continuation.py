"""Resuming an answer: the text of a lost attempt, and the request to continue it. Pure.

An attempt that resumes continues the chunk numbers of the lost attempt, and its content is the kept
text followed by the new text. Only text can be continued. An answer is started over (replace) if it
has thinking or an unfinished call, if it must begin with thinking, or if it continues an answer
that the provider paused: see `may_resume`.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from ...schemas.canonical import compact
from ...schemas.events import GenChunk
from ..fold.cut_points import SPOKEN, is_fixed
from ..fold.partial_answer import chunks_of
from ..fold.views import SessionViews

# Models that accept an assistant message at the end of a request; newer models refuse it.
PREFILLED = ("claude-2", "claude-3", "claude-opus-4", "claude-sonnet-4", "claude-haiku-4-5")
NOT_PREFILLED = ("-4-6", "-4-7", "-4-8")
CONTINUE = (
    "Your previous response was interrupted. Continue exactly from where it ended: do not repeat "
    "any of it, and do not comment on the interruption."
)


class Kept(NamedTuple):
    """The text of lost attempts, one text per block, and the block and seq of the last chunk."""

    texts: tuple[str, ...]
    block: int
    prior_seq: int


def may_resume(views: SessionViews) -> bool:
    """Whether another request may continue the answer to the step's request.

    No request may continue it if the thinking budget is fixed: the API refuses results of calls
    without the thinking that led to the calls, and this thinking is bound to a request that is not
    sent again. Nor may one continue it if the step's request ends with an answer that the provider
    paused: the kept text would be a second assistant message after the paused answer, which may end
    with a call that has no result yet.
    """
    request, fragments = views.context.request, views.context.fragments
    assert request is not None, "a request exists once a step was decided"
    paused = request.fragments > 0 and fragments[request.fragments - 1].kind in SPOKEN
    return not paused and not is_fixed(request.params)


def kept_of(chunks: list[GenChunk]) -> Kept | None:
    """The text of these chunks; None if the model cannot continue it."""
    texts: dict[int, str] = {}
    for chunk in chunks:
        if chunk.kind != "text":
            return None
        texts[chunk.block] = texts.get(chunk.block, "") + chunk.delta
    if not texts or not all(map(str.strip, texts.values())):
        return None
    return Kept(tuple(texts.values()), chunks[-1].block, chunks[-1].seq)


def resumed_request(
    request: bytes, views: SessionViews, chunks: Iterable[GenChunk]
) -> bytes | None:
    """Rebuilds the request of an attempt that resumes.

    `request`: the step's request.
    `views`: the views right after the claim.
    `chunks`: the step's chunks up to the claim.

    Returns None if the chunks are not those that the claim names.
    """
    turn, generation, called = views.turn, views.turn.generation, views.context.request
    assert generation is not None and called is not None, "an attempt has a step and its request"
    attempt = (turn.number, turn.step, generation.attempt)
    kept = kept_of(chunks_of(chunks, attempt, generation.chain))
    if kept is None or kept.prior_seq != generation.chain[-1][1]:
        return None
    return continued(request, kept, called.model, called.params)


def prefills(model: str, params: bytes) -> bool:
    """Whether the model continues an assistant message at the end of a request. No model does so if
    thinking is on."""
    thinks = json.loads(params or b"{}").get("thinking", {}).get("type", "disabled")
    old = model.startswith(PREFILLED) and not any(new in model for new in NOT_PREFILLED)
    return old and thinks == "disabled"


def continued(request: bytes, kept: Kept, model: str, params: bytes) -> bytes:
    """The step's request with the kept text at its end, for the model to continue."""
    assert request.endswith(b"]}"), "messages come last in a request"
    texts, prefill = list(kept.texts), prefills(model, params)
    if prefill:
        texts[-1] = texts[-1].rstrip()  # the provider refuses trailing whitespace
    blocks = [{"type": "text", "text": text} for text in texts]
    more = [{"role": "assistant", "content": blocks}]
    if not prefill:
        more.append({"role": "user", "content": [{"type": "text", "text": CONTINUE}]})
    tail = "".join(f",{compact(message)}" for message in more)
    return request[:-2] + tail.encode() + b"]}"


def joined(before: str, text: str) -> str:
    """The continuation `text` without the leading whitespace with which `before` already ends."""
    tail = before[len(before.rstrip()) :]
    words = text.lstrip()
    if not words or not tail:
        return text if words else ""
    space = text[: len(text) - len(words)]
    return text[len(tail) :] if space.startswith(tail) else words
