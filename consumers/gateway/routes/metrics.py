"""/metrics, /healthz, /readyz: for machines that look after a gateway; numbers and no content.

Open to whoever reaches the address, as such pages are: keep them off the public side of a proxy.
"""

from time import monotonic

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from ....log.errors import LogUnreachable, TopicMissing
from ....processors.worker.metrics import not_readable
from ...telemetry.metrics import CONTENT_TYPE, gateway_metrics
from ..parts import Gateway
from ..tail import NotReady


def router(gateway: Gateway) -> APIRouter:
    """The routes."""
    routes = APIRouter(tags=["operation"])

    @routes.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """What it does, in numbers, as Prometheus reads them."""
        return Response(await gateway.blocking(gateway_metrics, gateway), media_type=CONTENT_TYPE)

    @routes.get("/healthz", response_class=PlainTextResponse)
    async def alive() -> Response:
        """200 as long as it follows the log, also while no broker answers, which it says."""
        failed = gateway.tail.failed or gateway.tabs.failed
        if failed is not None:
            return PlainTextResponse(f"does not follow the log: {type(failed).__name__}\n", 503)
        since = gateway.tail.unreachable_since
        if since is not None:
            return PlainTextResponse(f"ok, but no broker has answered for {monotonic() - since:.0f}"
                                     " s: what is shown is as of then\n")
        return PlainTextResponse("ok\n")

    @routes.get("/readyz", response_class=PlainTextResponse)
    async def ready() -> Response:
        """200 when it has read what was in the log when it began, and a broker answers."""
        try:
            gateway.tail.ready()
            await gateway.blocking(gateway.tail.lag)
        except NotReady as error:
            return PlainTextResponse(f"not yet: {error}\n", 503)
        except (LogUnreachable, TopicMissing) as error:
            return PlainTextResponse(f"{not_readable(error)}\n", 503)
        return PlainTextResponse("ready\n")

    return routes
