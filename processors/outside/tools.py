"""The third-party tools of a worker, from its start to its end.

`begin` connects to the servers of all agents at once and reads each list of tools once. The agents
that it returns have these tools for the life of the process. A server that does not answer blocks
nothing: the worker uses the list that the server gave to an earlier process, so that the prefix of
the requests stays the same. Calls of such a server's tools fail with a clear message until the
server is back.
"""

import asyncio
import json
import os
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from ...log.extras import demand
from ..agent import Agent
from ..mcp_server import McpServer
from ..tools.tool import ALWAYS, RARE, Tool, ToolContext, ToolFailed
from .arguments import OutsideArguments
from .call_failures import Rejected, Unreachable
from .connection import CLOSE_S, Condition, Connection
from .definitions import Definition, Definitions, ListedTool, definitions_of
from .results import text_of, value_of

START_S = 8.0  # for all servers together: a dead server must not delay a worker's restart
REMEMBERED_BYTES_MAX = 8 * 1024 * 1024


class Call(Protocol):
    """Calls a tool of a server. Raises Unreachable or Rejected if nothing ran."""

    def __call__(
        self, definition: Definition, arguments: dict[str, Any], meta: dict[str, Any]
    ) -> Awaitable[dict[str, Any]]: ...


def with_outside_tools(
    agent: Agent, found: Mapping[str, Definitions], calls: Mapping[str, Call]
) -> tuple[Agent, list[str]]:
    """The agent with its own tools followed by the tools of its servers,
    and notes for the operator.

    found, calls: the definitions and the call functions by server name. Pure: the same definitions
    give the same agent.
    """
    tools, notes = list(agent.tools), []
    names = {tool.name for tool in tools}
    for server in sorted(agent.mcp, key=lambda each: each.name):
        definitions = found.get(server.name, Definitions((), ()))
        notes += [f"MCP server {server.name}: {note}" for note in definitions.notes]
        for definition in definitions.tools:
            if definition.name in names:
                notes.append(f"MCP server {server.name}: {definition.name} is left out: the agent "
                             f"{agent.name} has a tool of that name")
                continue
            names.add(definition.name)
            tools.append(tool_of(server, definition, calls[server.name]))
    return replace(agent, tools=tuple(tools)), notes


def tool_of(server: McpServer, definition: Definition, call: Call) -> Tool:
    """A server's tool as a Tool of foldlog."""
    theirs = dict(definition.names)

    async def run(ctx: ToolContext, /, **arguments: Any) -> Any:
        meta = {"foldlog/call": ctx.idempotency_key, "foldlog/attempt": ctx.attempt}
        given = {theirs.get(name, name): value for name, value in arguments.items()}
        try:
            answer = await call(definition, given, meta)
        except (Unreachable, Rejected) as error:
            raise ToolFailed(f"{definition.name} was not run: {error}") from None
        if answer.get("isError"):
            raise ToolFailed(text_of(answer))
        return value_of(answer)

    return Tool(
        name=definition.name,
        description=definition.description,
        arguments=OutsideArguments(definition.schema),
        function=run,
        context="ctx",
        effect=definition.effect,
        approval=definition.approval,
        timeout_ms=int(server.timeout_s * 1000),
        tier=RARE if server.is_rare(definition.tool) else ALWAYS,
    )


class OutsideTools:
    """The MCP servers of a worker's agents. The worker calls `begin` once and `close` once.

    directory: where lists of tools are stored for later processes.
    """

    def __init__(
        self,
        agents: Iterable[Agent],
        directory: Path,
        say: Callable[[str], None],
        *,
        start_s: float = START_S,
    ) -> None:
        self._agents = tuple(agents)
        self._directory, self._say, self._start_s = directory, say, start_s
        self._connections: list[Connection] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> tuple[Agent, ...]:
        """Connect to the MCP servers, read their lists of tools,
        and return the agents with these tools added. Raises ExtraMissing."""
        servers: list[McpServer] = []
        for agent in self._agents:
            servers += [server for server in agent.mcp if server not in servers]
        if not servers:
            return self._agents
        demand("an agent with MCP servers", "mcp")
        self._directory.mkdir(parents=True, exist_ok=True)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mcp", daemon=True)
        self._thread.start()
        listed = asyncio.run_coroutine_threadsafe(self._list_all(servers), self._loop).result()
        return tuple(self._equipped(agent, listed) for agent in self._agents)

    def status(self) -> dict[str, Condition]:
        """The state of each server by name. Two agents may have servers of the same name; the
        second then appears as `NAME (2)`."""
        states: dict[str, Condition] = {}
        times: Counter[str] = Counter()
        for each in self._connections:
            name = each.server.name
            times[name] += 1
            shown = f"{name} ({times[name]})" if times[name] > 1 else name
            states[shown] = each.condition
        return states

    def close(self) -> None:
        """End the connections and the processes of the servers."""
        if self._loop is None or self._thread is None:
            return

        async def close() -> None:
            await asyncio.gather(*(each.close() for each in self._connections))

        asyncio.run_coroutine_threadsafe(close(), self._loop).result(2 * CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)
        self._loop.close()
        self._loop = None

    def _equipped(self, agent: Agent, listed: list[tuple[McpServer, Definitions]]) -> Agent:
        found = {server.name: tools for server, tools in listed if server in agent.mcp}
        calls = {server.name: self._call_of(server) for server in agent.mcp}
        equipped, notes = with_outside_tools(agent, found, calls)
        for note in notes:
            self._say(note)
        return equipped

    async def _list_all(self, servers: list[McpServer]) -> list[tuple[McpServer, Definitions]]:
        self._connections = [Connection(server, self._say) for server in servers]
        asking = [asyncio.ensure_future(each.listed()) for each in self._connections]
        await asyncio.wait(asking, timeout=self._start_s)
        found = []
        for each, answer in zip(self._connections, asking, strict=True):
            tools = self._tools(each, answer)
            none = Definitions((), ())  # the server is down: do not report its rules as misspelt
            found.append((each.server, definitions_of(each.server, tools) if tools else none))
        return found

    def _tools(self, each: Connection, answer: asyncio.Future) -> Iterable[ListedTool]:
        """The server's list of tools, or the list that it gave to an earlier process."""
        path = self._directory / f"{each.server.name}-{_place(each.server)}.json"
        name = each.server.name
        if answer.done() and answer.exception() is None:
            _remember(path, answer.result())
            return answer.result()
        if not answer.done():
            answer.cancel()  # the connection continues, and may be open at the first call
            each.not_in_time(self._start_s)
        known = _remembered(path)
        each.agree(known, partial(_remember, path))
        what = f"the {len(known)} tools it listed before are kept" if known else "it has no tools"
        self._say(f"MCP server {name} is {each.condition}; {what}, and calls fail until it is back")
        return known

    def _call_of(self, server: McpServer) -> Call:
        connection = next(each for each in self._connections if each.server == server)
        loop = self._loop
        assert loop is not None

        async def call(
            definition: Definition, arguments: dict[str, Any], meta: dict[str, Any]
        ) -> dict[str, Any]:
            work = connection.call(definition.tool, definition.sha256, arguments, meta)
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

        return call


def _place(server: McpServer) -> str:
    """An identifier of a server's address, without secrets."""
    return sha256(json.dumps([server.command, server.url]).encode()).hexdigest()[:12]


def _remember(path: Path, tools: Iterable[ListedTool]) -> None:
    data = json.dumps([list(each) for each in tools]).encode()
    if len(data) <= REMEMBERED_BYTES_MAX:
        fresh = path.with_suffix(".new")
        fresh.write_bytes(data)
        os.replace(fresh, path)


def _remembered(path: Path) -> tuple[ListedTool, ...]:
    """The stored list of tools; empty if it cannot be read."""
    try:
        rows = json.loads(path.read_bytes())
        return tuple(
            ListedTool(name, description, schema, tuple((str(k), bool(v)) for k, v in hints))
            for name, description, schema, hints in rows
        )
    except (OSError, ValueError, TypeError):
        return ()
