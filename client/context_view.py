"""Shows the request that the model would get at an offset, what compaction left out of earlier
requests, and why.

Like `show`, it folds the log and needs no worker.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..processors.fold.cut_points import SPOKEN
from ..processors.fold.projections.compaction import in_force
from ..processors.fold.projections.context import estimated_tokens
from ..processors.fold.projections.context_view import Fragment, fragment_tokens
from ..processors.fold.projections.turn_view import thinking_refused, too_long
from ..processors.fold.views import SessionViews
from ..processors.limits import DEFAULT_LIMITS
from ..processors.request.strategies import build_context
from ..processors.wake.budget import is_cold
from ..schemas import events as ev
from ..schemas.events.parts import ReadBlob
from ..schemas.ids import call_key
from ..schemas.tokens import estimate
from .printable import blocks_of, whole
from .session_fold import SessionFold

SUMMARY_CHARS = 100  # characters shown of each part that was left out


def context_json(views: SessionViews, strategy: str | None, read: ReadBlob) -> dict[str, Any]:
    """The next request under a strategy, by default the session's own.

    Raises ValueError for an unknown strategy. `tokens` are estimates for each message and in total.
    """
    last = views.context.request
    strategy = strategy or (last.strategy if last is not None else "compacted")
    shown, counts = build_context(views, strategy, read), views.context.counts
    messages: list[dict[str, Any]] = [
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
    """The number of large results in the window, and how many of them are sent in short form.

    A result is large if it has a short form, sent or not, or reaches the default limit for short
    forms; the agent's own limit is unknown here.
    """
    request = views.context.request
    if request is None:
        return 0, 0
    large = shown = 0
    for place in range(request.start, request.fragments):
        fragment = views.context.fragments[place]
        if fragment.kind != "result":
            continue
        key = _call(fragment)
        is_short = in_force(views.compaction, key, request.compacted_upto) is not None
        tokens = fragment_tokens(views.context.fragments, place)
        has_short = views.compaction.shorts.last(key) is not None
        large += has_short or tokens >= DEFAULT_LIMITS.short_tokens
        shown += is_short
    return large, shown


class LeftOut(NamedTuple):
    """One part that requests no longer contain. what: message, answer, result or reminder."""

    what: str
    name: str
    tokens: int
    offset: int
    words: str


class Change(NamedTuple):
    """One change that left content out of requests: parts that the request of an LLM_CALLED does
    not contain in full, or messages that a turn did not send before it ended.

    kind: summary, short forms, window, refused (what came since the last answer, and perhaps all
        files), or message (the turn ended before a request contained this message).
    before, after: the estimated tokens of the request before and after the change.
    instead: the summary that replaces the parts, or ''.
    left_out: the parts that requests no longer contain in full, or never contained in full.
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
    """The changes that left content out of requests, up to an offset, oldest first."""
    for seen in folded.upto(upto):
        event = seen.entry.event
        if not seen.ruling.accepted:
            continue
        if isinstance(event, ev.LlmCalled):
            yield from _shortened_early(seen.before, seen.views, event, seen.entry.offset, read)
            yield from _changes(seen.before, seen.views, event, seen.entry.offset, read)
        elif isinstance(event, ev.TurnEnded) and event.reason == "budget_exceeded":
            yield from _never_sent(seen.before, seen.views, event, seen.entry.offset, read)


def _shortened_early(
    before: SessionViews, after: SessionViews, event: ev.LlmCalled, offset: int, read: ReadBlob
) -> Iterator[Change]:
    """The results whose short forms were ready before any request contained them in full."""
    last, now, pieces, saved = before.context.request, after.context.request, [], 0
    assert now is not None, "an LLM_CALLED makes a request"
    for place in range(max(last.fragments if last else 0, now.start), now.fragments):
        fragment = after.context.fragments[place]
        short = after.compaction.shorts.last(_call(fragment))
        if fragment.kind == "result" and short is not None and short.early:
            pieces.append(_piece(after, place, read))
            saved += short.saved
    if pieces:
        why = "they were ready before the full results were sent"
        whole = event.prompt_tokens  # counts each result in full until the answer
        step = f"{event.turn}.{event.step}"
        yield Change(offset, step, "short forms", why, whole, whole - saved, "", tuple(pieces))


def _never_sent(
    before: SessionViews, after: SessionViews, event: ev.TurnEnded, offset: int, read: ReadBlob
) -> Iterator[Change]:
    """The messages that did not fit into any request, so that their turn ended without sending
    them.
    """
    turn, counts, pieces = before.turn, before.context.counts, []
    fragments = after.context.fragments
    if len(fragments) and fragments[-1].kind == "user" and fragments[-1].offset == offset:
        return  # the next request contains them
    for message_id in turn.owned:
        row = before.messages.received.last(message_id)
        assert row is not None, message_id
        message = Fragment("user", turn.number, turn.step, -1, row.offset, row.content)
        words = _words(message, read)
        pieces.append(LeftOut("message", message_id, row.tokens_for(counts), row.offset, words))
    if pieces:
        rest = estimated_tokens(after.context)
        whole = event.used or rest + sum(piece.tokens for piece in pieces)
        cap = f"hard cap of {event.limit} tokens" if event.limit else "hard cap"
        why = f"no request has room for it under the {cap}"
        step = f"{turn.number}.{turn.step + 1}"
        yield Change(offset, step, "message", why, whole, rest, "", tuple(pieces))


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
    refused = [one for one in now.left_out if not one.accepted]
    if refused:
        places = [
            n for n in range(refused[0].begin, refused[0].end)
            if after.context.fragments[n].kind not in SPOKEN
            and not refused[0].keeps(after.context.fragments[n])
        ]
        pieces = [_piece(after, n, read) for n in places]
        why = "the provider had refused the request, or the model had refused to answer it"
        yield Change(*place, "refused", why, *tokens, "", tuple(pieces))
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
        return "the model had refused the request as too long"
    if thinking_refused(before.turn):
        return "the provider no longer accepted the thinking blocks"
    if estimated_tokens(before.context) > event.budget.soft_tokens:
        return f"over the soft budget of {event.budget.soft_tokens} tokens"
    if is_cold(before):
        return "the provider's cache had expired, so changing the prefix cost nothing"
    return "the request would have exceeded a budget"


def _summary(body: ev.Body, read: ReadBlob) -> str:
    blocks = blocks_of(whole(body, read))
    return "\n".join(str(b.get("text") or b.get("content") or "") for b in blocks)


def _piece(views: SessionViews, place: int, read: ReadBlob) -> LeftOut:
    fragment = views.context.fragments[place]
    what = {"user": "message", "assistant": "answer", "partial": "answer"}
    name = _call(fragment) if fragment.kind == "result" else f"{fragment.turn}.{fragment.step}"
    tokens = fragment_tokens(views.context.fragments, place)
    words = _words(fragment, read)
    return LeftOut(what.get(fragment.kind, fragment.kind), name, tokens, fragment.offset, words)


def _call(fragment: Fragment) -> str:
    return call_key(fragment.turn, fragment.step, fragment.index)


def _words(fragment: Fragment, read: ReadBlob) -> str:
    body, text = fragment.body, fragment.text
    if body is not None and fragment.kind == "result":
        text = (body.inline or b"").decode("utf-8", "replace") + text
    elif body is not None:
        blocks = blocks_of(whole(body, read))
        texts = (b.get("text") or b.get("name") or b.get("type", "") for b in blocks)
        text = " ".join(map(str, texts))
    words = " ".join(text.split())
    return words if len(words) <= SUMMARY_CHARS else f"{words[:SUMMARY_CHARS]}..."
