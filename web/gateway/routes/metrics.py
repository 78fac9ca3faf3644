"""/metrics, /healthz and /readyz, for monitoring a gateway. They return no content of sessions.

As is usual, these pages need no token, so do not expose them on the public side of a proxy.
"""

from time import monotonic

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from ....log.errors import LogUnreachable, TopicMissing
from ....processors.worker.metrics import not_readable
from ..gateway import Gateway
from ..metrics import CONTENT_TYPE, gateway_metrics
from ..tail import NotReady


def router(gateway: Gateway) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["operation"])

    @routes.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """The gateway's metrics, in the Prometheus text format."""
        return Response(await gateway.blocking(gateway_metrics, gateway), media_type=CONTENT_TYPE)

    @routes.get("/healthz", response_class=PlainTextResponse)
    async def alive() -> Response:
        """200 while the gateway follows the log. If no broker responds, the status is still 200,
        and the text says since when.
        """
        failed = gateway.tail.failed or gateway.tabs.failed
        if failed is not None:
            return PlainTextResponse(f"does not follow the log: {type(failed).__name__}\n", 503)
        since = gateway.tail.unreachable_since
        if since is not None:
            return PlainTextResponse(f"ok, but no broker has responded for "
                                     f"{monotonic() - since:.0f} s; what is shown may be old\n")
        return PlainTextResponse("ok\n")

    @routes.get("/readyz", response_class=PlainTextResponse)
    async def ready() -> Response:
        """200 if a broker responds and the gateway has read everything that was in the log at its
        start.
        """
        try:
            gateway.tail.ready()
            await gateway.blocking(gateway.tail.lag)
        except NotReady as error:
            return PlainTextResponse(f"not yet: {error}\n", 503)
        except (LogUnreachable, TopicMissing) as error:
            return PlainTextResponse(f"{not_readable(error)}\n", 503)
        return PlainTextResponse("ready\n")

    return routes
