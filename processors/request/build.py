"""The request of a step, as bytes: a pure function of the context and compaction views (law 11).

A claim, a rebuild after a crash and a query a year later give the same bytes; GEN_START carries
their sha256 and BUILDER. Static parts come before those that change: tools, system, a summary of
what is left out, messages.
"""

import json
from hashlib import sha256
from typing import NamedTuple

from ...schemas.events.parts import ReadBlob
from ...schemas.value import replace
from ..fold.cut_points import is_fixed
from ..fold.projections.compaction import CompactionView
from ..fold.projections.context_view import ContextView, Fragment, Request
from ..fold.views import SessionViews
from .blocks import (
    SIGNED,
    Message,
    Names,
    answer_blocks,
    raw_blocks,
    said_blocks,
    settled,
    whole_of,
)
from .cache_marks import marked_request
from .summary import LEFT_OUT, summary_blocks

BUILDER = "window-2"  # a new value whenever the same views would give other bytes
SPOKEN = ("assistant", "partial")


class Context(NamedTuple):
    """The content of a request: blocks as JSON texts, messages strictly alternating."""

    system: tuple[str, ...]
    tools: tuple[str, ...]
    messages: tuple[Message, ...]


def request_bytes(views: SessionViews, read_blob: ReadBlob) -> bytes:
    """The newest request of the views, compact UTF-8 JSON with its cache marks.

    views: anything with the views `context` and `compaction`. Raises AssertionError if no step
    was decided, and the errors of `read_blob`.
    """
    request = views.context.request
    assert request is not None, "a request exists once a step was decided"
    shown = context_of(views.context, views.compaction, request, read_blob)
    parts = [f'"model":{json.dumps(request.model)}']
    params = request.params.decode().strip()[1:-1]
    if params:
        parts.append(params)
    return marked_request(parts, shown.system, shown.tools, shown.messages)


def compaction_request(views: SessionViews, cut: int, read_blob: ReadBlob) -> bytes | None:
    """The request for the provider's own summary of everything before a cut; None where the
    provider would refuse: there is only one block, or thinking is missing before its end."""
    request = views.context.request
    assert request is not None
    covered = replace(request, fragments=cut)
    shown = context_of(views.context, views.compaction, covered, read_blob)
    if sum(len(message.blocks) for message in shown.messages) < 2 or _lacks_thinking(
        request, shown.messages
    ):
        return None
    parts = [f'"model":{json.dumps(request.model)}', request.params.decode().strip()[1:-1]]
    parts.append('"compaction":{"type":"summarize"}')
    return marked_request(parts, shown.system, shown.tools, shown.messages)


def _lacks_thinking(request: Request, messages: tuple[Message, ...]) -> bool:
    """Whether the end is results of calls whose required thinking is left out."""
    if not is_fixed(request.params) or len(messages) < 2:
        return False
    said, results = messages[-2].blocks, messages[-1].blocks
    answers = any(json.loads(block)["type"] == "tool_result" for block in results)
    return answers and json.loads(said[0])["type"] not in SIGNED


def request_sha256(request: bytes) -> str:
    """The request_sha256 of GEN_START."""
    return sha256(request).hexdigest()


def context_of(
    view: ContextView, compaction: CompactionView, request: Request, read_blob: ReadBlob
) -> Context:
    """The content of a request, without its cache marks."""
    prefix = view.prefixes[request.prefixes - 1]
    return Context(
        tuple([text for _, text in raw_blocks(whole_of(prefix.system, read_blob))]),
        tuple([text for _, text in raw_blocks(whole_of(prefix.tools, read_blob))]),
        tuple(_messages(view, compaction, request, read_blob)),
    )


def _messages(
    view: ContextView, compaction: CompactionView, request: Request, read_blob: ReadBlob
) -> list[Message]:
    """The conversation from the window's start on, after the summary of the rest."""
    messages: list[Message] = []
    names: Names = {}
    taken: set[str] = set()
    said: list[Fragment] = []

    def say() -> None:
        _add(messages, "user", said_blocks(said, read_blob, names, compaction, request))
        said.clear()

    summary = compaction.summaries.last(request.checkpoint)
    if summary is not None:
        _add(messages, *summary_blocks(summary.body, read_blob))
    elif request.start:
        _add(messages, "user", (LEFT_OUT,))
    for place in range(request.start, request.fragments):
        fragment = view.fragments[place]
        if fragment.kind not in SPOKEN:
            said.append(fragment)
            continue
        bound = place >= request.bound_from
        blocks = answer_blocks(fragment, read_blob, names, taken, bound=bound)
        if blocks:
            say()
            _add(messages, "assistant", blocks)
    say()
    return messages


def _add(messages: list[Message], role: str, blocks: tuple[str, ...]) -> None:
    if not blocks:
        return
    if role == "user" and messages and messages[-1].role == "assistant":
        left = settled(messages.pop().blocks)
        if left:
            messages.append(Message("assistant", left))
    if messages and messages[-1].role == role:
        messages[-1] = Message(role, messages[-1].blocks + blocks)
    else:
        messages.append(Message(role, blocks))


__all__ = [
    "BUILDER",
    "Context",
    "Message",
    "compaction_request",
    "context_of",
    "raw_blocks",
    "request_bytes",
    "request_sha256",
]
