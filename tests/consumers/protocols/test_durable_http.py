"""Sessions and written streams over HTTP, with the real client, and who may do what."""

import threading
from pathlib import Path

import pytest

from foldlog.consumers.gateway.access import token_for
from foldlog.consumers.gateway.durable_streams import StreamCache, StreamLimits
from foldlog.consumers.gateway.names import own_id
from foldlog.consumers.gateway.routes import durable as routes_durable
from foldlog.tests.consumers.gateway.served import served
from foldlog.tests.consumers.played import Played
from foldlog.tests.consumers.protocols.spoken import SECRET

CLIENT = Path(__file__).parents[2] / "node" / "durable_client.mjs"


@pytest.fixture(scope="module")
def reader(talk):
    return talk(CLIENT)


def say(ana, log, session, text, answer):
    ana.post(f"/v1/sessions/{session}/messages", json={"text": text}).raise_for_status()
    worker = Played(log, own_id("ana", session))
    worker.wait(lambda views: views.turn.open)
    worker.answer(answer)


def asked(gateway, name, offset="-1", live=False):
    headers = {"authorization": f"Bearer {token_for('ana', SECRET)}"}
    return {"url": f"{gateway.url}/v1/stream/{name}", "headers": headers, "offset": offset,
            "live": live}


def settled(ana, session, lines):
    """Wait until the gateway has folded so many lines; a stream is as of its fold."""
    place = "-1"
    while lines:
        got = ana.get(f"/v1/stream/{session}", params={"offset": place, "live": "long-poll"})
        lines -= len(got.json()) if got.status_code == 200 else 0
        place = got.headers["stream-next-offset"]
    return place


def test_S2_a_session_is_read_by_the_real_client_and_on_from_where_it_was(
    log, gateway, ana, reader
):
    say(ana, log, "s1", "hello", "hello you")
    end = settled(ana, "s1", 3)
    first = reader.ask(asked(gateway, "s1"))
    assert [line["kind"] for line in first["items"]] == ["message", "answer", "ended"]
    assert (first["offset"], first["closed"]) == (end, False)
    say(ana, log, "s1", "more", "more of it")
    settled(ana, "s1", 6)
    rest = reader.ask(asked(gateway, "s1", first["offset"]))
    whole = reader.ask(asked(gateway, "s1"))
    assert first["items"] + rest["items"] == whole["items"] and len(whole["items"]) == 6


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_S2_a_live_reader_has_every_line_and_ends_with_the_session(
    log, gateway, ana, reader, live
):
    session = f"live-{live}"
    say(ana, log, session, "one", "eins")
    reader.send(asked(gateway, session, live=live))
    say(ana, log, session, "two", "zwei")
    ana.post(f"/v1/sessions/{session}/terminate", json={}).raise_for_status()
    read = reader.receive()
    kinds = [line["kind"] for line in read["items"]]
    assert kinds == ["message", "answer", "ended"] * 2 + ["terminated"]
    assert read["closed"] is True
    again = reader.ask(asked(gateway, session))
    assert again["items"] == read["items"] and again["closed"] is True


def test_S2_a_long_poll_gets_what_comes_while_it_waits(log, ana):
    say(ana, log, "poll", "one", "eins")
    end = settled(ana, "poll", 3)
    got = []
    url, query = "/v1/stream/poll", {"offset": end, "live": "long-poll"}
    waiting = threading.Thread(target=lambda: got.append(ana.get(url, params=query)))
    waiting.start()
    ana.post("/v1/sessions/poll/messages", json={"text": "two"}).raise_for_status()
    waiting.join(20)
    (answer,) = got
    assert [line["kind"] for line in answer.json()] == ["message"]
    assert answer.headers["stream-next-offset"] > end and answer.headers["stream-cursor"]


def test_S2_what_was_read_is_not_sent_again_and_no_cache_between_keeps_it(log, ana):
    say(ana, log, "tag", "one", "eins")
    settled(ana, "tag", 3)
    first = ana.get("/v1/stream/tag")
    assert first.headers["cache-control"] == "private, no-cache"
    tagged = {"if-none-match": first.headers["etag"]}
    again = ana.get("/v1/stream/tag", headers=tagged)
    assert (again.status_code, again.content) == (304, b"")
    say(ana, log, "tag", "two", "zwei")
    settled(ana, "tag", 6)
    assert ana.get("/v1/stream/tag", headers=tagged).status_code == 200
    head = ana.head("/v1/stream/tag")
    assert (head.headers["cache-control"], head.content) == ("no-store", b"")


def test_S2_a_session_of_an_agent_is_not_written_here(log, gateway, ana):
    ana.post("/v1/sessions", json={"session_id": "mine"}).raise_for_status()
    before = Played(log, own_id("ana", "mine")).fold.end()
    text = {"content": b"x", "headers": {"content-type": "application/json"}}
    said = [
        ana.put("/v1/stream/mine"),
        ana.post("/v1/stream/mine", content=b"[1]", headers=text["headers"]),
        ana.delete("/v1/stream/mine"),
    ]
    assert [(s.status_code, s.json()["code"]) for s in said] == [(405, "read_only")] * 3
    assert all(s.headers["allow"] == "GET, HEAD" for s in said)
    assert Played(log, own_id("ana", "mine")).fold.end() == before


def test_S2_a_written_stream_is_the_same_at_another_gateway(log, gateway, ana, settings):
    kind = {"content-type": "text/plain"}
    producer = {"producer-id": "p", "producer-epoch": "0", "producer-seq": "0"}
    assert ana.put("/v1/stream/notes", headers=kind).status_code == 201
    first = ana.post("/v1/stream/notes", content=b"once", headers={**kind, **producer})
    assert first.status_code == 200
    other = served(log, settings, settings.home / "other", secret=SECRET)
    with other as second, second.http(token_for("ana", SECRET)) as http:
        retry = http.post("/v1/stream/notes", content=b"once", headers={**kind, **producer})
        assert retry.status_code == 204, "a retry counts once, whichever gateway it reaches"
        read = http.get("/v1/stream/notes")
    assert read.content == b"once"
    assert read.headers["stream-next-offset"] == first.headers["stream-next-offset"]


def test_S2_a_fork_header_makes_no_plain_stream(ana):
    refused = ana.put("/v1/stream/forked", headers={"stream-forked-from": "/v1/stream/notes"})
    assert (refused.status_code, refused.json()["code"]) == (400, "no_forks")
    assert ana.get("/v1/stream/forked").status_code == 404


def test_S2_nobody_reads_or_writes_what_is_anothers(log, gateway, ana):
    kind = {"content-type": "text/plain"}
    ana.put("/v1/stream/hers", headers=kind, content=b"secret").raise_for_status()
    ana.post("/v1/sessions", json={"session_id": "her-session"}).raise_for_status()
    with gateway.http(token_for("ben", SECRET)) as ben, gateway.http() as nobody:
        for http, status in ((ben, 404), (nobody, 401)):
            for name in ("hers", "her-session"):
                url = f"/v1/stream/{name}"
                for live in ({}, {"live": "sse"}, {"live": "long-poll"}):
                    got = http.get(url, params={"offset": "-1", **live})
                    assert got.status_code == status and b"secret" not in got.content
                assert http.head(url).status_code == status
                assert http.post(url, content=b"x", headers=kind).status_code == status
                assert http.delete(url).status_code == status
        # The same name is a stream of his own.
        assert ben.put("/v1/stream/hers", headers=kind, content=b"his").status_code == 201
        assert nobody.put("/v1/stream/hers", headers=kind).status_code == 401
        assert ben.get("/v1/stream/hers").content == b"his"
    assert ana.get("/v1/stream/hers").content == b"secret"


@pytest.fixture
def bounded(log, settings, tmp_path, monkeypatch):
    """Another gateway, that keeps 100 KB in 3 streams for one user; its streams, to look at."""
    made = []

    def streams(gateway):
        made.append(StreamCache(gateway, StreamLimits(user_bytes=100_000, user_streams=3)))
        return made[0]

    monkeypatch.setattr(routes_durable, "StreamCache", streams)
    with served(log, settings, tmp_path / "bounded", secret=SECRET) as running:
        yield running, made[0]


def test_S2_the_streams_of_one_user_are_bounded_in_bytes_and_another_user_has_room(bounded):
    running, streams = bounded
    kind = {"content-type": "application/octet-stream"}
    tokens = (token_for(user, SECRET) for user in ("eve", "joe"))
    with running.http(next(tokens)) as eve, running.http(next(tokens)) as joe:
        eve.put("/v1/stream/big", headers=kind).raise_for_status()
        for _ in range(9):
            last = eve.post("/v1/stream/big", content=b"x" * 20_000, headers=kind)
            if last.status_code == 429:
                break
        assert (last.status_code, last.json()["code"]) == (429, "too_many_streams")
        assert "100,000" in last.json()["detail"] and "Delete a stream" in last.json()["detail"]
        held = len(eve.get("/v1/stream/big").content)
        assert 80_000 <= held <= 100_000, "what is there is still read, and bounded"
        refused = eve.put("/v1/stream/more", headers=kind, content=b"x")
        assert refused.status_code == 429
        assert eve.get("/v1/sessions/more").status_code == 404, "no session was opened for it"
        joe.put("/v1/stream/his", headers=kind, content=b"x" * 50_000).raise_for_status()
        assert eve.delete("/v1/stream/big").status_code == 204
        assert streams.bytes["eve"] < 20_000
        eve.put("/v1/stream/more", headers=kind, content=b"x").raise_for_status()


def test_S2_the_streams_of_one_user_are_bounded_in_number_while_they_are_in_use(bounded):
    running, streams = bounded
    kind = {"content-type": "text/plain"}
    with running.http(token_for("max", SECRET)) as user:
        statuses = [user.put(f"/v1/stream/n{n}", headers=kind).status_code for n in range(5)]
        assert statuses == [201, 201, 201, 429, 429]
        assert user.get("/v1/stream/n0").status_code == 200
        streams.limits = streams.limits._replace(idle_s=0.0)  # all of them are idle now
        assert user.put("/v1/stream/n4", headers=kind, content=b"new").status_code == 201
        assert streams.streams["max"] <= 3
        assert user.get("/v1/stream/n0").status_code == 200, "it is folded anew"
        assert user.get("/v1/stream/n4").content == b"new"


def test_S2_a_gateway_keeps_so_many_bytes_of_all_users(bounded):
    running, streams = bounded
    streams.limits = streams.limits._replace(all_bytes=150_000)
    kind = {"content-type": "text/plain"}
    for user in ("u1", "u2", "u3"):
        with running.http(token_for(user, SECRET)) as http:
            http.put("/v1/stream/s", headers=kind, content=b"x" * 60_000).raise_for_status()
    assert streams.bytes.total() <= 150_000 and set(streams.bytes) == {"u2", "u3"}
    with running.http(token_for("u1", SECRET)) as http:
        assert http.get("/v1/stream/s").content == b"x" * 60_000


@pytest.mark.parametrize("offset", ["", "x", "00000_1", "99999_0000000000000000001"])
def test_S2_a_bad_offset_is_refused(ana, offset):
    ana.post("/v1/sessions", json={"session_id": "bad"}).raise_for_status()
    got = ana.get("/v1/stream/bad", params={"offset": offset})
    assert (got.status_code, got.json()["code"]) == (400, "invalid_offset")
