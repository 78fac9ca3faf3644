"""An MCP server over streamable HTTP: away, back again, killed in a call, saying too much."""

import asyncio
import gzip
import http.server
import logging
import threading
import urllib.request

import httpx2
import pytest

from foldlog import Agent
from foldlog.processors.mcp_server import McpServer
from foldlog.processors.outside.connection import Connection
from foldlog.processors.outside.tools import OutsideTools
from foldlog.schemas.events import ToolFailedUncertain


def text(event):
    return event.content.inline.decode()


def test_a_server_over_http_that_goes_and_comes_back(world, web):
    process = web()
    agent = world.begin(McpServer(name="web", url=web.url, headers={"x-key": "hush-hush"}))
    assert sorted(t.name for t in agent.tools) == ["web__charge", "web__huge", "web__slow"]
    assert text(world.call(agent, "web__charge", cents=5)) == "charged 5"
    process.kill()
    process.wait()
    (world.directory / "charged").unlink()
    # Nothing could be sent, and that is known: no doubt, although it must not run twice.
    event = world.call(agent, "web__charge", cents=6)
    assert event.outcome == "error" and "was not run" in text(event), event
    assert not (world.directory / "charged").exists()
    web()
    for _ in range(2):  # the first may still speak of a session that the new process does not know
        event = world.call(agent, "web__charge", cents=7)
        if event.outcome == "ok":
            break
    assert text(event) == "charged 7"
    assert not any("hush" in line for line in world.said)


@pytest.mark.parametrize("effect", ["once", "idempotent"])
def test_a_server_killed_in_a_call_leaves_doubt_only_where_it_matters(world, web, effect):
    process = web()
    agent = world.begin(McpServer(name="web", url=web.url, effects={"slow": effect}))

    async def main():
        calling = asyncio.ensure_future(world.calling(agent, "web__slow", seconds=60))
        while not (world.directory / "slow").exists():
            await asyncio.sleep(0.01)
        process.kill()
        return await asyncio.wait_for(calling, 20)

    event = asyncio.run(main())
    if effect == "once":
        assert isinstance(event, ToolFailedUncertain), event
    else:
        assert event.outcome == "error"


def test_an_answer_that_is_too_long_is_not_read(world, web):
    web()
    agent = world.begin(McpServer(name="web", url=web.url, effects={"huge": "pure"}))
    assert world.call(agent, "web__huge", megabytes=1).outcome == "ok"
    event = world.call(agent, "web__huge", megabytes=20)
    assert event.outcome == "error"
    assert text(world.call(agent, "web__charge", cents=1)) == "charged 1"


class Packed(http.server.BaseHTTPRequestHandler):
    """Answers everything with little that becomes much, whatever it was asked for."""

    def do_POST(self):
        self.server.asked.append(self.headers["accept-encoding"])
        self.rfile.read(int(self.headers["content-length"]))
        body = gzip.compress(b'{"jsonrpc":"2.0","id":0,"result":{"x":"' + bytes(10**6) + b'"}}')
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-encoding", "gzip")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_bad_input_an_answer_that_is_packed_is_not_unpacked(world):
    """Its bytes are bounded, and half a megabyte of them may become gigabytes."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Packed) as server:
        server.asked = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            world.begin(McpServer(name="web", url=f"http://127.0.0.1:{server.server_port}/mcp"))
        finally:
            server.shutdown()
    assert any("down: the answer is packed as gzip" in line for line in world.said), world.said
    assert set(server.asked) == {"identity"}


class Guard(http.server.BaseHTTPRequestHandler):
    """Stands before a server, and lets nobody in once its key has expired."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.server.expired:
            self.send_error(401)
            return
        asked = urllib.request.Request(self.server.behind, body, dict(self.headers))
        with urllib.request.urlopen(asked, timeout=20) as answer:
            said = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "content-length", "date", "server"):
                    self.send_header(name, value)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def do_GET(self):
        self.send_error(405)

    do_DELETE = do_GET

    def log_message(self, *_):
        pass


def test_a_key_that_expired_leaves_no_doubt_for_nothing_ran(world, web):
    web()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Guard) as server:
        server.expired, server.behind = False, web.url
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/mcp"
            agent = world.begin(McpServer(name="web", url=url))
            assert text(world.call(agent, "web__charge", cents=5)) == "charged 5"
            server.expired = True
            (world.directory / "charged").unlink()
            for _ in range(2):  # on the connection that there was, and on a new one
                event = world.call(agent, "web__charge", cents=6)
                assert event.outcome == "error" and "answers 401" in text(event), event
            assert not (world.directory / "charged").exists()
            server.expired = False
            assert text(world.call(agent, "web__charge", cents=7)) == "charged 7"
        finally:
            world.close()
            server.shutdown()


class Echo(http.server.BaseHTTPRequestHandler):
    """Says what it was asked for, and sends whoever asks elsewhere."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(self.server.status)
        body = f"nothing is at {self.path}".encode()
        self.send_header("location", f"https://else.example{self.path}")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize(
    ("status", "said"), [(307, "Redirect to https://else.example not followed"), (200, "parse")]
)
def test_the_keys_in_a_servers_url_are_never_said(world, caplog, status, said):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        server.status = status
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_port}"
        url = f"http://ana:hush-1@{host}/hush-in-path/mcp?key=hush%2Bquery&v=2"
        outside = McpServer(name="web", url=url)
        try:
            world.begin(outside)
        finally:
            server.shutdown()
    (state,) = world.open[0].status().values()
    assert said in state and "hush" not in state
    assert "hush" not in "".join(world.said) + caplog.text + repr(outside)


class Moved(Echo):
    """Has moved within its host, and fails there."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        moved = self.path.startswith("/hush-moved")
        self.send_response(500 if moved else 307)
        self.send_header("location", f"/hush-moved{self.path}")
        self.send_header("content-length", "0")
        self.end_headers()


def test_requests_are_logged_without_the_keys_in_a_servers_url_and_others_as_they_are(
    world, caplog
):
    caplog.set_level(logging.INFO)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Moved) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"127.0.0.1:{server.server_port}"
        try:
            world.begin(McpServer(name="web", url=f"http://hush-1@{host}/hush-2/mcp?key=hush-3"))
            httpx2.post(f"http://{host}/others?key=shown", content=b"")
        finally:
            world.close()
            server.shutdown()
    logged = [each.getMessage() for each in caplog.records if each.name == "httpx2"]
    *ours, others = [line.partition(' "')[0] for line in logged]
    assert others == f"HTTP Request: POST http://{host}/others?key=shown"
    assert len(ours) > 1 and set(ours) == {f"HTTP Request: POST http://{host}"}
    assert any(" 307 " in line for line in logged) and any(" 500 " in line for line in logged)
    assert "hush" not in caplog.text


def test_of_a_url_in_an_error_scheme_host_and_port_are_said():
    outside = McpServer(name="web", url="https://ana:hush@mcp.example:8443/hush?k=hush")
    said = Connection(outside, print)._plain(ValueError(f"404 for url '{outside.url}', sorry"))
    assert said == "404 for url 'https://mcp.example:8443', sorry"
    command, told = McpServer(name="small", command=("x",)), ValueError("see http://docs.example/a")
    assert Connection(command, print)._plain(told) == "see http://docs.example/a"


def test_a_key_before_the_host_of_a_url_is_cut_out_of_what_the_server_says():
    outside = McpServer(name="web", url="https://hush%2Bkey@mcp.example/mcp")
    told = ValueError("nobody is called hush+key, nor hush%2Bkey")
    assert Connection(outside, print)._plain(told) == "nobody is called ***, nor ***"


def test_servers_of_one_name_are_each_said(tmp_path):
    """Of two agents: the state of one hid that of the other."""
    servers = [McpServer(name="web", url=f"http://127.0.0.1:1/{n}") for n in range(2)]
    agents = [Agent(name=f"a{n}", model="m", mcp=(servers[n],)) for n in range(2)]
    tools = OutsideTools(agents, tmp_path, lambda text: None)
    tools.begin()
    try:
        states = tools.status()
    finally:
        tools.close()
    assert list(states) == ["web", "web (2)"] and all("down" in s for s in states.values())
