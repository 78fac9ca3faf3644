"""The table of fault modes: what can go wrong with a reply, at which stage, with which parameters.

A fault belongs to a `Reply`. `distort.py` rewrites the events for it, `delivery.py` breaks the
connection.

`k` is the number of SSE events that are sent completely before the fault, including
`message_start` and `ping`. `k=None` means the middle of the deltas. A `k` past the end is reduced
to just before `message_delta`, so that a scripted fault always happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Stage(StrEnum):
    """Where a fault occurs."""

    BEFORE = "before"  # instead of a stream: a status, or nothing at all
    BREAK = "break"  # the stream ends, hangs or fails after k events
    NOISE = "noise"  # the stream is complete but has unusual events
    SHAPE = "shape"  # the reply itself is unusual but legal


@dataclass(frozen=True, slots=True)
class FaultMode:
    """One row of the table."""

    stage: Stage
    meaning: str
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault mode with all its parameters, as returned by `fault()`."""

    name: str
    params: Mapping[str, Any]

    @property
    def stage(self) -> Stage:
        return FAULTS[self.name].stage

    def __getitem__(self, key: str) -> Any:
        return self.params[key]


_STATUS = {
    "type": None,  # None: the type of the status
    "message": None,
    "error_code": None,
    "retry_after": None,  # seconds or an HTTP date, sent as given
    "retry_after_ms": None,
    "should_retry": None,  # "true" or "false"
}


def _status(status: int, meaning: str, **changed: Any) -> FaultMode:
    return FaultMode(Stage.BEFORE, meaning, {"status": status, **_STATUS, **changed})


FAULTS: dict[str, FaultMode] = {
    # before the stream ------------------------------------------------------------------------
    "status": _status(500, "any status, given by `status` and the other parameters"),
    "rate_limit": _status(429, "429 with retry-after in seconds", retry_after=1),
    "rate_limit_ms": _status(429, "429 with retry-after-ms", retry_after_ms=20),
    "rate_limit_bare": _status(429, "429 without retry-after: a gateway's, or a spend cap"),
    "rate_limit_huge": _status(429, "429 that asks to wait for eleven days", retry_after=1_000_000),
    "enforced_spend_limit": _status(
        429, "429 with a spend-limit code", error_code="enforced_spend_limit_reached"
    ),
    "spend_limit": _status(
        400,
        "the customer's own spend limit, which is a 400",
        message="You have reached your specified API usage limits. You will regain access on "
        "2026-12-01 at 00:00 UTC.",
    ),
    "bad_request": _status(400, "a plain 400"),
    "unauthorized": _status(401, "the key is refused"),
    "billing": _status(402, "billing_error"),
    "forbidden": _status(403, "permission_error"),
    "not_found": _status(404, "no such model"),
    "timeout": _status(408, "timeout_error; the attempt may have been billed"),
    "conflict": _status(409, "conflict_error"),
    "too_large": _status(413, "request_too_large"),
    "unprocessable": _status(422, "invalid_request_error with status 422"),
    "server_error": _status(500, "api_error"),
    "server_error_no_retry": _status(500, "500 with x-should-retry: false", should_retry="false"),
    "unavailable": _status(503, "api_error with status 503"),
    "gateway_timeout": _status(504, "timeout_error with status 504"),
    "overloaded": _status(529, "overloaded_error"),
    "html_error": FaultMode(Stage.BEFORE, "a proxy's HTML page with `status`", {"status": 502}),
    "accepted_then_lost": FaultMode(
        Stage.BEFORE,
        "read and journalled, then dropped before the first byte: billed, outcome unknown",
        {"how": "fin"},  # fin | rst
    ),
    "no_answer": FaultMode(Stage.BEFORE, "read completely, then silence until the client leaves"),
    # the stream breaks ------------------------------------------------------------------------
    "eof": FaultMode(Stage.BREAK, "a clean end of the body after k events", {"k": None}),
    "eof_before_message_delta": FaultMode(
        Stage.BREAK, "a clean end after every block, without a stop_reason"
    ),
    "eof_before_message_stop": FaultMode(
        Stage.BREAK, "a clean end after message_delta, which has the stop_reason"
    ),
    "error_event": FaultMode(
        Stage.BREAK,
        "`event: error` after k events, under HTTP 200",
        {"k": None, "type": "overloaded_error", "message": None, "error_code": None},
    ),
    "reset": FaultMode(Stage.BREAK, "RST inside an HTTP chunk after k events", {"k": None}),
    "cut": FaultMode(Stage.BREAK, "FIN inside an HTTP chunk after k events", {"k": None}),
    "half_open": FaultMode(
        Stage.BREAK,
        "after k events the peer vanishes without FIN: it sends nothing and reads nothing",
        {"k": None},
    ),
    "stall": FaultMode(
        Stage.BREAK,
        "silence after k events until the client leaves, or for `s` seconds, then a clean end",
        {"k": None, "s": None},
    ),
    "stall_with_pings": FaultMode(
        Stage.BREAK,
        "like stall, with a ping every `every_s`: bytes arrive, the answer does not",
        {"k": None, "s": None, "every_s": 0.5},
    ),
    "cut_in_tool_input": FaultMode(
        Stage.BREAK,
        "ends inside partial_json of the first tool_use",
        {"how": "eof"},  # eof | cut | reset | stall
    ),
    # noise ------------------------------------------------------------------------------------
    "duplicate_message_stop": FaultMode(Stage.NOISE, "message_stop twice"),
    "duplicate_message_delta": FaultMode(Stage.NOISE, "message_delta twice, same totals"),
    "events_after_message_stop": FaultMode(Stage.NOISE, "a ping and a delta after message_stop"),
    "unknown_event": FaultMode(Stage.NOISE, "an unknown event type, in the middle"),
    "unknown_delta": FaultMode(Stage.NOISE, "an unknown delta type, in the first block"),
    "unknown_block": FaultMode(
        Stage.NOISE, "a sealed block of an unknown type: must be sent back with the same values"
    ),
    "unknown_fields": FaultMode(Stage.NOISE, "unknown fields in every event and block"),
    "bad_event_json": FaultMode(Stage.NOISE, "data that is not JSON, after k events", {"k": None}),
    "many_pings": FaultMode(Stage.NOISE, "a ping between any two events"),
    # shape ------------------------------------------------------------------------------------
    "invalid_tool_json": FaultMode(
        Stage.SHAPE, "the first tool_use's input is not JSON", {"raw": '{"path": "a", oops'}
    ),
    "repeated_tool_ids": FaultMode(Stage.SHAPE, "every tool_use of the reply has the same id"),
    "max_tokens_in_tool_use": FaultMode(
        Stage.SHAPE, "the last tool_use is cut inside its input, stop_reason max_tokens"
    ),
    "max_tokens": FaultMode(Stage.SHAPE, "the last text is cut, stop_reason max_tokens"),
    "refusal": FaultMode(
        Stage.SHAPE,
        "stop_reason refusal with stop_details",
        {"category": "cyber", "explanation": "This request was declined by a safety classifier."},
    ),
    "pause_turn": FaultMode(
        Stage.SHAPE, "a server_tool_use is added and the turn paused: send it back unchanged"
    ),
    "context_window_exceeded": FaultMode(Stage.SHAPE, "stop_reason model_context_window_exceeded"),
    "empty_content": FaultMode(Stage.SHAPE, "no block at all, stop_reason end_turn"),
    "thinking_only": FaultMode(Stage.SHAPE, "only the thinking blocks, stop_reason end_turn"),
    "compaction_null": FaultMode(Stage.SHAPE, "a compaction block whose content is null"),
    "parallel_tool_calls": FaultMode(
        Stage.SHAPE, "the first tool_use repeated `count` times with different ids", {"count": 10}
    ),
}


def fault(name: str, **params: Any) -> Fault:
    """A fault with all its parameters.

    Raises ValueError for an unknown name or parameter; the message lists the known ones.
    """
    mode = FAULTS.get(name)
    if mode is None:
        raise ValueError(f"unknown fault {name!r}; known: {', '.join(FAULTS)}")
    unknown = sorted(set(params) - set(mode.defaults))
    if unknown:
        known = ", ".join(mode.defaults) or "none"
        raise ValueError(f"fault {name!r} has no parameter {', '.join(unknown)}; it has: {known}")
    return Fault(name, {**mode.defaults, **params})


def as_fault(value: Fault | str | Mapping[str, Any] | None) -> Fault | None:
    """A fault from its name, or from {"name": ..., parameter: value}; a Fault is returned
    unchanged.
    """
    if value is None or isinstance(value, Fault):
        return value
    if isinstance(value, str):
        return fault(value)
    given = dict(value)
    return fault(given.pop("name"), **given)
