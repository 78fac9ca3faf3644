"""Viewers that never read, that leave at any moment, and users who must not see each other."""

import asyncio
import contextlib
import random
import select
import socket

import httpx2 as httpx
import pytest

from foldlog.consumers.gateway import event_stream, serve
from foldlog.consumers.gateway.access import token_for
from foldlog.consumers.gateway.names import own_id
from foldlog.tests.consumers.gateway.served import served
from foldlog.tests.consumers.played import Played, memory_log, settings_in

SECRET = "a secret of forty characters, or of more"
USERS = ("ana", "bob")
VIEWERS = 20
LEAVES = 15


@pytest.fixture
def log():
    return memory_log(threaded=True)


@pytest.fixture
def gateway(log, tmp_path):
    with served(log, settings_in(tmp_path), tmp_path / "gateway", secret=SECRET) as running:
        yield running


def canary(user):
    return f"canary-of-{user}"


async def storm(url, user, seen, chance):
    """A viewer that leaves and comes back, mostly in the middle of something."""
    headers = {"authorization": f"Bearer {token_for(user, SECRET)}"}
    cursor, other = None, next(name for name in USERS if name != user)
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=20) as http:
        for _ in range(LEAVES):
            left = chance.randint(1, 4000)
            params = {"cursor": cursor} if cursor else {}
            path = f"/v1/sessions/s-{user}/stream"
            async with http.stream("GET", path, params=params) as response:
                assert response.status_code == 200
                async for line in response.aiter_lines():
                    seen.append((user, line))
                    cursor = line[4:] if line.startswith("id: ") else cursor
                    left -= len(line)
                    if left < 0 or '"kind":"ended"' in line:
                        break
            stolen = await http.get(f"/v1/sessions/s-{other}/stream", params={"cursor": cursor})
            seen.append((user, stolen.text))
            assert stolen.status_code == 404


def test_no_byte_of_a_session_reaches_another_user_whatever_is_cut(gateway, log):
    played = {}
    for user in USERS:
        with gateway.http(token_for(user, SECRET)) as http:
            http.post(f"/v1/sessions/s-{user}/messages", json={"text": canary(user)})
        played[user] = Played(log, own_id(user, f"s-{user}"))
        played[user].call()
        played[user].start()
    seen = []

    async def talk():
        for number in range(60):
            for user in USERS:
                played[user].chunk(f"{canary(user)} {number} ")
            await asyncio.sleep(0)

    async def all_of_it():
        await talk()
        viewers = [
            storm(gateway.url, user, seen, random.Random(f"{user}{number}"))
            for user in USERS
            for number in range(VIEWERS // 2)
        ]
        await asyncio.gather(*viewers, talk())

    asyncio.run(all_of_it())
    for user in USERS:
        (other,) = set(USERS) - {user}
        his = [text for who, text in seen if who == user]
        assert any(canary(user) in text for text in his)
        assert not any(canary(other) in text for text in his)


def test_seats_of_those_who_left_are_free_again(gateway, log):
    with gateway.http(token_for("ana", SECRET)) as http:
        http.post("/v1/sessions", json={"session_id": "s-ana"})
        for _ in range(5):
            with http.stream("GET", "/v1/sessions/s-ana/stream"):
                pass
        deadline = asyncio.run(_until(lambda: gateway.gateway.hub.viewers == 0))
    assert deadline, "their subscriptions are still taken"


async def _until(holds, patience_s=10):
    for _ in range(patience_s * 100):
        if holds():
            return True
        await asyncio.sleep(0.01)
    return False


def test_a_client_that_never_reads_is_let_go_and_loses_nothing(gateway, log, monkeypatch):
    monkeypatch.setattr(event_stream, "WRITE_S", 0.3)
    token = token_for("ana", SECRET)
    with gateway.http(token) as http:
        http.post("/v1/sessions/s-ana/messages", json={"text": "talk for long"})
    played = Played(log, own_id("ana", "s-ana"))
    played.call()
    played.start()
    with socket.create_connection(("127.0.0.1", gateway.port)) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        head = f"GET /v1/sessions/s-ana/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}"
        deaf.sendall(f"{head}\r\n\r\n".encode())
        assert asyncio.run(_until(lambda: gateway.gateway.hub.viewers == 1))
        for number in range(400):
            played.send(_chunk(played, number, "x" * 20_000), "models")
        assert asyncio.run(_until(lambda: gateway.gateway.hub.viewers == 0)), "it is still served"
    length = 0
    with gateway.http(token) as http, http.stream("GET", "/v1/sessions/s-ana/stream") as response:
        for line in response.iter_lines():
            length += line.count("x" * 20_000)
            if length == 400:
                break
    assert length == 400


def test_what_a_client_left_unread_does_not_wait_for_it_as_long_as_it_lives(monkeypatch):
    """Its viewer was let go of, and two megabytes and a connection were kept for it."""
    monkeypatch.setattr(serve, "UNREAD_MS", 300)
    listening = serve.listen("127.0.0.1", 0)
    with listening, socket.create_connection(listening.getsockname()):
        with listening.accept()[0] as served:
            served.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    served.send(b"x" * 65_536)
            cut = select.poll()
            cut.register(served, 0)
            assert cut.poll(10_000), "it is still connected"


def _chunk(played, seq, text):
    from foldlog.schemas import events as ev

    return ev.GenChunk(turn=1, step=1, attempt=1, seq=seq, block=0, kind="text", delta=text)
