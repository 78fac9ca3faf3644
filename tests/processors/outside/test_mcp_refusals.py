"""What servers and proxies answer to a call over HTTP: it was refused, or it may have been run."""

import json
import sys

import pytest

from foldlog.processors.mcp_server import McpServer
from foldlog.schemas.events import ToolFailedUncertain
from foldlog.tests.processors.outside.conftest import Handler, text

JSON = "application/json"


class Server(Handler):
    """A server of protocol 2025-06-18 with sessions. `server.answers`: what comes instead of the
    next calls, as (status, body, headers)."""

    def do_GET(self):
        self.send_error(405)

    do_DELETE = do_GET

    def do_POST(self):
        message, server = json.loads(self.body()), self.server
        server.methods.append(message["method"])
        if message["method"] == "tools/call" and server.answers:
            status, body, headers = server.answers.pop(0)
            if headers.get("content_type") != JSON:
                return self.respond(status, body, **headers)
            answer = {"jsonrpc": "2.0", "id": message["id"], **body}
            return self.respond(status, json.dumps(answer).encode(), **headers)
        if "id" not in message:
            return self.respond(202)
        answers = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                           "serverInfo": {"name": "s", "version": "1"}},
            "tools/list": {"tools": [{"name": "charge", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "charged"}]},
        }
        result = answers.get(message["method"])
        more = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
        answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], **more}).encode()
        return self.respond(200, answer, content_type=JSON, mcp_session_id="a")


def error(status, code, message, **more):
    """A JSON-RPC error with an HTTP status; `more` may replace its id."""
    return status, {"error": {"code": code, "message": message}, **more}, {"content_type": JSON}


def plain(status, body=b"no", **headers):
    """An answer of a proxy, which knows no JSON-RPC."""
    return status, body, {"content_type": "text/plain", **headers}


@pytest.fixture
def called(world):
    """A function that calls a tool with this answer, then once more. Returns both outcomes and the
    methods that the server was asked between them."""

    def called(answer):
        server, address = world.serve(Server, answers=[], methods=[])
        agent = world.begin(McpServer(name="web", url=f"http://{address}/mcp"))
        server.answers.append(answer)
        first = world.call(agent, "web__charge")
        server.methods.clear()
        return first, world.call(agent, "web__charge"), list(server.methods)

    return called


@pytest.mark.parametrize(
    "answer",
    [
        error(404, -32600, "Session not found", id=None),
        error(404, -32001, "Session not found", id=None),
        error(404, -32000, "no such session"),
        error(400, -32000, "Bad Request: No valid session ID provided", id=None),
        error(400, -32600, "Bad Request: Missing session ID"),
        error(400, -32001, "Unknown session"),
        plain(404),
        plain(410),
    ],
    ids=lambda answer: f"{answer[0]} {answer[1]}",
)
def test_a_call_in_a_forgotten_session_is_not_run_and_the_next_initialises_anew(called, answer):
    first, second, methods = called(answer)
    assert first.outcome == "error" and "was not run" in text(first), first
    assert text(second) == "charged" and "initialize" in methods


@pytest.mark.parametrize(
    "answer",
    [
        *map(plain, (400, 405, 406, 408, 411, 413, 414, 415, 417, 421, 426, 428, 429, 431, 451)),
        plain(307, location="http://127.0.0.2:9/elsewhere"),
        plain(302, location="https://login.example/"),
        plain(308),
        error(200, -32602, "invalid params"),
        error(400, -32602, "invalid params"),
        error(429, -32000, "rate limit exceeded"),
        error(413, -32603, "too large"),
    ],
    ids=lambda answer: f"{answer[0]} {answer[1]}",
)
def test_a_call_that_was_refused_before_it_ran_is_not_in_doubt(called, answer):
    first, second, methods = called(answer)
    assert first.outcome == "error" and "was not run" in text(first), first
    assert text(second) == "charged" and methods == ["tools/call"], "the session is kept"


@pytest.mark.parametrize(
    "answer",
    [
        *map(plain, (409, 422, 500, 502, 503, 504, 599)),
        error(200, -32603, "Internal error"),
        error(200, -32001, "Session terminated"),
        error(200, -32000, "the session of the database was lost after the charge"),
        error(500, -32603, "Internal error"),
        error(400, -32603, "Internal error"),
        error(200, -32700, "Parse error"),
        (200, b"<html>", {"content_type": "text/html"}),
        plain(202),
    ],
    ids=lambda answer: f"{answer[0]} {answer[1]}",
)
def test_an_error_after_which_the_tool_may_have_run_is_in_doubt(called, answer):
    first, second, _ = called(answer)
    assert isinstance(first, ToolFailedUncertain), first
    assert "connection was lost" not in first.reason, first
    assert text(second) == "charged"


PAGES = """
import json, sys
mode = sys.argv[1]
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    cursor = (m.get("params") or {}).get("cursor")
    tool = {"name": "one" if cursor is None else f"t{cursor}", "inputSchema": {"type": "object"}}
    page = {"tools": [tool]}
    if mode == "same": page["nextCursor"] = "x"
    if mode == "circle": page["nextCursor"] = {"x": "y"}.get(cursor, "x")
    if mode == "empty": page["nextCursor"] = ""
    if mode == "opaque" and cursor is None: page["nextCursor"] = ""
    if mode == "endless": page["nextCursor"] = str(int(cursor or 0) + 1)
    if mode == "fails" and cursor is None: page["nextCursor"] = "2"
    if mode == "good" and cursor != "2": page["nextCursor"] = str(int(cursor or 0) + 1)
    answers = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                              "serverInfo": {"name": "s", "version": "1"}}, "tools/list": page}
    r = answers.get(m["method"]) if mode != "fails" or cursor is None else None
    more = {"result": r} if r else {"error": {"code": -32602, "message": "invalid cursor"}}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], **more}), flush=True)
"""


@pytest.mark.parametrize(
    ("mode", "names", "note"),
    [
        ("good", ["one", "t1", "t2"], ""),
        ("opaque", ["one", "t"], ""),
        ("empty", ["one", "t"], "the cursor '' a second time"),
        ("same", ["one", "tx"], "the cursor 'x' a second time"),
        ("circle", ["one", "tx", "ty"], "the cursor 'x' a second time"),
        ("fails", ["one"], "invalid cursor"),
        ("endless", ["one", *sorted(f"t{n}" for n in range(1, 50))], "more than 50 pages"),
    ],
)
def test_the_tools_before_a_bad_page_are_kept_with_a_note(world, mode, names, note):
    agent = world.begin(McpServer(name="web", command=(sys.executable, "-c", PAGES, mode)))
    assert [tool.name for tool in agent.tools] == [f"web__{name}" for name in sorted(names)]
    notes = [line for line in world.logged if "list of tools" in line]
    assert [note in line for line in notes] == ([True] if note else []), world.logged
