"""What a model would be shown at a place in the log, and what a compaction left out and why.

Folds the log itself, as `show` does. This file must not know how anything is printed.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..processors.budget import is_cold
from ..processors.context.strategies import build_context
from ..processors.limits import DEFAULT_LIMITS
from ..processors.projections.compaction import in_force
from ..processors.projections.context import estimated_tokens, fragment_tokens
from ..processors.projections.turn_view import thinking_refused, too_long
from ..processors.session import SessionViews
from ..schemas import events as ev
from ..schemas.tokens import estimate
from .contents import ReadBlob
from .session_fold import SessionFold

WORDS_CHARS = 100  # of each thing that was left out: a line


def context_json(views: SessionViews, strategy: str | None, read: ReadBlob) -> dict[str, Any]:
    """What the next request would say, under a strategy or the session's own.

    Raises ValueError for an unknown strategy. `tokens` are estimates, a message's and the sum.
    """
    last = views.context.request
    strategy = strategy or (last.strategy if last is not None else "compacted")
    shown, counts = build_context(views, strategy, read), views.context.counts
    messages = [
        {
            "role": message.role,
            "tokens": sum(estimate(block, counts) for block in message.blocks),
            "content": [json.loads(block) for block in message.blocks],
        }
        for message in shown.messages
    ]
    static = [*map(json.loads, shown.system)], [*map(json.loads, shown.tools)]
    tokens = sum(estimate(text, counts) for text in (*shown.system, *shown.tools))
    large, short = short_forms(views)
    return {
        "strategy": strategy,
        "large_results": large,
        "shown_short": short,
        "tokens": tokens + sum(message["tokens"] for message in messages),
        "system": static[0],
        "tools": static[1],
        "messages": messages,
    }


def short_forms(views: SessionViews) -> tuple[int, int]:
    """(large results of the window, how many of them are shown in their short form).

    Large is what has a short form, shown or not; of others the agent's own limit is not known here.
    """
    request = views.context.request
    if request is None:
        return 0, 0
    large = shown = 0
    for place in range(request.start, request.fragments):
        fragment = views.context.fragments[place]
        if fragment.kind != "result":
            continue
        key = f"{fragment.turn}.{fragment.step}.{fragment.index}"
        is_short = in_force(views.compaction, key, request.compacted_upto) is not None
        tokens = fragment_tokens(views.context.fragments, place)
        has_short = views.compaction.shorts.last(key) is not None
        large += has_short or tokens >= DEFAULT_LIMITS.short_tokens
        shown += is_short
    return large, shown


class LeftOut(NamedTuple):
    """One piece that the model was no longer shown. what: message, answer, result, reminder."""

    what: str
    name: str
    tokens: int
    offset: int
    words: str


class Change(NamedTuple):
    """An LLM_CALLED that moved the window.

    kind: summary, short forms or window. before, after: estimated tokens of the request. instead:
    the summary, or ''. left_out: what the requests no longer say as it was.
    """

    offset: int
    step: str
    kind: str
    why: str
    before: int
    after: int
    instead: str
    left_out: tuple[LeftOut, ...]


def changes(folded: SessionFold, upto: int, read: ReadBlob) -> Iterator[Change]:
    """Every change of the window up to an offset, oldest first."""
    for seen in folded.upto(upto):
        event = seen.entry.event
        if isinstance(event, ev.LlmCalled) and seen.ruling.accepted:
            yield from _changes(seen.before, seen.views, event, seen.entry.offset, read)


def _changes(
    before: SessionViews, after: SessionViews, event: ev.LlmCalled, offset: int, read: ReadBlob
) -> Iterator[Change]:
    last, now = before.context.request, after.context.request
    if last is None or now is None:
        return
    place = (offset, f"{event.turn}.{event.step}")
    tokens = (estimated_tokens(before.context), event.prompt_tokens)
    why = _why(before, event)
    if now.start != last.start or now.checkpoint != last.checkpoint:
        pieces = [_piece(after, n, read) for n in range(last.start, now.start)]
        summary = after.compaction.summaries.last(now.checkpoint)
        kind = "summary" if summary is not None else "window"
        instead = _summary(summary.body, read) if summary is not None else ""
        reason = why if kind == "summary" else f"strategy {now.strategy}"
        yield Change(*place, kind, reason, *tokens, instead, tuple(pieces))
    if now.compacted_upto > last.compacted_upto:
        pieces = [
            _piece(after, short.place, read)
            for short in after.compaction.shorts
            if short.place >= now.start
            and in_force(after.compaction, short.call, now.compacted_upto)
            and not in_force(after.compaction, short.call, last.compacted_upto)
        ]
        yield Change(*place, "short forms", why, *tokens, "", tuple(pieces))


def _why(before: SessionViews, event: ev.LlmCalled) -> str:
    if too_long(before.turn):
        return "the model had found the request too long"
    if thinking_refused(before.turn):
        return "the provider no longer took what was thought"
    if estimated_tokens(before.context) > event.budget.soft_tokens:
        return f"over the soft budget of {event.budget.soft_tokens} tokens"
    if is_cold(before):
        return "the provider's cache had forgotten the prefix, so that moving it cost nothing"
    return "the request would have passed a budget"


def _summary(body: ev.Body, read: ReadBlob) -> str:
    data = read(body.ref) if body.ref is not None else body.inline or b"[]"
    blocks = json.loads(data)
    return "\n".join(str(b.get("text") or b.get("content") or "") for b in blocks)


def _piece(views: SessionViews, place: int, read: ReadBlob) -> LeftOut:
    fragment = views.context.fragments[place]
    what = {"user": "message", "assistant": "answer", "partial": "answer"}
    name = f"{fragment.turn}.{fragment.step}"
    if fragment.kind == "result":
        name += f".{fragment.index}"
    tokens = fragment_tokens(views.context.fragments, place)
    words = _words(fragment, read)
    return LeftOut(what.get(fragment.kind, fragment.kind), name, tokens, fragment.offset, words)


def _words(fragment: Any, read: ReadBlob) -> str:
    body, text = fragment.body, fragment.text
    if body is not None and fragment.kind == "result":
        text = (body.inline or b"").decode("utf-8", "replace") + text
    elif body is not None:
        data = read(body.ref) if body.ref is not None else body.inline or b"[]"
        texts = (b.get("text") or b.get("name") or b.get("type", "") for b in json.loads(data))
        text = " ".join(map(str, texts))
    words = " ".join(text.split())
    return words if len(words) <= WORDS_CHARS else f"{words[:WORDS_CHARS]}..."
