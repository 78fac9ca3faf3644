"""The request of a step, as bytes: a pure function of the context and compaction views.

A claim, a rebuild after a crash and a query a year later give the same bytes; GEN_START has their
sha256 and the version of the builder (BUILDER). Static parts come before parts that change: first
the tools and the system prompt, then a summary of the messages that are left out, then messages.
"""

import json
from hashlib import sha256
from typing import NamedTuple

from ...schemas.events.parts import ReadBlob
from ...schemas.value import replace
from ..fold.cut_points import SPOKEN, is_fixed
from ..fold.projections.compaction import CompactionView, Summary
from ..fold.projections.context_view import ContextView, Fragment, Request
from ..fold.views import SessionViews
from .blocks import (
    Message,
    Names,
    answer_blocks,
    raw_blocks,
    sending,
    settled,
    user_blocks,
    whole_of,
)
from .cache_marks import marked_request
from .left_out import as_sent
from .legal import SIGNED
from .summary import LEFT_OUT, summary_blocks

BUILDER = "window-4"  # change it whenever the same views would give other bytes


class Context(NamedTuple):
    """The content of a request: blocks as JSON texts, messages whose roles alternate strictly."""

    system: tuple[str, ...]
    tools: tuple[str, ...]
    messages: tuple[Message, ...]


def request_bytes(views: SessionViews, read_blob: ReadBlob) -> bytes:
    """The request of the newest decided step, as of these views. It is compact UTF-8 JSON with
    cache marks.

    Raises AssertionError if no step was decided, and the errors of `read_blob`.
    """
    request = views.context.request
    assert request is not None, "a request exists once a step was decided"
    content = context_of(views.context, views.compaction, request, read_blob)
    return marked_request(head_of(request), *content)


def head_of(request: Request) -> list[str]:
    """The first members of the request's JSON object, as texts: the model and the parameters."""
    params = request.params.decode().strip()[1:-1]
    return [f'"model":{json.dumps(request.model)}', *([params] if params else [])]


def compaction_request(views: SessionViews, cut: int, read_blob: ReadBlob) -> bytes | None:
    """The request for the provider's own summary of everything before a cut. None if the provider
    would refuse the request, because it has only one block, or because it lacks the required
    thinking before the last results of calls."""
    request = views.context.request
    assert request is not None
    covered = replace(request, fragments=cut)
    content = context_of(views.context, views.compaction, covered, read_blob)
    blocks = sum(len(message.blocks) for message in content.messages)
    if blocks < 2 or _lacks_thinking(request, content.messages):
        return None
    return marked_request([*head_of(request), '"compaction":{"type":"summarize"}'], *content)


def _lacks_thinking(request: Request, messages: tuple[Message, ...]) -> bool:
    """Whether the messages end with results of calls, but lack the thinking before the calls."""
    if not is_fixed(request.params) or len(messages) < 2:
        return False
    answer, newest = messages[-2].blocks, messages[-1].blocks
    has_results = any(json.loads(block).get("type") == "tool_result" for block in newest)
    return has_results and json.loads(answer[0]).get("type") not in SIGNED


def request_sha256(request: bytes) -> str:
    """The value of GEN_START.request_sha256."""
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
    """The conversation from the window's start on. If earlier messages are left out, the first
    message is a summary of them or a note about them."""
    messages: list[Message] = []
    names: Names = {}
    taken: set[str] = set()
    pending: list[Fragment] = []  # fragments since the last answer

    def add_pending() -> None:
        blocks = user_blocks(pending, read_blob, names, compaction, request)
        add_message(messages, "user", blocks)
        pending.clear()

    summary = compaction.summaries.last(request.checkpoint)
    add_beginning(messages, summary, request, read_blob)
    for place in range(request.start, request.fragments):
        fragment = view.fragments[place]
        if fragment.kind not in SPOKEN:
            pending.append(as_sent(fragment, place, request))
            continue
        how = sending(place, request)
        blocks = answer_blocks(fragment, read_blob, names, taken, **how)
        if blocks:
            add_pending()
            add_message(messages, "assistant", blocks)
    add_pending()
    return messages


def add_beginning(
    messages: list[Message], summary: Summary | None, request: Request, read_blob: ReadBlob
) -> None:
    """Add the first message of a request that does not contain the whole conversation."""
    if summary is not None:
        add_message(messages, *summary_blocks(summary.body, read_blob))
    elif request.start:
        add_message(messages, "user", (LEFT_OUT,))


def add_message(messages: list[Message], role: str, blocks: tuple[str, ...]) -> None:
    """Add blocks as a message, or to the last message if it has the same role."""
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
