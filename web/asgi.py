"""`foldlog.asgi()`: the gateway's protocols as an ASGI app, to mount in an application.

    chat = foldlog.asgi(authenticate=lambda request: request.state.user)

    @asynccontextmanager
    async def lifespan(app):
        async with chat:
            yield

    app = FastAPI(lifespan=lifespan)
    app.mount("/foldlog", chat)

The app has every route of `foldlog gateway`; those of the inspector only with `inspector=True`. A
mounted app gets no lifespan events, so the application's own lifespan must enter it. A server that
runs the app alone sends it lifespan events.
"""

from collections.abc import Sequence

from ..client.installation import connected, find_settings
from ..log import Settings, SettingsError
from ..log.door import Log
from .gateway.access import Authenticate
from .gateway.mounted import AsgiApp


def asgi(
    *,
    authenticate: Authenticate | None = None,
    origins: Sequence[str] = (),
    inspector: bool = False,
    settings: Settings | None = None,
    log: Log | None = None,
) -> AsgiApp:
    """An ASGI app with the gateway's protocols: sessions, streams, AI SDK, AG-UI, durable streams.

    authenticate: returns the user id of a request (a `starlette.requests.Request`), a `Caller` for
        a user with roles, or None to refuse it; it is called on the event loop, so it must not
        block. Without it, requests need a token signed with FOLDLOG_GATEWAY_SECRET.
    origins: the other web origins whose pages may use the app (CORS).
    inspector: also serve the inspector, whose page is at the mount's path. It shows a user's
        sessions with their requests, system prompts and costs, so mount it for operators only.
    settings, log: used instead of those that the command line would use; the log is not closed.

    Raises SettingsError.
    """
    if isinstance(origins, str):
        raise SettingsError(f"foldlog.asgi needs a list of origins. Write origins=[{origins!r}].")
    settings = settings or find_settings()
    if authenticate is None and settings.gateway_secret is None:
        raise SettingsError(
            "foldlog.asgi has no way to tell users apart. Pass authenticate, which returns the "
            "user id of a request, or set FOLDLOG_GATEWAY_SECRET, with which tokens are signed. "
            "While only you can reach the application, you can pass authenticate=lambda request: "
            "\"me\"."
        )
    return AsgiApp(settings, connected, origins, authenticate, log, inspector=inspector)
