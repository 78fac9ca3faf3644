"""Agents on real MCP servers, ended with the test."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foldlog import Agent
from foldlog.processors.mcp_server import McpServer
from foldlog.processors.outside.tools import OutsideTools
from foldlog.processors.tools.call import ToolHost, run
from foldlog.processors.tools.output_sink import Stop
from foldlog.tests.processors.tools.tool_bench import RecordingSink, claim_of, make_host

HERE = Path(__file__).parent


class World:
    """A directory that a server works in, agents with that server, and their calls."""

    def __init__(self, directory):
        self.directory = directory
        self.said = []
        self.open = []
        self.host = make_host(directory / "state")

    def stdio(self, name="small", **options):
        command = (sys.executable, str(HERE / "stdio_server.py"), str(self.directory))
        return McpServer(name=name, command=command, **options)

    def begin(self, *servers, **options):
        agent = Agent(name="a", model="m", mcp=servers, tool_schema_tokens=50_000)
        tools = OutsideTools([agent], self.directory / "lists", self.said.append, **options)
        self.open.append(tools)
        (agent,) = tools.begin()
        return agent

    def call(self, agent, name, *, stop=None, timeout_ms=None, **arguments):
        """The one outcome of a call, as it would be produced."""
        return asyncio.run(self.calling(agent, name, stop, timeout_ms, **arguments))

    async def calling(self, agent, name, stop=None, timeout_ms=None, **arguments):
        tool, args, told = agent.tool(name), json.dumps(arguments).encode(), RecordingSink()
        claim = claim_of(tool, args, timeout_ms=timeout_ms or tool.timeout_ms)
        assert isinstance(self.host, ToolHost)
        late = await run(claim, tool, args, told, stop or Stop(), self.host)
        assert late is None, "a task that was cancelled has ended"
        return told.only

    def calls(self):
        path = self.directory / "calls"
        return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []

    def close(self):
        for tools in self.open:
            tools.close()
        self.open.clear()


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def web(tmp_path):
    """Starts the HTTP server on a port, and again on the same one; killed at the end."""
    running = []
    port = free_port()

    def start():
        command = [sys.executable, str(HERE / "http_server.py"), str(tmp_path), str(port)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        running.append(process)
        until = time.monotonic() + 30
        while time.monotonic() < until and process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return process
            time.sleep(0.02)
        raise AssertionError("the server did not start")

    start.url = f"http://127.0.0.1:{port}/mcp"
    yield start
    for process in running:
        process.kill()
        process.wait()
