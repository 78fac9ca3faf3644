"""C: slow clients, and many clients, take nothing from others: deadlines, limits, fairness.

The tests use real sockets and small limits. Each test waits for an action of the gateway, never for
a time.
"""

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from select import select

import h11
import httpx2 as httpx
import pytest

from foldlog.client.history import Place
from foldlog.client.transcript_stream import LineAdded
from foldlog.processors.fold.views import initial
from foldlog.tests.kit.played import memory_log, settings_in
from foldlog.tests.kit.waiting import PATIENCE_S, until
from foldlog.tests.web.gateway.served import SECRET, served
from foldlog.web.gateway import hub as hub_module, serve
from foldlog.web.gateway.app import INERT
from foldlog.web.gateway.event_stream import EventStream
from foldlog.web.gateway.routes import durable as routes_durable
from foldlog.web.gateway.serve import (
    BACKLOG,
    CONNECTIONS_MAX,
    DESCRIPTORS_KEPT,
    Limits,
    connections_of,
    site_of,
)
from foldlog.web.gateway.subscriptions import Subscription, WatchedSession

SOON_S = 0.2  # a short deadline, so that the tests are fast
NEVER_S = 3_600.0
HEAD = b"POST /v1/sessions/slow/messages HTTP/1.1\r\nhost: 127.0.0.1\r\n"
BODY = HEAD + b"content-type: application/json\r\ncontent-length: 100\r\n\r\n"

STREAM = b"GET /v1/sessions/kept/stream HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


@pytest.fixture
def gateway_with(tmp_path):
    """A factory of gateways with small limits."""
    log = memory_log(threaded=True)

    def made(**limits):
        small = Limits(**{"head_s": NEVER_S, "body_s": NEVER_S, **limits})
        return served(log, settings_in(tmp_path), tmp_path / "gateway", limits=small)

    return made


def connected(running, sent=b"", address="127.0.0.1"):
    made = socket.create_connection(
        ("127.0.0.1", running.port), PATIENCE_S, source_address=(address, 0)
    )
    made.sendall(sent)
    return made


def read(connection):
    """Read until the gateway closes the connection. Returns the status and the body."""
    with connection, connection.makefile("rb") as file:
        data = file.read()
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def get_health(connection):
    """Send one complete request and read the response. Afterwards, the connection is idle."""
    connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    assert received(connection, b"ok\n").startswith(b"HTTP/1.1 200")


def received(connection, awaited):
    """What the gateway sends, up to these bytes at least."""
    data, end = b"", time.monotonic() + PATIENCE_S
    while awaited not in data:
        assert time.monotonic() < end, data
        more = connection.recv(65536)
        assert more, "the gateway closed the connection"
        data += more
    return data


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n"])
def test_C_a_head_has_a_deadline(gateway_with, sent):
    with gateway_with(head_s=SOON_S) as running:
        status, body = read(connected(running, sent))
        assert (status, body["code"]) == (408, "too_slow")


def test_C_the_head_of_a_second_request_has_a_deadline(gateway_with):
    with gateway_with(head_s=SOON_S) as running:
        made = connected(running)
        get_health(made)
        made.sendall(b"GET /heal")
        status, _ = read(made)
        assert status == 408


@pytest.mark.parametrize("part", [b"", b'{"text": "no'])
def test_C_a_body_has_a_deadline_and_an_incomplete_one_has_no_effect(gateway_with, part):
    with gateway_with(body_s=SOON_S) as running, running.http() as http:
        status, body = read(connected(running, BODY + part))
        assert (status, body["code"]) == (408, "too_slow")
        assert http.get("/v1/sessions/slow").status_code == 404


def test_C_a_body_that_arrives_byte_by_byte_has_the_same_deadline(gateway_with):
    with gateway_with(body_s=SOON_S) as running:
        made = connected(running, BODY.replace(b"100", b"1000000"))
        until("a response", lambda: select([made], [], [], 0)[0] or made.sendall(b" "))
        assert made.recv(4096).startswith(b"HTTP/1.1 408")
        made.close()


def test_C_streams_and_idle_connections_have_no_such_deadline(gateway_with):
    with gateway_with(head_s=SOON_S, body_s=SOON_S) as running, running.http() as http:
        http.post("/v1/sessions", json={"session_id": "kept"}).raise_for_status()
        quiet = connected(running, STREAM)
        assert quiet.recv(4096).startswith(b"HTTP/1.1 200")
        idle = connected(running)
        get_health(idle)
        read(connected(running))  # the deadline of a later connection has passed
        http.post("/v1/sessions/kept/messages", json={"text": "still there"}).raise_for_status()
        received(quiet, b"still there")
        get_health(idle)
        quiet.close()
        idle.close()


def test_C_an_address_with_too_many_connections_is_refused_and_others_are_not(gateway_with):
    with gateway_with(connections=12, per_address=4) as running:
        connections = [connected(running, b"GET /", "127.0.0.9") for _ in range(4)]
        status, body = read(connected(running, address="127.0.0.9"))
        assert (status, body["code"]) == (429, "too_many_connections")
        assert httpx.get(f"{running.url}/healthz").status_code == 200
        for one in connections:
            one.close()

        def other_status():
            made = connected(running, b"GET /healthz HTTP/1.0\r\n\r\n", "127.0.0.9")
            with made, made.makefile("rb") as file:
                status = int(file.readline().split()[1])
            return status != 429 and status

        status = until("the closed connections are no longer counted", other_status)
        assert status in (200, 403)


def test_C_connections_beyond_the_descriptors_are_refused_at_once(gateway_with):
    with gateway_with(connections=6, per_address=6) as running:
        connections = [connected(running, b"GET /", f"127.0.0.{n + 10}") for n in range(6)]
        surplus = [read(connected(running, b"", f"127.0.0.{n + 30}")) for n in range(20)]
        assert {(status, body["code"]) for status, body in surplus} == {
            (503, "too_many_connections")
        }
        assert len(running.serving.server_state.connections) <= 6
        for one in connections:
            one.close()


@pytest.mark.parametrize(("descriptors", "in_use"), [(1024, 100), (4096, 300), (65_536, 2_000)])
def test_C_some_descriptors_are_always_reserved(descriptors, in_use):
    count = connections_of(descriptors, in_use)
    assert count + BACKLOG + in_use + DESCRIPTORS_KEPT <= descriptors - in_use
    assert 16 <= count <= CONNECTIONS_MAX


def test_C_the_streams_of_one_user_are_bounded_over_all_kinds(tmp_path):
    log = memory_log(threaded=True)
    with served(log, settings_in(tmp_path), tmp_path / "g", secret=SECRET) as running:
        running.gateway.hub.limit_viewers(8)  # of these, at most 4 of one user
        assert running.gateway.tabs.caught_up.wait(PATIENCE_S)
        with running.http("ana") as ana:
            ana.post("/v1/sessions", json={"session_id": "s"}).raise_for_status()
            responses = []
            for path in ("/v1/sessions/events", "/api/tabs/events", "/v1/sessions/s/stream") * 2:
                request = ana.build_request("GET", path)
                responses.append(ana.send(request, stream=True))
            statuses = Counter(response.status_code for response in responses)
            assert statuses == {200: 4, 429: 2}
            with running.http("bob") as bob:
                with bob.stream("GET", "/v1/sessions/events") as other:
                    assert other.status_code == 200
            for response in responses:
                response.close()


# -- fairness --------------------------------------------------------------------------------------


class OtherTask:
    """Counts how often another task of the event loop runs."""

    async def __aenter__(self):
        self.count, self._task = 0, asyncio.ensure_future(self._take())
        return self

    async def _take(self):
        async with asyncio.timeout(PATIENCE_S):
            while True:
                self.count += 1
                await asyncio.sleep(0)

    async def __aexit__(self, *_):
        self._task.cancel()


def test_C_a_response_whose_writes_never_block_lets_other_tasks_run():
    async def run():
        async def pieces():
            for _ in range(500):
                yield b"x"

        async def send(_message):
            """The write to a client whose buffers are never full."""

        never = asyncio.Event()
        async with asyncio.timeout(PATIENCE_S), OtherTask() as other:
            await EventStream(pieces())({}, never.wait, send)
            return other.count

    assert asyncio.run(run()) >= 500


def test_C_a_viewer_with_a_long_history_lets_other_tasks_run():
    async def run():
        subscription = Subscription(WatchedSession("s", initial("s"), 0), Place(), "ana")
        subscription.put_history([(n, n + 1, [LineAdded(line=None)]) for n in range(500)])
        async with asyncio.timeout(PATIENCE_S), OtherTask() as other:
            for _ in range(500):
                await anext(subscription)
            return other.count

    assert asyncio.run(run()) >= 500


def test_C_few_histories_are_built_at_once_and_the_others_occupy_no_thread(
    gateway_with, monkeypatch
):
    begun, released, put_history = [], threading.Event(), Subscription.put_history

    def put_when_released(subscription, history):
        if threading.current_thread().name.startswith("gateway"):  # not in the event loop
            begun.append(subscription)
            assert released.wait(PATIENCE_S)
        put_history(subscription, history)

    monkeypatch.setattr(Subscription, "put_history", put_when_released)
    with gateway_with() as running, running.http() as http:
        http.post("/v1/sessions", json={"session_id": "kept"}).raise_for_status()
        unread = [connected(running, STREAM) for _ in range(24)]

        def all_are_viewers():
            assert http.get("/healthz").status_code == 200
            return running.gateway.hub.viewers >= len(unread)

        until("all of them are viewers", all_are_viewers)
        assert http.get("/healthz").status_code == 200
        assert len(begun) <= hub_module.HISTORIES_MAX
        released.set()
        for one in unread:
            assert one.recv(15).startswith(b"HTTP/1.1 200")
            one.close()
    assert len(begun) == len(unread)


def test_addresses_of_one_network_count_as_one():
    """One customer can have 2^64 IPv6 addresses."""
    assert site_of("2001:db8::1") == site_of("2001:db8::ffff:2") != site_of("2001:db8:0:1::1")
    assert site_of("fe80::1%eth0") == site_of("fe80::2%eth0")
    assert site_of("::ffff:10.0.0.7") == site_of("10.0.0.7") != site_of("10.0.0.8")
    assert site_of("::ffff:10.0.0.7") != site_of("::ffff:10.0.0.8")


@pytest.mark.parametrize("sent", [b"\x16\x03<b>\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"])
def test_a_refused_connection_is_answered_with_the_same_policy(gateway_with, sent):
    with gateway_with() as running, connected(running, sent) as connection:
        with connection.makefile("rb") as file:
            response = file.read()
    head, _, body = response.partition(b"\r\n\r\n")
    assert json.loads(body)["code"] == "invalid"
    for name, value in INERT.items():
        assert b"\r\n" + name + b": " + value in head


def test_a_stopping_gateway_ends_its_streams_at_once_without_a_traceback(
    tmp_path, capsys, monkeypatch
):
    """The defect: open streams delayed the gateway's end, and uvicorn printed forty lines for each
    stream."""
    monkeypatch.setattr(serve, "DRAIN_S", NEVER_S)
    monkeypatch.setattr(routes_durable, "LONG_POLL_S", NEVER_S)
    log, stream = memory_log(threaded=True), "/v1/stream/s1?offset=now"
    with ExitStack() as streams, ThreadPoolExecutor(1) as waiting:
        with served(log, settings_in(tmp_path), tmp_path / "gateway") as gateway:
            assert gateway.gateway.tabs.caught_up.wait(PATIENCE_S)
            http = streams.enter_context(gateway.http())
            http.post("/v1/sessions/s1/messages", json={"text": "hi"}).raise_for_status()
            paths = ("/v1/sessions/s1/stream", "/v1/sessions/events", "/api/tabs/events",
                     f"{stream}&live=sse")
            for path in paths:
                response = streams.enter_context(http.stream("GET", path))
                assert response.status_code == 200, path
            poll = waiting.submit(httpx.get, f"{gateway.url}{stream}&live=long-poll", timeout=60)
            session = gateway.gateway.hub._sessions["s1"].result()

            def all_are_subscribed():  # two streams and the poll
                assert http.get("/healthz").status_code == 200
                return len(session.subscriptions) >= 3

            until("all of them are subscribed", all_are_subscribed)
        assert poll.result(PATIENCE_S).status_code == 204, "nothing was appended"
    assert capsys.readouterr().err == ""


def wait_until_read(gateway, state):
    """Wait until the gateway has read the request for `slow` so far that its sender is in this
    state."""
    def is_read(connection):
        is_it = connection.scope is not None and "slow" in connection.scope["path"]
        return is_it and connection.conn.their_state is state

    connections = gateway.serving.server_state.connections
    until("the request is read so far", lambda: any(map(is_read, list(connections))))


def test_a_stopping_gateway_refuses_a_request_whose_body_is_incomplete(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(serve, "DRAIN_S", NEVER_S)
    log = memory_log(threaded=True)
    with served(log, settings_in(tmp_path), tmp_path / "gateway") as gateway:
        half = connected(gateway, BODY)
        wait_until_read(gateway, h11.SEND_BODY)
    status, body = read(half)
    assert (status, body["code"]) == (503, "stopping")
    assert capsys.readouterr().err == ""


def test_a_stopping_gateway_cancels_a_hanging_request_without_a_traceback(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(serve, "DRAIN_S", 0.1)
    log, body = memory_log(threaded=True), b'{"text": "hi"}'
    with served(log, settings_in(tmp_path), tmp_path / "gateway") as gateway:
        gateway.gateway.tail.on_batch = lambda _batch: None  # so no decision reaches the request
        head = BODY.replace(b"100", str(len(body)).encode())
        waiting = connected(gateway, head + body)
        wait_until_read(gateway, h11.DONE)
    waiting.close()
    assert capsys.readouterr().err == ""
