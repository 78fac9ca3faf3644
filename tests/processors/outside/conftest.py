"""Fixtures that give agents real MCP servers, and stop the servers when the test ends."""

import asyncio
import http.server
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from foldlog import Agent
from foldlog.processors.mcp_server import McpServer
from foldlog.processors.outside.tools import OutsideTools
from foldlog.processors.tools.call import ToolHost, run
from foldlog.processors.tools.output_sink import Stop
from foldlog.tests.kit import forked
from foldlog.tests.kit.programs import END_S
from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.tests.processors.tools.tool_bench import RecordingSink, claim_of, make_host

HERE = Path(__file__).parent
SERVER_IMPORTS = ("mcp.server.mcpserver", "mcp_types")


def text(event):
    """Returns the text of a tool result."""
    return event.content.inline.decode()


class World:
    """A working directory for a server, agents that use the server, and their tool calls.

    `logged` collects the lines that `OutsideTools` logs.
    """

    def __init__(self, directory):
        self.directory = directory
        self.logged = []
        self.open = []
        self.servers = []
        self.host = make_host(directory / "state")

    def stdio(self, name="small", **options):
        command = forked.command(SERVER_IMPORTS, HERE / "stdio_server.py", self.directory)
        return McpServer(name=name, command=command, **options)

    def begin(self, *servers, start_s=PATIENCE_S):
        agent = Agent(name="a", model="m", mcp=servers, tool_schema_tokens=50_000)
        directory = self.directory / "lists"
        tools = OutsideTools([agent], directory, self.logged.append, start_s=start_s)
        self.open.append(tools)
        (agent,) = tools.begin()
        return agent

    def call(self, agent, name, *, stop=None, timeout_ms=None, **arguments):
        """Runs one tool call and returns its only outcome event."""
        return asyncio.run(self.calling(agent, name, stop, timeout_ms, **arguments))

    async def calling(self, agent, name, stop=None, timeout_ms=None, **arguments):
        tool, args, sink = agent.tool(name), json.dumps(arguments).encode(), RecordingSink()
        claim = claim_of(tool, args, timeout_ms=timeout_ms or tool.timeout_ms)
        assert isinstance(self.host, ToolHost)
        late = await run(claim, tool, args, sink, stop or Stop(), self.host)
        assert late is None, "the cancelled task has ended"
        return sink.only

    def serve(self, handler, **attributes):
        """Starts an HTTP server with this handler class on loopback, and returns its address."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.servers.append(server)
        for name, value in attributes.items():
            setattr(server, name, value)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server, f"127.0.0.1:{server.server_port}"

    def calls(self):
        path = self.directory / "calls"
        return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []

    def close(self):
        for tools in self.open:
            tools.close()
        self.open.clear()
        for server in self.servers:
            server.shutdown()
            server.server_close()
        self.servers.clear()


class Handler(http.server.BaseHTTPRequestHandler):
    """Helps to respond to POST requests, and writes no log."""

    def body(self):
        return self.rfile.read(int(self.headers["content-length"]))

    def respond(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def world(tmp_path):
    created = World(tmp_path)
    yield created
    created.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def web(tmp_path):
    """Starts the MCP server over HTTP, with the same port for every start. Kills the servers after
    the test."""
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
        process.wait(END_S)
