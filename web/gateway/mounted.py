"""The gateway as a part of another ASGI application, which starts and stops it.

The application may authenticate its users itself. The app has every route of a gateway; those of
the inspector only if the application wants them.
"""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ...client.log_client import LogClient
from ...log.door import Log
from ...log.errors import FoldlogError, SettingsError
from ...log.settings import Settings
from ...processors.store.state_dir import StateDir, StateDirTaken
from .access import Access, Authenticate
from .app import ROUTERS, make_app
from .gateway import Gateway
from .routes import home, inspector
from .serve import limits_here

CHANNEL = "gateway"
PROCESSES_MAX = 64
STOP_POLL_S = 0.1
"""How often it is checked whether the server stops, in seconds."""
INSPECTOR = (inspector.router, home.router)
_log = logging.getLogger("foldlog.gateway")

NOT_STARTED = {
    "code": "not_started",
    "detail": "this part of the application was not started: nothing was done. Its developer has "
    "to enter it in the application's lifespan: `async with chat:`",
}


class AsgiApp:
    """The ASGI app, and the context manager that starts and stops it.

    connected: a function that adds the broker's address to the settings. It is called when the app
    starts, unless `log` is given.
    """

    def __init__(
        self,
        settings: Settings,
        connected: Callable[[Settings], Settings],
        origins: Sequence[str],
        authenticate: Authenticate | None,
        log: Log | None,
        *,
        inspector: bool = False,
    ) -> None:
        self._settings, self._connected, self._log = settings, connected, log
        self._access = Access(settings.user, settings.gateway_secret, origins, authenticate)
        self._routers = tuple(one for one in ROUTERS if inspector or one not in INSPECTOR)
        self._app: ASGIApp | None = None
        self._stack = AsyncExitStack()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the lifespan protocol of a server that runs this app alone."""
        if scope["type"] == "lifespan":
            await self._serve_lifespan(receive, send)
        elif self._app is None:
            await JSONResponse(NOT_STARTED, 503)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _serve_lifespan(self, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "lifespan.startup"
        try:
            await self.__aenter__()
        except FoldlogError as error:  # the server prints it
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})

    async def __aenter__(self) -> "AsgiApp":
        """Connect to the log and start to follow it.

        Raises LogUnreachable, TopicMissing, SettingsError.
        """
        if self._app is not None:
            raise RuntimeError("this app is already started. Enter it only once.")
        try:
            gateway = await asyncio.to_thread(self._gateway)
            gateway.hub.limit_viewers(limits_here().connections)
            await self._stack.enter_async_context(gateway.running())
            gateway.tail.on_end = self._report_end
            ending = asyncio.create_task(_end_with_the_server(gateway))
            self._stack.callback(ending.cancel)
        except BaseException:
            await self._stack.aclose()
            raise
        self._app = make_app(gateway, self._routers)
        return self

    def _gateway(self) -> Gateway:
        settings = self._settings if self._log is not None else self._connected(self._settings)
        directory = _free_directory(settings.home)
        self._stack.callback(directory.close)
        client = LogClient(settings, self._log, channel=CHANNEL)
        self._stack.callback(client.close)
        return Gateway(client, self._access, directory.path, _log.warning)

    def _report_end(self) -> None:
        _log.error("the log cannot be followed any more. Restart this process.")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """End the streams, whose clients reconnect, and close the log."""
        self._app = None
        await self._stack.aclose()


async def _end_with_the_server(gateway: Gateway) -> None:
    """End the streams when the server begins to stop. A server ends the application's lifespan only
    after all responses, and streams do not end by themselves.

    uvicorn shows in `should_exit` that it stops, and handles the signals in the main thread. No
    other server that runs this application is recognized.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    server: Any = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if hasattr(server, "should_exit"):
        while not server.should_exit:
            await asyncio.sleep(STOP_POLL_S)
        gateway.disconnect()


def _free_directory(home: Path) -> StateDir:
    """A cache directory that no other process uses, because a server may run several processes of
    an app. Raises SettingsError.
    """
    for number in range(1, PROCESSES_MAX + 1):
        with suppress(StateDirTaken):
            return StateDir(home / f"asgi-{number}")
    raise SettingsError(
        f"{PROCESSES_MAX} processes on this machine use the caches in {home}. Nothing was "
        "started. End some of them, or set FOLDLOG_HOME to another directory for these."
    )
