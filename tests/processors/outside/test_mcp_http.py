"""MCP servers over streamable HTTP: they go down, restart, die during a call, or send too much."""

import asyncio
import gzip
import logging
import urllib.request

import httpx2
import pytest

from foldlog import Agent
from foldlog.processors.mcp_server import McpServer
from foldlog.processors.outside.connection import Connection
from foldlog.processors.outside.tools import OutsideTools
from foldlog.schemas.events import ToolFailedUncertain
from foldlog.tests.kit.programs import END_S
from foldlog.tests.kit.waiting import until_async
from foldlog.tests.processors.outside.conftest import Handler, text


def test_a_call_while_the_server_is_down_is_not_run_and_works_after_a_restart(world, web):
    process = web()
    agent = world.begin(McpServer(name="web", url=web.url, headers={"x-key": "hush-hush"}))
    assert sorted(t.name for t in agent.tools) == ["web__charge", "web__huge", "web__slow"]
    assert text(world.call(agent, "web__charge", cents=5)) == "charged 5"
    process.kill()
    process.wait(END_S)
    (world.directory / "charged").unlink()
    # The request was provably never sent, so the call is not in doubt although its effect is once.
    event = world.call(agent, "web__charge", cents=6)
    assert event.outcome == "error" and "was not run" in text(event), event
    assert not (world.directory / "charged").exists()
    web()
    for _ in range(2):  # the first call may use a session that the new process does not know
        event = world.call(agent, "web__charge", cents=7)
        if event.outcome == "ok":
            break
    assert text(event) == "charged 7"
    assert not any("hush" in line for line in world.logged)


@pytest.mark.parametrize("effect", ["once", "idempotent"])
def test_a_server_killed_during_a_call_leaves_only_a_once_tool_in_doubt(world, web, effect):
    process = web()
    agent = world.begin(McpServer(name="web", url=web.url, effects={"slow": effect}))

    async def main():
        calling = asyncio.ensure_future(world.calling(agent, "web__slow", seconds=60))
        await until_async("the call begins", (world.directory / "slow").exists)
        process.kill()
        return await asyncio.wait_for(calling, 20)

    event = asyncio.run(main())
    if effect == "once":
        assert isinstance(event, ToolFailedUncertain), event
    else:
        assert event.outcome == "error"


def test_a_response_that_is_too_long_is_not_read(world, web):
    web()
    agent = world.begin(McpServer(name="web", url=web.url, effects={"huge": "pure"}))
    assert world.call(agent, "web__huge", megabytes=1).outcome == "ok"
    event = world.call(agent, "web__huge", megabytes=20)
    assert event.outcome == "error"
    assert text(world.call(agent, "web__charge", cents=1)) == "charged 1"


class Packed(Handler):
    """Responds to every request with a small gzip body that decodes to a large one."""

    def do_POST(self):
        self.server.encodings.append(self.headers["accept-encoding"])
        self.body()
        body = gzip.compress(b'{"jsonrpc":"2.0","id":0,"result":{"x":"' + bytes(10**6) + b'"}}')
        self.respond(200, body, content_type="application/json", content_encoding="gzip")


def test_bad_input_a_compressed_response_is_rejected(world):
    """The limit applies to received bytes only, and half a megabyte may decode to gigabytes."""
    server, address = world.serve(Packed, encodings=[])
    world.begin(McpServer(name="web", url=f"http://{address}/mcp"))
    refused = "down: the response has the Content-Encoding gzip, which is not decoded"
    assert any(refused in line for line in world.logged), world.logged
    assert set(server.encodings) == {"identity"}


class Guard(Handler):
    """A proxy in front of a server. It responds 401 once its key has expired."""

    def do_POST(self):
        body = self.body()
        if self.server.expired:
            self.send_error(401)
            return
        forwarded = urllib.request.Request(self.server.behind, body, dict(self.headers))
        with urllib.request.urlopen(forwarded, timeout=90) as answer:
            own = ("transfer-encoding", "content-length", "date", "server")
            headers = {k: v for k, v in answer.getheaders() if k.lower() not in own}
            self.respond(answer.status, answer.read(), **headers)

    def do_GET(self):
        self.send_error(405)

    do_DELETE = do_GET


def test_a_call_rejected_with_401_is_an_error_and_not_in_doubt(world, web):
    web()
    server, address = world.serve(Guard, expired=False, behind=web.url)
    agent = world.begin(McpServer(name="web", url=f"http://{address}/mcp"))
    assert text(world.call(agent, "web__charge", cents=5)) == "charged 5"
    server.expired = True
    (world.directory / "charged").unlink()
    for _ in range(2):  # on the open connection, then on a new one
        event = world.call(agent, "web__charge", cents=6)
        assert event.outcome == "error" and "answers 401" in text(event), event
    assert not (world.directory / "charged").exists()
    server.expired = False
    assert text(world.call(agent, "web__charge", cents=7)) == "charged 7"


class Echo(Handler):
    """Repeats the request's path in the body and in a redirect to another host."""

    def do_POST(self):
        self.body()
        elsewhere = {"location": f"https://else.example{self.path}"}
        body = f"nothing is at {self.path}".encode()
        self.respond(self.server.status, body, content_type="application/json", **elsewhere)


@pytest.mark.parametrize(
    ("status", "message"), [(307, "Redirect to https://else.example not followed"), (200, "parse")]
)
def test_secrets_in_a_server_url_are_never_logged(world, caplog, status, message):
    _, address = world.serve(Echo, status=status)
    url = f"http://ana:hush-1@{address}/hush-in-path/mcp?key=hush%2Bquery&v=2"
    outside = McpServer(name="web", url=url)
    world.begin(outside)
    (state,) = world.open[0].status().values()
    assert message in str(state) and "hush" not in str(state)
    assert "hush" not in "".join(world.logged) + caplog.text + repr(outside)


class Moved(Handler):
    """Redirects to another path of its own host, and responds 500 there."""

    def do_POST(self):
        self.body()
        moved = self.path.startswith("/hush-moved")
        self.respond(500 if moved else 307, location=f"/hush-moved{self.path}")


def test_only_requests_to_mcp_servers_are_logged_without_path_and_query(world, caplog):
    caplog.set_level(logging.INFO)
    _, host = world.serve(Moved)
    world.begin(McpServer(name="web", url=f"http://hush-1@{host}/hush-2/mcp?key=hush-3"))
    httpx2.post(f"http://{host}/others?key=shown", content=b"")
    world.close()
    logged = [each.getMessage() for each in caplog.records if each.name == "httpx2"]
    *mcp, other = [line.partition(' "')[0] for line in logged]
    assert other == f"HTTP Request: POST http://{host}/others?key=shown"
    assert len(mcp) > 1 and set(mcp) == {f"HTTP Request: POST http://{host}"}
    assert any(" 307 " in line for line in logged) and any(" 500 " in line for line in logged)
    assert "hush" not in caplog.text


@pytest.mark.parametrize(
    ("server", "message", "shown"),
    [
        (
            {"url": "https://ana:hush@mcp.example:8443/hush?k=hush"},
            "404 for url 'https://ana:hush@mcp.example:8443/hush?k=hush', sorry",
            "404 for url 'https://mcp.example:8443', sorry",
        ),
        ({"command": ("x",)}, "see http://docs.example/a", "see http://docs.example/a"),
        (
            {"url": "https://hush%2Bkey@mcp.example/mcp"},
            "no user hush+key or hush%2Bkey",
            "no user *** or ***",
        ),
    ],
    ids=["path and query", "another URL", "user part"],
)
def test_an_error_shows_only_scheme_host_and_port_of_the_server_url(server, message, shown):
    connection = Connection(McpServer(name="web", **server), print)
    assert connection._plain(ValueError(message)) == shown


def test_status_lists_two_servers_of_the_same_name(tmp_path):
    """Two agents may have different servers of the same name, and one must not hide the other."""
    servers = [McpServer(name="web", url=f"http://127.0.0.1:1/{n}") for n in range(2)]
    agents = [Agent(name=f"a{n}", model="m", mcp=(servers[n],)) for n in range(2)]
    tools = OutsideTools(agents, tmp_path, lambda text: None)
    tools.begin()
    try:
        states = tools.status()
    finally:
        tools.close()
    assert list(states) == ["web", "web (2)"] and all("down" in str(s) for s in states.values())
