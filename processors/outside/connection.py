"""The connection to one server, opened at the first use and reopened after it was lost.

Calls that were not sent, or that the server did not accept, are distinguished from calls whose
outcome is unknown. Everything runs in one event loop. The connection is independent of agents,
tools and the log, and imports the `mcp` package only when a server is needed.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from ...log.errors import Parked
from ..mcp_server import McpServer
from .call_failures import Rejected, Unreachable
from .definitions import ListedTool, definition_hash, definitions_of, printable

if TYPE_CHECKING:
    from .protocol import Wire

CONNECT_S = 20.0  # from a server's start to its list of tools; some servers install packages first
CLOSE_S = 5.0  # longer than the protocol's shutdown
WHY_CHARS_MAX = 1_000
# Only scheme, host and port of a url are reported, because the other parts may contain keys.
_URL = re.compile(r"(https?://)(?:[^\s/?#'\"]*@)?([^\s/?#'\"]*)[^\s'\"]*", re.IGNORECASE)
# Pydantic's quote of a response that it cannot parse.
_QUOTED = re.compile(r", input_value=.*?, input_type=\w+(?=\])", re.DOTALL)


class State(StrEnum):
    """The state of a connection.

    ENDED: the server closed it; the next call reconnects.
    NOT_AGREED: it is up, but the server lists other tools than the agents have.
    """

    NEW = "new"
    UP = "up"
    NOT_AGREED = "not_agreed"
    DOWN = "down"
    ENDED = "ended"
    CLOSED = "closed"


WORDS = {
    State.NEW: "not connected yet",
    State.UP: "up, {tools} tools",
    State.NOT_AGREED: "up, {tools} tools, not the ones that the agents have; they take effect at "
    "the worker's next start",
    State.DOWN: "down: {why}",
    State.ENDED: "down: it closed the connection",
    State.CLOSED: "closed",
}


class Condition(NamedTuple):
    """The state of a connection and its values. `str()` puts it in words."""

    state: State
    why: str = ""
    tools: str = ""

    def __str__(self) -> str:
        return in_words(self)


def in_words(condition: Condition) -> str:
    """The state of a connection, for people."""
    return WORDS[condition.state].format(why=condition.why, tools=condition.tools)


class OutcomeUnknown(Parked):
    """The call was sent, and its outcome is unknown."""


class OpenConnection:
    """An open connection, the tools that the server listed on it, and the calls in progress."""

    def __init__(self, wire: "Wire", listed: tuple[ListedTool, ...]) -> None:
        self.wire, self.listed = wire, listed
        self.hashes = {each.name: definition_hash(each) for each in listed}
        self.leave, self.closed = asyncio.Event(), asyncio.Event()
        self.calls = 0
        self.retired = False

    def retire(self) -> None:
        """Accept no new calls, and close the connection when the calls in progress have ended."""
        self.retired = True
        if self.calls == 0:
            self.leave.set()


class Connection:
    """The connection to one server. `condition`: the last known state."""

    def __init__(self, server: McpServer, say: Callable[[str], None]) -> None:
        self.server = server
        self.condition = Condition(State.NEW)
        self._say = say
        self._task: asyncio.Task | None = None
        self._opened: asyncio.Future[OpenConnection] | None = None
        self._known: dict[str, str] | None = None
        self._agreed: dict[str, str] | None = None  # the hashes of the agents' definitions, by tool
        self._remember: Callable[[tuple[ListedTool, ...]], None] = lambda listed: None
        self._noted = False

    def agree(
        self, listed: Iterable[ListedTool], remember: Callable[[tuple[ListedTool, ...]], None]
    ) -> None:
        """Use `listed` as the server's tools for now: the server has not responded, or could not be
        reached. If the server later lists other tools, its list is passed to `remember`, which
        stores it for the next start.
        """
        self._known = self._agreed = {each.name: definition_hash(each) for each in listed}
        self._remember = remember

    def not_in_time(self, seconds: float) -> None:
        """Record that the worker's start no longer waits for the server. Once the server responds,
        it becomes `up`.
        """
        self.condition = _no_answer(seconds)

    async def listed(self) -> tuple[ListedTool, ...]:
        """The server's tools, as listed when the connection was opened. Raises Unreachable if there
        is no connection."""
        return (await self._live()).listed

    async def call(
        self, tool: str, definition: str, arguments: dict[str, Any], meta: dict[str, Any]
    ) -> dict[str, Any]:
        """Call a tool and return the server's response. definition: the sha256 of the agent's
        definition of the tool.

        If the call fails, raises Unreachable or Rejected if nothing ran, else OutcomeUnknown.
        """
        live = await self._live()
        now = live.hashes.get(tool)
        if now != definition:
            what = "has no such tool any more" if now is None else "has changed this tool"
            raise Rejected(f"the server {what}; the worker takes that up when it starts anew")
        live.calls += 1
        call = asyncio.ensure_future(live.wire.call(tool, arguments, meta))
        closed = asyncio.ensure_future(live.closed.wait())
        try:
            await asyncio.wait({call, closed}, return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
            raise OutcomeUnknown("the connection was lost while the call was under way")
        except Unreachable as error:
            live.retire()
            raise Unreachable(self._plain(error)) from None
        except Rejected as error:
            if error.forgotten:
                live.retire()
            raise Rejected(self._plain(error)) from None
        except Exception as error:
            raise OutcomeUnknown(self._plain(error)) from None
        finally:
            call.cancel()
            closed.cancel()
            live.calls -= 1
            if live.retired:
                live.retire()

    async def close(self) -> None:
        """End the connection, and the server's process."""
        if self._task is None or self._opened is None:
            return
        if self._opened.done() and self._opened.exception() is None:
            self._opened.result().leave.set()
        else:
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=CLOSE_S)

    def _is_open(self) -> bool:
        """Whether a connection that accepts calls is open or being opened."""
        if self._task is None or self._task.done() or self._opened is None:
            return False
        if not self._opened.done():
            return True
        live = self._opened.result()
        return not (live.retired or live.leave.is_set() or live.wire.gone.is_set())

    async def _live(self) -> OpenConnection:
        if not self._is_open():
            self._opened = asyncio.get_running_loop().create_future()
            self._opened.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._task = asyncio.create_task(self._serve(self._opened))
        assert self._opened is not None and self._task is not None
        task, opened = self._task, self._opened
        try:
            return await asyncio.wait_for(asyncio.shield(opened), CONNECT_S)
        except TimeoutError:
            task.cancel()
            raise Unreachable(
                f"the server {self.server.name} did not answer within {CONNECT_S:g} s"
            ) from None

    async def _serve(self, opened: "asyncio.Future[OpenConnection]") -> None:
        """Open, serve and close the connection, all of which must happen in one task."""
        live = None
        try:
            from . import protocol

            async with protocol.connected(self.server) as wire:
                listed, ends_early = await wire.tools()
                if ends_early and not self._noted:
                    self._noted = True
                    self._say(
                        f"MCP server {self.server.name}: its list of tools ends early, the "
                        f"{len(listed)} tools so far are used: {self._clean(ends_early)}"
                    )
                live = self._now_open(OpenConnection(wire, listed))
                opened.set_result(live)
                ends = [asyncio.ensure_future(e.wait()) for e in (live.leave, wire.gone)]
                try:
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for end in ends:
                        end.cancel()
                self.condition = Condition(State.ENDED if wire.gone.is_set() else State.CLOSED)
        except (Exception, asyncio.CancelledError) as error:
            given_up = isinstance(error, asyncio.CancelledError) and not opened.done()
            why = Condition(State.DOWN, why=self._plain(error))
            self.condition = _no_answer(CONNECT_S) if given_up else why
            if not opened.done():
                text = f"the server {self.server.name} is {self.condition}"
                opened.set_exception(Unreachable(text))
        finally:
            if live is not None:
                live.closed.set()

    def _now_open(self, live: OpenConnection) -> OpenConnection:
        if self._agreed is None:
            self._agreed = live.hashes
        before, self._known = self._known, live.hashes
        state = State.UP if live.hashes == self._agreed else State.NOT_AGREED
        # The callback below may cause a query of the state, so set the state completely before it.
        listed, taken = len(live.listed), len(definitions_of(self.server, live.listed).tools)
        count = f"{taken}" if taken == listed else f"{taken} of its {listed}"
        self.condition = Condition(state, tools=count)
        if before is not None and before != live.hashes:
            differs = sorted(dict(before.items() ^ live.hashes.items()))
            names = printable(", ".join(differs))[:200]
            self._remember(live.listed)
            self._say(
                f"MCP server {self.server.name} lists other tools than before ({names}). They "
                "take effect after the worker's next start; until then changed tools are not run"
            )
        return live

    def _plain(self, error: BaseException) -> str:
        """The text of an error, see `_clean`."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        message = getattr(error, "message", None)  # of a protocol error, whose args are numbers
        text = message if isinstance(message, str) else " ".join(str(arg) for arg in error.args)
        return self._clean(text or type(error).__name__)

    def _clean(self, text: str) -> str:
        """A text of the server, bounded and without secrets."""
        if self.server.url:  # the target of a redirect may contain the same key
            text = _URL.sub(r"\1\2", _QUOTED.sub("", text))
        for secret in self.server.secrets():
            text = text.replace(secret, "***")
        return printable(text, lines=True)[:WHY_CHARS_MAX]


def _no_answer(seconds: float) -> Condition:
    return Condition(State.DOWN, why=f"no answer within {seconds:g} s")
