"""The invariants of a request that the builder makes, one function per rule.

Tests check their requests against them: `check(built)` of a rule yields the violations as text.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from foldlog.processors.fold.cut_points import is_cut, messages_from, window_size
from foldlog.processors.fold.projections.compaction import in_force
from foldlog.processors.fold.projections.context_view import Request
from foldlog.processors.fold.views import SessionViews
from foldlog.processors.request.build import request_bytes
from foldlog.schemas.events.parts import ReadBlob
from foldlog.schemas.ids import call_key
from foldlog.tests.kit.api_rules import findings


class Built(NamedTuple):
    """A request and the views from which it was built. `body`: the parsed request."""

    views: SessionViews
    body: dict[str, Any]

    @property
    def request(self) -> Request:
        """The newest request that LLM_CALLED decided."""
        request = self.views.context.request
        assert request is not None, "no step has been decided yet"
        return request

    def blocks(self) -> Iterator[dict[str, Any]]:
        """The content blocks, in order."""
        for message in self.body["messages"]:
            yield from message["content"]


class Rule(NamedTuple):
    """One rule. `why`: the reason for the rule. `check`: yields the violations of a request, if
    any."""

    name: str
    why: str
    check: Callable[[Built], Iterator[str]]


def _boundary(built: Built) -> Iterator[str]:
    request, fragments = built.request, built.views.context.fragments
    if not 0 <= request.start <= request.fragments <= len(fragments):
        yield f"it shows fragments {request.start} to {request.fragments} of {len(fragments)}"
    elif request.start and not is_cut(fragments, request.start):
        yield f"it begins at fragment {request.start}, where a message is split"
    size = window_size(request.strategy)
    if size is not None and request.start:
        shown = messages_from(fragments.upto(request.fragments), request.start)
        if shown > size + 1:
            yield f"its window shows {shown} messages, {size} are allowed"


def _legal(built: Built) -> Iterator[str]:
    yield from findings(json.dumps(built.body).encode())
    parts = [part for part in built.body if part in ("system", "tools", "messages")]
    if parts != [part for part in ("system", "tools", "messages") if part in built.body]:
        yield f"the static parts are not before the messages: {', '.join(parts)}"


def _short_forms(built: Built) -> Iterator[str]:
    request, compaction = built.request, built.views.compaction
    shown = [b for b in built.blocks() if b["type"] == "tool_result"]
    results = [
        built.views.context.fragments[place]
        for place in range(request.start, request.fragments)
        if built.views.context.fragments[place].kind == "result"
        and not any(one.begin <= place < one.end for one in request.left_out)
    ]
    results.sort(key=lambda f: (f.turn, f.step, f.index))
    if len(shown) != len(results):
        yield f"{len(results)} results in the window, {len(shown)} in the request"
        return
    for fragment, block in zip(results, shown, strict=True):
        key = call_key(fragment.turn, fragment.step, fragment.index)
        short = in_force(compaction, key, request.compacted_upto)
        body = short.body if short is not None else fragment.body
        text = (body.inline or b"").decode("utf-8", "replace") if body is not None else ""
        if text and not block["content"].startswith(text):
            yield f"the result of {key} is not the one in the log"


def _reminders(built: Built) -> Iterator[str]:
    request = built.request
    for place in range(request.start, request.fragments):
        fragment = built.views.context.fragments[place]
        is_left_out = any(one.begin <= place < one.end for one in request.left_out)
        if fragment.kind == "reminder" and not is_left_out:
            text = f"Reminder: {fragment.text}"
            shown = sum(1 for b in built.blocks() if b.get("text") == text)
            wanted = sum(
                1
                for other in range(request.start, request.fragments)
                if built.views.context.fragments[other].kind == "reminder"
                and built.views.context.fragments[other].text == fragment.text
            )
            if shown != wanted:
                yield f"a reminder is shown {shown} times: {fragment.text[:60]!r}"


RULES: tuple[Rule, ...] = (
    Rule("boundary", "the omitted part ends between two messages (constraint 1)", _boundary),
    Rule("legal", "the API accepts it, and its static parts come first", _legal),
    Rule("short forms", "a result is short iff the log says so (constraint 2)", _short_forms),
    Rule("reminders", "each reminder is shown once, where it came first", _reminders),
)


def violations(views: SessionViews, read_blob: ReadBlob) -> list[str]:
    """The violations in the newest request of the views; each is a bug of the builder."""
    built = Built(views, json.loads(request_bytes(views, read_blob)))
    return [f"{rule.name}: {wrong}" for rule in RULES for wrong in rule.check(built)]
