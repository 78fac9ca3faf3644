"""What Prometheus is told of a gateway: who looks, how far it has read, what it answered.

Numbers, and words of ours: no user, no session, no content. This file must not know a route.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from ...processors.worker.meter import Family
from ...processors.worker.metrics import CONTENT_TYPE, FOLDED, exposition, lag
from ...producers.tracing import TRACEPARENT

if TYPE_CHECKING:
    from ..gateway.parts import Gateway

App = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]

__all__ = ["ANSWERS", "CONTENT_TYPE", "Counted", "gateway_metrics"]

VIEWERS = Family("foldlog_viewers", "gauge", "Viewers that look now.")
SESSIONS = Family("foldlog_sessions", "gauge", "Sessions that are known.")
ANSWERS = Family("foldlog_gateway_answers", "counter", "Answers, by HTTP status; a refusal is 4xx.",
                 ("status",))


class Counted:
    """An ASGI app whose answers are counted by status, and who is traced as its clients are."""

    def __init__(self, app: App, answers: "Counter[str]") -> None:
        self._app, self._answers = app, answers

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        async def counting(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._answers[str(message["status"])] += 1
            await send(message)

        given = dict(scope.get("headers", ())).get(b"traceparent", b"")
        traced = TRACEPARENT.set(given.decode("latin-1"))
        try:
            await self._app(scope, receive, counting)
        finally:
            TRACEPARENT.reset(traced)


def gateway_metrics(gateway: "Gateway") -> bytes:
    """The gateway's numbers as text. Asks the log where it ends, so not in the event loop."""
    places: Mapping[int, int] = gateway.tail.places()
    answered = dict(gateway.answers)
    return exposition(
        {
            VIEWERS: {(): gateway.hub.viewers},
            SESSIONS: {(): len(gateway.tail.summaries())},
            FOLDED: {(str(n),): offset for n, offset in places.items()},
            ANSWERS: {(status,): count for status, count in answered.items()},
            **lag(gateway.client.log, places),
        }
    )
