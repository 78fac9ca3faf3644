"""Viewers that never read, viewers that disconnect at any moment, and users who must not see each
other's sessions."""

import asyncio
import contextlib
import random
import select
import socket
import time

import httpx2 as httpx

from foldlog.schemas import events as ev
from foldlog.tests.kit.played import Played
from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.tests.web.gateway.served import SECRET, lines_of
from foldlog.web.gateway import event_stream, serve
from foldlog.web.gateway.access import token_for
from foldlog.web.gateway.names import own_id

USERS = ("ana", "bob")
VIEWERS = 20
DISCONNECTS = 15
LEAVES_WITHIN = 1_500
"""Bytes after which a viewer disconnects at the latest. Less than the stream has for each of its
connections, so that no viewer waits at the end of a stream that never ends."""


def canary(user):
    return f"canary-of-{user}"


async def watch(url, user, received, chance):
    """A viewer that disconnects and returns, mostly in the middle of an event."""
    headers = {"authorization": f"Bearer {token_for(user, SECRET)}"}
    cursor, other = None, next(name for name in USERS if name != user)
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=90) as http:
        for _ in range(DISCONNECTS):
            left = chance.randint(1, LEAVES_WITHIN)
            params = {"cursor": cursor} if cursor else {}
            path = f"/v1/sessions/s-{user}/stream"
            async with http.stream("GET", path, params=params) as response:
                assert response.status_code == 200
                async for line in response.aiter_lines():
                    received.append((user, line))
                    cursor = line[4:] if line.startswith("id: ") else cursor
                    left -= len(line)
                    if left < 0 or '"kind":"ended"' in line:
                        break
            foreign = await http.get(f"/v1/sessions/s-{other}/stream", params={"cursor": cursor})
            received.append((user, foreign.text))
            assert foreign.status_code == 404


def test_no_byte_of_a_session_reaches_another_user(gateway, log):
    played = {}
    for user in USERS:
        with gateway.http(user) as http:
            http.post(f"/v1/sessions/s-{user}/messages", json={"text": canary(user)})
        played[user] = Played(log, own_id(user, f"s-{user}"))
        played[user].call()
        played[user].start()
    received = []

    async def talk():
        for number in range(60):
            for user in USERS:
                played[user].chunk(f"{canary(user)} {number} ")
            await asyncio.sleep(0)

    async def talk_and_watch():
        await talk()
        viewers = [
            watch(gateway.url, user, received, random.Random(f"{user}{number}"))
            for user in USERS
            for number in range(VIEWERS // 2)
        ]
        await asyncio.gather(*viewers, talk())

    asyncio.run(asyncio.wait_for(talk_and_watch(), PATIENCE_S))
    for user in USERS:
        (other,) = set(USERS) - {user}
        texts = [text for receiver, text in received if receiver == user]
        assert any(canary(user) in text for text in texts)
        assert not any(canary(other) in text for text in texts)


def viewers_become(gateway, count):
    """Wait until the gateway has this many viewers. Returns False after 10 s."""
    for _ in range(1_000):
        if gateway.gateway.hub.viewers == count:
            return True
        time.sleep(0.01)
    return False


def test_viewers_that_disconnected_are_no_longer_counted(gateway, ana):
    ana.post("/v1/sessions", json={"session_id": "brief"}).raise_for_status()
    for _ in range(5):
        with ana.stream("GET", "/v1/sessions/brief/stream"):
            pass
    assert viewers_become(gateway, 0)


def test_a_client_that_never_reads_is_disconnected_and_loses_nothing(
    gateway, ana, log, monkeypatch
):
    monkeypatch.setattr(event_stream, "WRITE_S", 0.3)
    token = token_for("ana", SECRET)
    ana.post("/v1/sessions/unread/messages", json={"text": "talk for long"})
    played = Played(log, own_id("ana", "unread"))
    played.call()
    played.start()
    with socket.create_connection(("127.0.0.1", gateway.port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        head = "GET /v1/sessions/unread/stream HTTP/1.1\r\nhost: x"
        client.sendall(f"{head}\r\nauthorization: Bearer {token}\r\n\r\n".encode())
        assert viewers_become(gateway, 1)
        for number in range(400):
            chunk = ev.GenChunk(turn=1, step=1, attempt=1, seq=number, block=0, kind="text",
                                delta="x" * 20_000)
            played.send(chunk, "models")
        assert viewers_become(gateway, 0), "still connected"
    length = 0
    with ana.stream("GET", "/v1/sessions/unread/stream") as response:
        for line in lines_of(response):
            length += line.count("x" * 20_000)
            if length == 400:
                break
    assert length == 400


def test_unread_data_is_dropped_while_the_client_lives(monkeypatch):
    """The defect: after the gateway disconnected a viewer, it kept two megabytes and a connection
    for the client."""
    monkeypatch.setattr(serve, "UNREAD_MS", 300)
    listening = serve.listen("127.0.0.1", 0)
    with listening, socket.create_connection(listening.getsockname()):
        with listening.accept()[0] as connection:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    connection.send(b"x" * 65_536)
            closed = select.poll()
            closed.register(connection, 0)
            assert closed.poll(10_000), "still connected"
