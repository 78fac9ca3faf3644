"""Makes the spans of a session from its events: the same log always gives the same spans.

The id of a span is a hash of the partition and the offset of the event that began it, and times are
the broker's. So an export can be repeated at any time on any machine. Names follow OpenTelemetry's
conventions for generative AI. Only finished work has a span, and spans contain no content.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from ...client.status import FAILED_ENDS
from ...processors.fold.projections.ledger import Spent
from ...processors.fold.projections.turn_view import call_of
from ...processors.fold.sessions import FoldedEvent
from ...schemas import events as ev
from ...schemas.codec import ChunkSeen
from ...schemas.enums import Outcome
from ...schemas.topics import SESSION_EVENTS

INTERNAL, CLIENT, PRODUCER = 1, 3, 4
"""OTLP's numbers for the kinds of spans."""

PROVIDER = "anthropic"


class Link(NamedTuple):
    """A link to the span that caused this span.

    Spans of different writers are linked, not nested.
    """

    trace_id: str
    span_id: str


class Span(NamedTuple):
    """One span. Ids are hex, times are Unix ms, and `error` is '' if there was none."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: int
    start_ms: int
    end_ms: int
    attributes: Mapping[str, Any]
    error: str = ""
    links: tuple[Link, ...] = ()


class _Open(NamedTuple):
    """A span that the event at `offset` began. `first_ms`: the time of the first chunk."""

    name: str
    attributes: dict[str, Any]
    links: tuple[Link, ...] = ()
    offset: int = 0
    start_ms: int = 0
    first_ms: int | None = None


def spans_of(
    seen: Iterable[FoldedEvent], origin: str, comes_from: Mapping[int, Link] | None = None
) -> Iterator[Span]:
    """The spans that ended within a session's events, yielded in the order of their ends.

    origin: identifies the log, so that ids of different logs differ.
    comes_from: for the offset of an event, the span in which its producer wrote it.
    """
    maker = _Maker(origin, comes_from or {})
    for one in seen:
        if one.ruling.accepted:
            yield from maker.take(one)


class _Maker:
    def __init__(self, origin: str, comes_from: Mapping[int, Link]) -> None:
        self._origin, self._comes_from = origin, comes_from
        self._turns: dict[int, _Open] = {}
        self._open: dict[tuple, _Open] = {}
        self._chats: dict[tuple[int, int], int] = {}  # offset of each step's latest claim
        self._called: ev.LlmCalled | None = None
        self._partition = 0
        self._last_turn: Link | None = None

    # -- ids ---------------------------------------------------------------------------------------

    def _id(self, what: str, offset: int, digits: int) -> str:
        place = f"{self._origin}/{self._partition}/{offset}/{what}"
        return sha256(place.encode()).hexdigest()[:digits]

    def _trace(self, turn: int) -> str:
        return self._id("turn", self._turns[turn].offset, 32)

    def _root(self, turn: int) -> str:
        return self._id("turn", self._turns[turn].offset, 16)

    def _span(self, offset: int) -> str:
        return self._id("claim", offset, 16)

    # -- events ------------------------------------------------------------------------------------

    def take(self, seen: FoldedEvent) -> Iterator[Span]:
        entry, event = seen.entry, seen.entry.event
        self._partition = entry.partition
        if type(event) is ChunkSeen or type(event) is ev.GenChunk:
            self._chunk(event, entry.at)
            return
        ended = list(self._end_work(seen))
        if seen.views.turn.number > seen.before.turn.number and not seen.before.turn.open:
            self._begin_turn(seen)
        key: tuple
        match event:
            case ev.LlmCalled():
                self._called = event
            case ev.GenStart() | ev.GenResumed():
                key = ("chat", event.turn, event.step)
                yield from self._begin_attempt(seen, key, self._chat(event))
                self._chats[event.turn, event.step] = entry.offset
            case ev.ToolStarted():
                key = ("tool", event.turn, event.step, event.index)
                yield from self._begin_attempt(seen, key, self._tool(seen))
            case ev.BackgroundStarted():
                more: dict[str, Any] = {
                    "foldlog.background.kind": event.kind, "foldlog.attempt": event.attempt,
                }
                span = _Open("chat", {"gen_ai.operation.name": "chat", **more})
                yield from self._begin_attempt(seen, ("background", event.kind, event.upto), span)
            case ev.DeliveryStarted():
                more = {"foldlog.channel": event.channel, "foldlog.attempt": event.attempt}
                span = _Open(f"deliver {event.channel}", more)
                yield from self._begin_attempt(
                    seen, ("delivery", event.turn, event.step, event.channel), span
                )
        yield from ended
        if isinstance(event, ev.TurnEnded):
            yield from self._end_turn(seen, event)

    def _chunk(self, event: ChunkSeen | ev.GenChunk, at: int) -> None:
        key = ("chat", event.turn, event.step)
        span = self._open.get(key)
        if span is not None and span.first_ms is None:
            self._open[key] = span._replace(first_ms=at)

    def _begin_attempt(self, seen: FoldedEvent, key: tuple, span: _Open) -> Iterator[Span]:
        """Begin an attempt; an earlier attempt without an outcome ends here."""
        before = self._open.pop(key, None)
        links = span.links
        if before is not None:
            yield self._close(seen, key, before, "superseded", {})
            links = (*links, Link(self._trace_of(key), self._span(before.offset)))
        entry = seen.entry
        self._open[key] = span._replace(offset=entry.offset, start_ms=entry.at, links=links)

    def _chat(self, event: ev.GenStart | ev.GenResumed) -> _Open:
        called = self._called
        model = called.model if called is not None else ""
        params = json.loads(called.params or b"{}") if called is not None else {}
        return _Open(f"chat {model}".strip(), {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": model,
            "gen_ai.request.max_tokens": params.get("max_tokens"),
            "gen_ai.request.stream": True,
            "foldlog.step": event.step,
            "foldlog.attempt": event.attempt,
            "foldlog.request_sha256": event.request_sha256,
        })

    def _tool(self, seen: FoldedEvent) -> _Open:
        event = seen.entry.event
        call = call_of(seen.before.turn, event)
        name = call.name if call is not None else "unknown"
        proposed = self._chats.get((event.turn, event.step))
        links: tuple[Link, ...] = ()
        if proposed is not None and event.turn in self._turns:
            links = (Link(self._trace(event.turn), self._span(proposed)),)
        return _Open(f"execute_tool {name}", {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call.call_id if call is not None else None,
            "foldlog.call": f"{event.turn}.{event.step}.{event.index}",
            "foldlog.attempt": event.attempt,
        }, links)

    def _end_work(self, seen: FoldedEvent) -> Iterator[Span]:
        event = seen.entry.event
        key, error, more = _end_of(event)
        if key and (span := self._open.pop(key, None)) is not None:
            rows = seen.views.ledger.spent.since(len(seen.before.ledger.spent))
            yield self._close(seen, key, span, error, {**more, **(_sums(rows) if rows else {})})

    def _close(
        self, seen: FoldedEvent, key: tuple, span: _Open, error: str, more: Mapping[str, Any]
    ) -> Span:
        first_chunk_s = None
        if span.first_ms is not None:
            first_chunk_s = (span.first_ms - span.start_ms) / 1000
        trace, parent, kind = self._trace_of(key), "", INTERNAL
        if key[0] in ("chat", "tool", "delivery") and key[1] in self._turns:
            parent = self._root(key[1])
        if key[0] in ("chat", "background"):
            kind = CLIENT
        elif key[0] == "delivery":
            kind = PRODUCER
        attributes = {
            **span.attributes,
            **more,
            "gen_ai.response.time_to_first_chunk": first_chunk_s,
            **self._common(seen, span.offset),
        }
        name, end = span.name, max(span.start_ms, seen.entry.at)
        if key[0] == "background" and more.get("gen_ai.response.model"):
            name = f"chat {more['gen_ai.response.model']}"
        if error:
            attributes["error.type"] = error
        return Span(trace, self._span(span.offset), parent, name, kind, span.start_ms, end,
                    _without_none(attributes), error, span.links)

    def _trace_of(self, key: tuple) -> str:
        if key[0] != "background" and key[1] in self._turns:
            return self._trace(key[1])
        return self._id("beside " + "/".join(map(str, key)), 0, 32)  # a separate trace

    # -- turns -------------------------------------------------------------------------------------

    def _begin_turn(self, seen: FoldedEvent) -> None:
        links = [self._last_turn, self._comes_from.get(seen.entry.offset)]
        number = seen.views.turn.number
        self._turns[number] = _Open(
            "", {}, tuple(filter(None, links)), seen.views.turn.opened_offset, seen.entry.at
        )

    def _end_turn(self, seen: FoldedEvent, event: ev.TurnEnded) -> Iterator[Span]:
        span = self._turns.get(event.turn)
        if span is None:
            return  # the parent exports a fork's inherited turns
        of_turn = (("chat", event.turn), ("tool", event.turn))
        for key in [key for key in self._open if key[:2] in of_turn]:
            yield self._close(seen, key, self._open.pop(key), "abandoned", {})
        agent = seen.views.turn.agent
        error = event.reason if event.reason in FAILED_ENDS else ""
        spent = [row for row in seen.views.ledger.spent if row.turn == event.turn]
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.agent.name": agent,
            "foldlog.turn": event.turn,
            "foldlog.steps": seen.before.turn.step,
            "foldlog.end_reason": event.reason,
            "error.type": error or None,
            **_sums(spent),
            **self._common(seen, span.offset),
        }
        yield Span(self._trace(event.turn), self._root(event.turn), "", f"invoke_agent {agent}",
                   INTERNAL, span.start_ms, max(span.start_ms, seen.entry.at),
                   _without_none(attributes), error, span.links)
        self._last_turn = Link(self._trace(event.turn), self._root(event.turn))
        if seen.views.turn.open:
            self._begin_turn(seen)

    def _common(self, seen: FoldedEvent, offset: int) -> dict[str, Any]:
        session_id = seen.views.session_id
        return {
            "gen_ai.conversation.id": session_id,
            "session.id": session_id,
            "user.id": seen.views.state.user_id,
            "messaging.system": "kafka",
            "messaging.destination.name": SESSION_EVENTS,
            "messaging.destination.partition.id": str(self._partition),
            "messaging.kafka.offset": offset,
        }


def _end_of(event: object) -> tuple[tuple, str, dict[str, Any]]:
    """The key of the work that an event ends, the work's error or '', and further attributes of the
    work's span.
    """
    match event:
        case ev.GenComplete():
            return ("chat", event.turn, event.step), "", {
                "gen_ai.response.id": event.response_id,
                "gen_ai.response.model": event.model,
                "gen_ai.response.finish_reasons": [event.stop_reason],
            }
        case ev.GenFailed():
            status = {"http.response.status_code": event.status}
            return ("chat", event.turn, event.step), event.error, status
        case ev.GenStopped():
            return ("chat", event.turn, event.step), "stopped", {}
        case ev.ToolResult():
            error = "" if event.outcome == Outcome.OK else event.outcome
            more = {"foldlog.outcome": event.outcome, "foldlog.via": event.via}
            return ("tool", event.turn, event.step, event.index), error, more
        case ev.ToolFailedUncertain():
            return ("tool", event.turn, event.step, event.index), "uncertain", {}
        case ev.BackgroundDone():
            model = {"gen_ai.response.model": event.model or None}
            error = "" if event.ok else "failed"
            return ("background", event.kind, event.upto), error, model
        case ev.GenSent():
            return ("delivery", event.turn, event.step, event.channel), "", {}
        case ev.DeliveryFailed():
            return ("delivery", event.turn, event.step, event.channel), event.error, {}
    return (), "", {}


def _sums(rows: list[Spent]) -> dict[str, Any]:
    """Token counts, named as in OpenTelemetry's conventions. Input includes cached input."""
    written = sum(row.cache_write_tokens for row in rows)
    return {
        "gen_ai.usage.input_tokens": sum(row.read_tokens for row in rows),
        "gen_ai.usage.output_tokens": sum(row.output_tokens for row in rows),
        "gen_ai.usage.cache_read.input_tokens": sum(row.cache_read_tokens for row in rows),
        "gen_ai.usage.cache_write.input_tokens": written,
        "gen_ai.usage.cache_creation.input_tokens": written,
    }


def _without_none(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}
