"""Prometheus metrics of a gateway: its viewers, its responses, and how far it has read.

Metrics have only numbers and fixed labels: no users, sessions or content.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from ...processors.worker.meter import Family
from ...processors.worker.metrics import CONTENT_TYPE, FOLDED, exposition, lag
from ...producers.tracing import TRACEPARENT

if TYPE_CHECKING:
    from .gateway import Gateway

App = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]

__all__ = ["ANSWERS", "CONTENT_TYPE", "Counted", "gateway_metrics"]

VIEWERS = Family("foldlog_viewers", "gauge", "Viewers connected now.")
SESSIONS = Family("foldlog_sessions", "gauge", "Known sessions, by status and reason.",
                  ("status", "reason"))
ANSWERS = Family("foldlog_gateway_answers", "counter", "Responses, by HTTP status; a refusal is "
                 "4xx.",
                 ("status",))


class Counted:
    """An ASGI app that counts responses by status, and continues the trace of each request."""

    def __init__(self, app: App, answers: "Counter[str]") -> None:
        self._app, self._answers = app, answers

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        async def count_and_send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._answers[str(message["status"])] += 1
            await send(message)

        header = dict(scope.get("headers", ())).get(b"traceparent", b"")
        token = TRACEPARENT.set(header.decode("latin-1"))
        try:
            await self._app(scope, receive, count_and_send)
        finally:
            TRACEPARENT.reset(token)


def gateway_metrics(gateway: "Gateway") -> bytes:
    """The gateway's metrics as text. Blocks on the log, so do not call it in the event loop."""
    places: Mapping[int, int] = gateway.tail.places()
    answers = dict(gateway.answers)
    return exposition(
        {
            VIEWERS: {(): gateway.hub.viewers},
            SESSIONS: Counter((s["status"], s["reason"]) for s in gateway.tail.summaries()),
            FOLDED: {(str(n),): offset for n, offset in places.items()},
            ANSWERS: {(status,): count for status, count in answers.items()},
            **lag(gateway.client.log, places),
        }
    )
