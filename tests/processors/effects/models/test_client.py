"""The client is imported late and makes no retries of its own; every failure of the transport
becomes a Trouble.

The scripted server cannot produce some failures (broken HTTP, invalid bytes); these come from a raw
socket.
"""

import ast
import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import foldlog
from foldlog.log.errors import SettingsError
from foldlog.processors.effects.background import OutcomeSink
from foldlog.processors.effects.models.call import GenClaim, generate, make_client
from foldlog.processors.effects.models.client import READ_MARGIN_S, host_of, open_stream
from foldlog.processors.effects.models.errors import AttemptFailed
from foldlog.processors.limits import Limits
from foldlog.processors.tools.output_sink import Stop
from foldlog.schemas.events import GenFailed
from foldlog.tests.kit.waiting import PATIENCE_S

ROOT = Path(foldlog.__file__).parent
CLAIM = GenClaim(session_id="s1", turn=1, step=1, attempt=1, claimed_at=10**12)
SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nrequest-id: req_9\r\n\r\n"


@asynccontextmanager
async def answering(data):
    """A server that answers any request with these bytes and closes the connection; yields its base
    URL."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def failure(base_url, api_key="test-key"):
    sink = OutcomeSink([])
    async with make_client(api_key, base_url) as client:
        await generate(CLAIM, b'{"model":"m"}', sink, Stop(), client, limits=Limits())
    (failed,) = sink.outcomes
    assert isinstance(failed, GenFailed)
    return failed


def failure_of(data):
    async def go():
        async with answering(data) as base_url:
            return await failure(base_url)

    return asyncio.run(go())


def test_anthropic_is_imported_by_one_file_and_only_to_make_a_client():
    script = (
        "import sys, foldlog.processors.effects.models.call as models\n"
        "slow = {'anthropic', 'httpx2', 'pydantic'}\n"
        "assert not slow & set(sys.modules), slow & set(sys.modules)\n"
        "models.make_client('k')\n"
        "assert 'anthropic' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    rooms = ("schemas", "log", "producers", "processors", "client", "reports", "web", "upkeep",
             "adapters", "testing", "cli", "local")
    importers = {
        path.relative_to(ROOT).as_posix()
        for room in rooms
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if (
            isinstance(node, ast.Import) and any(a.name.startswith("anthropic") for a in node.names)
        )
        or (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("anthropic"))
    }
    assert importers == {"processors/effects/models/client.py"}


def test_a_client_reads_nothing_from_the_environment(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://elsewhere.invalid")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "other")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "other")
    client = make_client("mine\n")
    assert str(client.base_url).rstrip("/") == "https://api.anthropic.com"
    assert (client.api_key, client.auth_token, client.max_retries) == ("mine", None, 0)


@pytest.mark.parametrize("base_url", ["", " ", "\n"])
def test_an_empty_base_url_is_not_the_public_api(base_url):
    with pytest.raises(SettingsError, match=r"base_url is empty \(ANTHROPIC_BASE_URL\)"):
        make_client("mine", base_url)
    assert host_of("") == "ANTHROPIC_BASE_URL, which names no host"


def test_a_proxy_of_the_environment_is_not_used_for_loopback(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    failed = failure_of(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")
    assert (failed.error, failed.status) == ("authentication", 401)


def test_a_user_in_the_base_url_becomes_basic_authorization():
    heads = []

    async def go():
        async def answer(reader, writer):
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await failure(f"http://ana:s%20t@127.0.0.1:{port}/api")

    failed = asyncio.run(go())
    assert "may have been billed" in failed.detail, failed.detail
    (head,) = (head.lower().splitlines() for head in heads)
    assert head[0] == b"post /api/v1/messages http/1.1"
    assert b"authorization: basic yw5honmgda==" in head


def test_a_failed_tls_handshake_is_reported_as_not_sent():
    async def go():
        async with answering(b"no TLS here\r\n") as base_url:
            return await failure(base_url.replace("http:", "https:"))

    failed = asyncio.run(go())
    assert failed.error == "transport" and "nothing was sent" in failed.detail, failed.detail


@pytest.mark.parametrize(
    ("base_url", "place"),
    [
        (None, "http://127.0.0.1:"),
        ("http://key:hidden@no-such-host.invalid:81/hidden?hidden", "no-such-host.invalid:81: "),
        ("api.example.com", "no connection to the base URL: "),
    ],
    ids=["refused", "no such name", "no URL"],
)
def test_a_request_without_a_connection_is_reported_as_not_sent(base_url, place):
    async def go():
        async with answering(b"") as closed:
            pass
        return await failure(base_url or closed)

    failed = asyncio.run(go())
    assert (failed.error, failed.status, failed.permanent) == ("transport", None, False)
    assert failed.retry_at is not None and place in failed.detail
    assert "nothing was sent and nothing billed: is the base URL right" in failed.detail
    assert "may have been billed" not in failed.detail and "hidden" not in failed.detail


@pytest.mark.parametrize("data", [b"", b"SMTP ready\r\n\r\n"], ids=["hung up", "no HTTP"])
def test_a_request_whose_connection_broke_may_have_been_billed(data):
    assert "may have been billed" in failure_of(data).detail


@pytest.mark.parametrize(
    ("data", "error", "detail"),
    [
        (b"", "transport", "disconnected"),
        (b"SMTP ready\r\n\r\n", "transport", ""),
        (SSE, "truncated", "without a stop_reason"),
        (SSE + b'event: x\ndata: {"type":"\xff"}\n\n', "malformed", "utf-8"),
        (SSE + b"event: x\ndata: {}", "truncated", ""),
        (SSE + b": comment\n\ndata: [1]\n\n", "malformed", "not a JSON object"),
        (SSE + b"event: error\ndata: overloaded\n\n", "malformed", "overloaded"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
            "malformed",
            "application/json",
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "malformed", "not an event stream"),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", "client_error", ""),
        (b"HTTP/1.1 500 Oops\r\ncontent-length: 99\r\n\r\n{", "transport", ""),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 1\r\n\r\n{", "api_error", ""),
        *[
            (b"HTTP/1.1 400 Bad\r\ncontent-type: application/json\r\n\r\n" + body, error, "")
            for body, error in [
                (b'{"error":{"type":["x"],"message":"m"}}', "bad_request"),
                (b'{"error":{"type":"invalid_request_error","message":5}}', "bad_request"),
                (b'{"error":{"type":5,"message":["m"],"details":{"error_code":1}}}', "bad_request"),
                (b'{"error":[5]}', "bad_request"),
            ]
        ],
    ],
    ids=str,
)
def test_every_odd_response_ends_in_one_failure(data, error, detail):
    failed = failure_of(data)
    assert failed.error == error, failed.detail
    assert detail in failed.detail


JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"


@pytest.mark.parametrize(
    ("data", "source", "message"),
    [(b"", "stalled", "Timeout"), (SSE, "stalled", "Timeout"), (JSON, "malformed", "json")],
    ids=["silence", "a silent stream", "no stream"],
)
def test_the_stream_closes_its_own_socket_and_a_read_timeout_is_a_stall(data, source, message):
    """The read timeout is the fallback for the watchdog of an attempt, which is not running
    here."""

    async def go():
        closed = asyncio.Event()

        async def answer(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            while await reader.read(4096):
                pass
            writer.close()
            closed.set()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, make_client("k", url) as client:
            soon = 0.1 - READ_MARGIN_S
            with pytest.raises(AttemptFailed) as raised:
                async with open_stream(client, b"{}", label="s", stall_timeout_s=soon) as events:
                    async for read in events:
                        list(read)
            await asyncio.wait_for(closed.wait(), PATIENCE_S)  # while the client exists
        return raised.value.trouble

    trouble = asyncio.run(asyncio.wait_for(go(), 20))
    assert trouble.source == source and message in trouble.message


def test_more_is_read_only_after_before_read_and_then_all_that_came():
    async def go():
        taken, entered, written = [], asyncio.Event(), asyncio.Event()

        async def answer(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(SSE + b"data: 1\n\n")
            await asyncio.wait_for(entered.wait(), PATIENCE_S)
            for number in (b"2", b"3", b"4"):
                writer.write(b"data: " + number + b"\n\n")
            writer.close()
            written.set()

        async def before_read():
            taken.append("read")
            entered.set()
            await asyncio.wait_for(written.wait(), PATIENCE_S)

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, make_client("k", url) as client:
            async with open_stream(
                client, b"{}", label="s", stall_timeout_s=60, before_read=before_read
            ) as events:
                async for read in events:
                    taken += [event.data for event in read]
        return taken

    assert asyncio.run(asyncio.wait_for(go(), 60))[:5] == ["1", "read", "2", "3", "4"]


def test_an_invalid_key_is_never_written_to_the_log():
    async def go():
        async with answering(b"") as base_url:
            return await failure(base_url, "sk-secret\nof-mine")

    failed = asyncio.run(go())
    assert isinstance(failed, GenFailed)
    assert "secret" not in repr(failed) and "of-mine" not in repr(failed)
    assert "header" in failed.detail
