"""The MCP protocol: connects to a server, lists its tools, calls one. Only this file imports `mcp`.

A server over stdin and stdout runs under the reaper, so that it dies with the worker; its output is
read in bounded pieces. Three kinds of failure are distinguished, because they have different
consequences for a call: Unreachable (nothing was sent), Rejected (the server reports that it ran
nothing), and any other exception (the outcome is unknown).
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from importlib.metadata import version
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from ...log.environment import for_children
from ..mcp_server import McpServer
from ..tools.children import handed_env, reaper_command
from .call_failures import Rejected, Unreachable
from .definitions import HINTS, ListedTool, printable

ANSWER_BYTES_MAX = 32 * 1024 * 1024  # the limit of a stored result
PAGES_MAX = 50  # of a list of tools, which might never end otherwise
STDERR_BYTES_MAX = 4 * 1024  # the end of standard error that is kept for the operator
CLOSE_S = 1.0  # from the end of a server's input to SIGKILL
TOO_LONG = -32099  # foldlog's own error code, in the range for implementations
NOT_SENT = -32098  # another error code of foldlog
# Errors that a server returns before it runs anything: unknown method, invalid parameters, headers
# that do not match, a missing capability. (Parse error and invalid request are not among them: the
# package itself raises them after the call, for a response that it cannot parse.)
NOTHING_RAN = (-32601, -32602, -32020, -32021)
# HTTP statuses with which a server or a proxy turns a request away before it handles it. 409, 422
# and 500 or more are left out, because a server may send them after it ran the request.
TURNED_AWAY = frozenset((
    *range(300, 400), *range(401, 409), *range(410, 418), 421, 425, 426, 428, 429, 431, 451
))
NO_ACCESS = (401, 403)  # at any request, not only at a call
GONE = (404, 410)  # the server lost the session; a server that has the session does not answer so
# The codes that servers use with 400 if they do not know the session or miss its id. With 200 they
# prove nothing: a session may also end while a tool runs.
NO_SESSION = (-32600, -32001, -32000)
NO_JSON = "Server returned an error response"  # the package's words for a body that is no JSON-RPC
LOST = ("Connection closed", "SSE stream ")  # the package's words for a connection that broke
_READ_BYTES = 64 * 1024
_ID_SHOWN = 4096  # where a response may have the request's id: at its beginning or at its end
# The package logs complete urls and responses. Instead, the connection reports errors once, without
# secrets.
logging.getLogger("mcp.client").setLevel(logging.CRITICAL + 1)
_requested: ContextVar[httpx2.URL | None] = ContextVar("requested", default=None)
_statuses: ContextVar[list[int] | None] = ContextVar("statuses", default=None)
"""Where the transport notes the HTTP statuses of the call that runs in this context."""


class _HostOnly(logging.Filter):
    """Reduces logged urls of this file's requests to scheme, host and port.
    Other urls stay unchanged."""

    def filter(self, record: logging.LogRecord) -> bool:
        url = _requested.get()
        if url is not None and isinstance(record.args, tuple):
            host = f"{url.scheme}://{url.netloc.decode()}"
            record.args = tuple(host if arg is url else arg for arg in record.args)
        return True


logging.getLogger("httpx2").addFilter(_HostOnly())  # httpx2 logs every request at INFO
_HTTP = httpx2.Timeout(30.0, read=None)  # a call ends by its own deadline


class Wire:
    """A connected server. The methods must run in the event loop that opened the connection.

    gone: set when the server has closed its side of the connection; never set for HTTP.
    """

    def __init__(self, client: Client, gone: asyncio.Event) -> None:
        self._client = client
        self.gone = gone

    async def tools(self) -> tuple[tuple[ListedTool, ...], str]:
        """The tools that the server lists, and why the list ends early, else "". May raise any
        error; what is wrong with a later page only ends the list."""
        page = await self._client.session.list_tools()
        found = {tool.name: _listed(tool) for tool in page.tools}
        cursors = {page.next_cursor}
        while page.next_cursor is not None:
            if len(cursors) == PAGES_MAX:
                return tuple(found.values()), f"it has more than {PAGES_MAX} pages"
            params = types.PaginatedRequestParams(cursor=page.next_cursor)
            try:
                page = await self._client.session.list_tools(params=params)
            except (MCPError, ValueError) as error:
                if isinstance(error, MCPError) and _is_outage(error):
                    raise  # the list that the server gave before is better than a part of it
                return tuple(found.values()), f"its next page is not usable: {error}"
            found = {tool.name: _listed(tool) for tool in page.tools} | found
            if page.next_cursor in cursors:
                again = printable(repr(page.next_cursor))[:80]
                return tuple(found.values()), f"a page names the cursor {again} a second time"
            cursors.add(page.next_cursor)
        return tuple(found.values()), ""

    async def call(
        self, tool: str, arguments: dict[str, Any], meta: dict[str, Any]
    ) -> dict[str, Any]:
        """The response to one call, as JSON. Raises Unreachable, Rejected, or any other error.

        The response is not validated against the tool's output schema, because the tool has run in
        any case.
        """
        about: Any = meta  # more keys are allowed than the SDK's type has
        params = types.CallToolRequestParams(name=tool, arguments=arguments, _meta=about)
        request = types.CallToolRequest(params=params)
        statuses: list[int] = []
        _statuses.set(statuses)
        try:
            answer = await self._client.session.send_request(request, types.CallToolResult)
        except MCPError as error:
            raise _failure(error, statuses[-1] if statuses else None) from error
        except ValueError as error:  # including pydantic's
            # This also happens if a server asks the user something before it continues: there is no
            # user.
            raise RuntimeError("the server's answer is no result of a tool") from error
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)


def _failure(error: MCPError, status: int | None) -> Exception:
    """What an error says about a call: Unreachable or Rejected if nothing ran, else any other.
    status: of the HTTP response, None without HTTP."""
    code, text = error.code, printable(error.message, lines=True)[:1_000]
    if code == NOT_SENT:
        return Unreachable(text)
    shown = text if status in (None, 200) else f"HTTP {status}, {text}"
    if status in GONE or (status == 400 and code in NO_SESSION):
        return Rejected(f"the server no longer knows the session: {shown}", forgotten=True)
    turned_away = status in TURNED_AWAY or (status == 400 and error.message == NO_JSON)
    if turned_away or code in NOTHING_RAN:
        return Rejected(f"the server did not take the call: {shown}")
    if code == types.CONNECTION_CLOSED and text.startswith(LOST):
        return RuntimeError(f"the connection was lost during the call: {text}")
    return RuntimeError(f"the server's answer is an error ({code}): {shown}")


def _is_outage(error: MCPError) -> bool:
    """Whether an error is not the answer of a server that handled the request."""
    return error.code in (NOT_SENT, types.CONNECTION_CLOSED) or error.message == NO_JSON


def _client_info() -> types.Implementation:
    """The client name and version that are sent to a server."""
    return types.Implementation(name="foldlog", version=version("foldlog"))


@asynccontextmanager
async def connected(server: McpServer) -> AsyncIterator[Wire]:
    """A connection to a server. May raise any error, whose text may contain secrets."""
    if server.url:
        headers = {**server.headers, "accept-encoding": "identity"}
        bounded = _Transport()
        async with httpx2.AsyncClient(headers=headers, timeout=_HTTP, transport=bounded) as http:
            transport = streamable_http_client(
                server.url, http_client=http, max_sse_event_size=ANSWER_BYTES_MAX
            )
            async with Client(transport, cache=None, client_info=_client_info()) as client:
                yield Wire(client, asyncio.Event())
    else:
        process = _Stdio(server)
        opened = False
        try:
            async with Client(process, cache=None, client_info=_client_info()) as client:
                opened = True
                yield Wire(client, process.gone)
        except Exception as error:
            if opened:
                raise
            raise ConnectionError(f"{plainly(error)}{process.stderr_end()}") from None


def plainly(error: BaseException) -> str:
    """The text of an error; for an exception group, the text of the first error in it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def _listed(tool: types.Tool) -> ListedTool:
    given = tool.annotations
    hints = [] if given is None else [(hint, getattr(given, f"{hint}_hint")) for hint in HINTS]
    known = tuple((hint, value) for hint, value in hints if value is not None)
    return ListedTool(tool.name, tool.description or tool.title or "", tool.input_schema, known)


class _Transport(httpx2.AsyncHTTPTransport):
    """An HTTP transport that reports requests which were never sent, and limits the size of
    responses.

    A response with a Content-Encoding is refused, because its decoded size is unknown.
    """

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        _requested.set(request.url)  # the log line is written in this context
        try:
            response = await super().handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _not_sent(f"no connection: {error}")
        if (statuses := _statuses.get()) is not None and request.method == "POST":
            statuses.append(response.status_code)
        if response.status_code in NO_ACCESS:
            await response.aclose()
            return _not_sent(f"it answers {response.status_code}: look at the headers it is sent")
        packing = response.headers.get("content-encoding", "identity").strip().lower()
        if packing not in ("identity", ""):
            await response.aclose()
            raise httpx2.DecodingError(f"the response has the Content-Encoding "
                                       f"{printable(packing)[:40]}, which is not decoded")
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _Bounded(response.stream)  # each event has the limit of its own
        return response


def _not_sent(why: str) -> httpx2.Response:
    error = {"code": NOT_SENT, "message": why}
    return httpx2.Response(502, json={"jsonrpc": "2.0", "id": None, "error": error})


class _Bounded(httpx2.AsyncByteStream):
    """A body with a maximum size."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for piece in self._stream:
            total += len(piece)
            if total > ANSWER_BYTES_MAX:
                raise httpx2.ReadError(f"the answer is over {ANSWER_BYTES_MAX} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Stdio:
    """A server process as a transport of the mcp package, with one JSON message per line."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._stderr = bytearray()
        self.gone = asyncio.Event()
        self._running = self._run()

    async def __aenter__(self):
        return await self._running.__aenter__()

    async def __aexit__(self, *raised):
        return await self._running.__aexit__(*raised)

    def stderr_end(self) -> str:
        """The end of the server's standard error,
        where a server that fails to start prints the reason."""
        text = self._stderr.decode("utf-8", "replace").strip()
        return f"; its standard error: {text}" if text else ""

    @asynccontextmanager
    async def _run(self):
        process, open_end = await self._start()
        lifeline: int | None = open_end
        streams: Any = process  # all three are pipes
        incoming, for_session = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        from_session, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._read, streams.stdout, incoming)
                group.start_soon(self._write, streams.stdin, outgoing, incoming)
                group.start_soon(self._listen, streams.stderr)
                try:
                    yield for_session, from_session
                finally:
                    with anyio.CancelScope(shield=True):
                        await _end(process, open_end)
                        lifeline = None  # closed by now
                    group.cancel_scope.cancel()
        finally:
            if lifeline is not None:
                os.close(lifeline)
            for stream in (incoming, for_session, from_session, outgoing):
                stream.close()

    async def _start(self) -> tuple[asyncio.subprocess.Process, int]:
        life_read, life_write = os.pipe()
        try:
            async with handed_env(self._server.env) as env_end:
                process = await asyncio.create_subprocess_exec(
                    *reaper_command(life_read, env_end, self._server.command),
                    env=for_children(),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    start_new_session=True,
                    pass_fds=(life_read, env_end),
                )
        except BaseException:
            os.close(life_write)
            raise
        finally:
            os.close(life_read)
        return process, life_write

    async def _read(self, stdout: asyncio.StreamReader, incoming: Any) -> None:
        """Pass on each line as a message, and a line that is too long as an error."""
        line, length = bytearray(), 0
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with incoming:
                while data := await stdout.read(_READ_BYTES):
                    *ended, rest = data.split(b"\n")
                    for piece in ended:
                        _grow(line, piece)
                        length += len(piece)
                        await incoming.send(_message(bytes(line), length))
                        line, length = bytearray(), 0
                    _grow(line, rest)
                    length += len(rest)
        self.gone.set()
        with suppress(OSError):
            while await stdout.read(_READ_BYTES):
                pass  # a server that blocks in writing could not read the end of its input

    @staticmethod
    async def _write(stdin: asyncio.StreamWriter, outgoing: Any, incoming: Any) -> None:
        try:
            async for message in outgoing:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(text.encode() + b"\n")
                await stdin.drain()
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await incoming.aclose()  # otherwise requests would wait forever

    async def _listen(self, stderr: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await stderr.read(_READ_BYTES):
                self._stderr += data
                del self._stderr[:-STDERR_BYTES_MAX]


def _grow(line: bytearray, piece: bytes) -> None:
    line += piece[: max(0, ANSWER_BYTES_MAX - len(line))]


def _message(line: bytes, length: int) -> SessionMessage | Exception:
    """The message in a line. A line that is too long becomes an error for its request."""
    if length > ANSWER_BYTES_MAX:
        text = f"the answer has {length} bytes, at most {ANSWER_BYTES_MAX} are read"
        number = _id_in(line[:_ID_SHOWN])
        if number is None:
            return ValueError(text)
        error = types.ErrorData(code=TOO_LONG, message=text)
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=number, error=error))
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return ValueError(f"a line of {length} bytes is no message: {str(error)[:200]}")


def _id_in(head: bytes) -> int | None:
    """The id of the request that a response belongs to, if it is at the start of the response,
    before its content."""
    before, found, after = head.partition(b'"id":')
    digits = after.lstrip().split(b",", 1)[0].split(b"}", 1)[0].strip()
    return int(digits) if found and b'"result"' not in before and digits.isdigit() else None


async def _end(process: asyncio.subprocess.Process, lifeline: int) -> None:
    """Close the process's input, wait a little, then kill the process and all its descendants."""
    assert process.stdin is not None
    process.stdin.close()
    with anyio.move_on_after(CLOSE_S):
        await process.wait()
    os.close(lifeline)
    with anyio.move_on_after(CLOSE_S):
        await process.wait()
