"""Creates the client and the raw event stream, and converts errors.
The only file that imports `anthropic`.

The import takes 1.4-3 s, so it happens inside functions: only the models role imports the SDK, when
it creates its client. The SDK's own retries are always off, because retries are events of the log.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from ....log.errors import SettingsError
from .errors import AttemptFailed, Trouble, retry_after_ms
from .sse import EventSplitter, StreamEvent

DEFAULT_BASE_URL = "https://api.anthropic.com"
LOOPBACK = ("all://127.0.0.1", "all://[::1]", "all://localhost")
ATTEMPT_HEADER = "x-foldlog-attempt"
# A connection that is not established within this time counts as failed. The SDK's default is 5 s,
# doubled here for slow name servers. The retry then comes much sooner than after a stall.
CONNECT_TIMEOUT_S = 10.0
# The watchdog of an attempt ends a stall at its limit; the socket's read timeout is the fallback if
# the watchdog itself does not run.
READ_MARGIN_S = 5.0
COMPACTION_BETA = "compact-2026-09-04"
COMPACTED = b'"messages":[{"role":"assistant"'  # only a signed summary may come first like this
FULL_READ_BYTES = 16 * 1024  # the transport reads at most this much, so there may be more
DETAIL_CHARS_MAX = 500  # a longer text is probably a proxy's HTML page


def host_of(base_url: str | None) -> str:
    """Host and port of the API, without the parts of the URL that may be secret."""
    host = urlsplit(DEFAULT_BASE_URL if base_url is None else base_url).netloc.rpartition("@")[2]
    return host or "ANTHROPIC_BASE_URL, which names no host"


def make_client(api_key: str, base_url: str | None = None) -> Any:
    """An async client of the Messages API without retries. Imports `anthropic` (1.4-3 s).

    Every setting is passed, so the SDK reads no credential and no base URL from the environment.
    Raises SettingsError if the base URL is empty, because an empty value never means the public
    API.
    """
    import httpx2
    from anthropic import AsyncAnthropic, DefaultAioHttpClient

    if base_url is not None and not base_url.strip():
        raise SettingsError("base_url is empty (ANTHROPIC_BASE_URL). Set it, or remove it.")
    url = httpx2.URL(DEFAULT_BASE_URL if base_url is None else base_url)
    # aiohttp rejects a user and a password in a URL. For these hosts, it uses no proxy of the
    # environment, because such a proxy cannot reach this machine's loopback.
    http = DefaultAioHttpClient(
        auth=(url.username, url.password) if url.userinfo else None,
        mounts=dict.fromkeys(LOOPBACK),
    )
    bare = url.copy_with(userinfo=b"")
    return AsyncAnthropic(api_key=api_key.strip(), base_url=bare, max_retries=0, http_client=http)


class Transport(ABC):
    """A client without the SDK, such as that of the test kit."""

    @abstractmethod
    def stream(
        self, body: bytes, headers: Mapping[str, str], read_timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Send one request and yield the data of the response. Raises AttemptFailed, also from the
        block in which the data is read."""


async def _events(
    reads: AsyncIterator[bytes], before_read: Callable[[], Awaitable[None]]
) -> AsyncIterator[Iterator[StreamEvent]]:
    splitter = EventSplitter()
    async for data in reads:
        yield splitter.feed(data)
        if len(data) < FULL_READ_BYTES:
            await before_read()
    yield splitter.end()


async def _at_once() -> None:
    pass


@asynccontextmanager
async def open_stream(
    client: Any,
    body: bytes,
    *,
    label: str,
    stall_timeout_s: float,
    before_read: Callable[[], Awaitable[None]] = _at_once,
) -> AsyncIterator[AsyncIterator[Iterator[StreamEvent]]]:
    """Send one request and yield the raw events of the response, those of each read together.
    Leaving the block closes the socket.

    body: sent byte for byte.
    label: value of the attempt header.
    before_read: called when all events that were read have been taken, before more are read.

    Raises AttemptFailed for any error of the API, the transport or the SDK.
    """
    headers = {ATTEMPT_HEADER: label, **_betas(body)}
    read_timeout_s = stall_timeout_s + READ_MARGIN_S
    if isinstance(client, Transport):
        async with client.stream(body, headers, read_timeout_s) as reads:
            yield _events(reads, before_read)
        return
    import httpx2
    from anthropic import AsyncStream

    timeout = httpx2.Timeout(read_timeout_s, connect=CONNECT_TIMEOUT_S)
    response = None
    try:
        # Not messages.create, which would parse the body and serialize it again, with other bytes
        # than those whose hash is in the claim. The client's generic post sends the body unchanged.
        response = await client.post(
            "/v1/messages",
            content=body,
            cast_to=httpx2.Response,
            options={"headers": headers, "timeout": timeout, "max_retries": 0},
            stream=True,
            stream_cls=AsyncStream,
        )
        kind = response.headers.get("content-type", "")
        if not kind.lower().startswith("text/event-stream"):
            raise AttemptFailed(_no_stream(response, kind))
        yield _events(response.aiter_bytes(), before_read)
    except AttemptFailed:
        raise
    except Exception as error:
        trouble = _trouble_of(error, getattr(client, "api_key", None), client.base_url)
        if trouble is None:
            raise  # not an error of the API or the transport: a bug, which the caller classifies
        raise AttemptFailed(trouble) from error
    finally:
        if response is not None:
            await response.aclose()


def _betas(body: bytes) -> dict[str, str]:
    """The beta header, if the request asks for a signed summary or contains one."""
    asked = b'"compaction":{"type":"summarize"}' in body
    return {"anthropic-beta": COMPACTION_BETA} if asked or COMPACTED in body else {}


def _no_stream(response: Any, kind: str) -> Trouble:
    return Trouble(
        source="malformed",
        message=f"the response is not an event stream but {kind or 'of no content type'!r}",
        status=response.status_code,
        request_id=response.headers.get("request-id"),
    )


def _trouble_of(error: Exception, api_key: str | None, base_url: Any) -> Trouble | None:
    """The facts in an exception of the SDK or the transport; None for any other exception."""
    import anthropic
    import httpx2

    text = _text_of(error, api_key)
    match error:
        case anthropic.APIStatusError():
            headers = error.response.headers
            return Trouble(
                source="status",
                message=_cut(_text(error.api_message) or text, api_key),
                status=error.status_code,
                type=_text(error.type),
                code=_text(error.error_code),
                retry_after_ms=retry_after_ms(headers, datetime.now(UTC)),
                request_id=error.request_id,
            )
        case anthropic.APIResponseValidationError() | UnicodeDecodeError():
            return Trouble(source="malformed", message=text)
        case anthropic.CredentialsError():
            return Trouble(source="status", message=text, status=401)
        case anthropic.APIConnectionError() | httpx2.HTTPError():
            cause = error.__cause__ if isinstance(error, anthropic.APIConnectionError) else error
            if isinstance(cause, (httpx2.ReadTimeout, httpx2.WriteTimeout)):
                return Trouble(source="stalled", message=text)
            if _is_unsent(cause):
                host = base_url.netloc.decode("ascii", "replace")
                place = f"{base_url.scheme}://{host}" if host else "the base URL"
                message = _cut(f"no connection to {place}: {text}", api_key)
                return Trouble(source="transport", message=message, sent=False)
            return Trouble(source="transport", message=text)
    return None


def _is_unsent(error: BaseException | None) -> bool:
    """Whether the transport failed before it wrote a byte of the request, which it writes only
    after the connection is established, TLS included.

    An httpx2.ConnectError is no proof: the transport raises it also for a connection that broke
    after the request. Its cause is the exception of aiohttp.
    """
    import aiohttp
    import httpx2

    cause = error.__cause__ if error is not None else None
    return isinstance(error, (httpx2.ConnectTimeout, httpx2.UnsupportedProtocol)) or isinstance(
        cause, (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError)
    )


def _text(value: object) -> str | None:
    """A member of the body of an error, which may be of any type."""
    return value if isinstance(value, str) else None


def _text_of(error: Exception, api_key: str | None) -> str:
    """The text of an exception and of its cause. The SDK's own text is only "Connection error."."""
    parts = [f"{type(e).__name__}: {e}" for e in (error, error.__cause__) if e is not None]
    return _cut(" < ".join(parts), api_key)


def _cut(text: str, api_key: str | None) -> str:
    # The transport quotes a header that it rejects in its message, and the API key is a header.
    for shown in (api_key, repr(api_key)[1:-1]) if api_key else ():
        text = text.replace(shown, "***")
    return text if len(text) <= DETAIL_CHARS_MAX else text[: DETAIL_CHARS_MAX - 3] + "..."
