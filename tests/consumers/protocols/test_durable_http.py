"""Sessions and written streams over HTTP, read by the real client, and their limits."""

import threading
from pathlib import Path
from time import monotonic

import pytest

from foldlog.consumers.gateway.access import token_for
from foldlog.consumers.gateway.durable_streams import StreamCache, StreamLimits
from foldlog.consumers.gateway.names import own_id
from foldlog.consumers.gateway.routes import durable as routes_durable
from foldlog.tests.consumers.gateway.served import SECRET, served
from foldlog.tests.consumers.played import Played
from foldlog.tests.kit.waiting import PATIENCE_S

CLIENT = Path(__file__).parents[2] / "node" / "durable_client.mjs"


@pytest.fixture(scope="module")
def reader(talk):
    return talk(CLIENT)


def turn(ana, log, session, text, answer):
    """Play one turn: a message and the answer."""
    ana.post(f"/v1/sessions/{session}/messages", json={"text": text}).raise_for_status()
    worker = Played(log, own_id("ana", session))
    worker.wait(lambda views: views.turn.open)
    worker.answer(answer)


def request(gateway, name, offset="-1", live=False):
    """The request that the client in node must send."""
    headers = {"authorization": f"Bearer {token_for('ana', SECRET)}"}
    return {"url": f"{gateway.url}/v1/stream/{name}", "headers": headers, "offset": offset,
            "live": live}


def end_after(ana, session, lines):
    """Wait until the gateway has folded this many lines. Returns the end of the stream."""
    place, end = "-1", monotonic() + PATIENCE_S
    while lines:
        assert monotonic() < end, f"{lines} lines are missing"
        page = ana.get(f"/v1/stream/{session}", params={"offset": place, "live": "long-poll"})
        lines -= len(page.json()) if page.status_code == 200 else 0
        place = page.headers["stream-next-offset"]
    return place


def test_S2_the_real_client_reads_a_session_and_continues_from_its_offset(
    log, gateway, ana, reader
):
    turn(ana, log, "s1", "hello", "hello you")
    end = end_after(ana, "s1", 3)
    first = reader.ask(request(gateway, "s1"))
    assert [line["kind"] for line in first["items"]] == ["message", "answer", "ended"]
    assert (first["offset"], first["closed"]) == (end, False)
    turn(ana, log, "s1", "more", "more of it")
    end_after(ana, "s1", 6)
    rest = reader.ask(request(gateway, "s1", first["offset"]))
    whole = reader.ask(request(gateway, "s1"))
    assert first["items"] + rest["items"] == whole["items"] and len(whole["items"]) == 6


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_S2_a_live_reader_gets_every_line_and_ends_with_the_session(
    log, gateway, ana, reader, live
):
    session = f"live-{live}"
    turn(ana, log, session, "one", "eins")
    reader.send(request(gateway, session, live=live))
    turn(ana, log, session, "two", "zwei")
    ana.post(f"/v1/sessions/{session}/terminate", json={}).raise_for_status()
    read = reader.receive()
    kinds = [line["kind"] for line in read["items"]]
    assert kinds == ["message", "answer", "ended"] * 2 + ["terminated"]
    assert read["closed"] is True
    again = reader.ask(request(gateway, session))
    assert again["items"] == read["items"] and again["closed"] is True


def test_S2_a_long_poll_returns_a_line_that_arrives_while_it_waits(log, ana):
    turn(ana, log, "poll", "one", "eins")
    end = end_after(ana, "poll", 3)
    responses = []
    url, query = "/v1/stream/poll", {"offset": end, "live": "long-poll"}
    waiting = threading.Thread(target=lambda: responses.append(ana.get(url, params=query)))
    waiting.start()
    ana.post("/v1/sessions/poll/messages", json={"text": "two"}).raise_for_status()
    waiting.join(20)
    (page,) = responses
    assert [line["kind"] for line in page.json()] == ["message"]
    assert page.headers["stream-next-offset"] > end and page.headers["stream-cursor"]


def test_S2_an_unchanged_page_is_not_sent_again_and_is_private(log, ana):
    turn(ana, log, "tag", "one", "eins")
    end_after(ana, "tag", 3)
    first = ana.get("/v1/stream/tag")
    assert first.headers["cache-control"] == "private, no-cache"
    tagged = {"if-none-match": first.headers["etag"]}
    again = ana.get("/v1/stream/tag", headers=tagged)
    assert (again.status_code, again.content) == (304, b"")
    turn(ana, log, "tag", "two", "zwei")
    end_after(ana, "tag", 6)
    assert ana.get("/v1/stream/tag", headers=tagged).status_code == 200
    head = ana.head("/v1/stream/tag")
    assert (head.headers["cache-control"], head.content) == ("no-store", b"")


def test_S2_a_session_of_an_agent_is_read_only(log, gateway, ana):
    ana.post("/v1/sessions", json={"session_id": "mine"}).raise_for_status()
    before = Played(log, own_id("ana", "mine")).fold.end()
    json = {"content-type": "application/json"}
    responses = [
        ana.put("/v1/stream/mine"),
        ana.post("/v1/stream/mine", content=b"[1]", headers=json),
        ana.delete("/v1/stream/mine"),
    ]
    assert [(r.status_code, r.json()["code"]) for r in responses] == [(405, "read_only")] * 3
    assert all(r.headers["allow"] == "GET, HEAD" for r in responses)
    assert Played(log, own_id("ana", "mine")).fold.end() == before


def test_S2_a_written_stream_is_the_same_at_another_gateway(log, gateway, ana, settings):
    kind = {"content-type": "text/plain"}
    producer = {"producer-id": "p", "producer-epoch": "0", "producer-seq": "0"}
    assert ana.put("/v1/stream/notes", headers=kind).status_code == 201
    first = ana.post("/v1/stream/notes", content=b"once", headers={**kind, **producer})
    assert first.status_code == 200
    other = served(log, settings, settings.home / "other", secret=SECRET)
    with other as second, second.http("ana") as http:
        retry = http.post("/v1/stream/notes", content=b"once", headers={**kind, **producer})
        assert retry.status_code == 204, "a retry takes effect once, at any gateway"
        read = http.get("/v1/stream/notes")
    assert read.content == b"once"
    assert read.headers["stream-next-offset"] == first.headers["stream-next-offset"]


def test_S2_a_request_with_a_fork_header_is_refused(ana):
    refused = ana.put("/v1/stream/forked", headers={"stream-forked-from": "/v1/stream/notes"})
    assert (refused.status_code, refused.json()["code"]) == (400, "no_forks")
    assert ana.get("/v1/stream/forked").status_code == 404


@pytest.fixture
def bounded(log, settings, tmp_path, monkeypatch):
    """A gateway that keeps at most 100 KB and 3 streams for one user, and its cache of streams."""
    made = []

    def streams(gateway):
        made.append(StreamCache(gateway, StreamLimits(user_bytes=100_000, user_streams=3)))
        return made[0]

    monkeypatch.setattr(routes_durable, "StreamCache", streams)
    with served(log, settings, tmp_path / "bounded", secret=SECRET) as running:
        yield running, made[0]


def test_S2_the_streams_of_one_user_are_bounded_in_bytes_without_effect_on_others(bounded):
    running, streams = bounded
    kind = {"content-type": "application/octet-stream"}
    with running.http("eve") as eve, running.http("joe") as joe:
        eve.put("/v1/stream/big", headers=kind).raise_for_status()
        for _ in range(9):
            last = eve.post("/v1/stream/big", content=b"x" * 20_000, headers=kind)
            if last.status_code == 429:
                break
        assert (last.status_code, last.json()["code"]) == (429, "too_many_streams")
        assert "100,000" in last.json()["detail"] and "Delete a stream" in last.json()["detail"]
        assert 80_000 <= len(eve.get("/v1/stream/big").content) <= 100_000, "it can be read"
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
    with running.http("max") as user:
        statuses = [user.put(f"/v1/stream/n{n}", headers=kind).status_code for n in range(5)]
        assert statuses == [201, 201, 201, 429, 429]
        assert user.get("/v1/stream/n0").status_code == 200
        streams.limits = streams.limits._replace(idle_s=0.0)  # all of them are idle now
        assert user.put("/v1/stream/n4", headers=kind, content=b"new").status_code == 201
        assert streams.streams["max"] <= 3
        assert user.get("/v1/stream/n0").status_code == 200, "it is folded again"
        assert user.get("/v1/stream/n4").content == b"new"


def test_S2_the_streams_of_all_users_are_bounded_in_bytes(bounded):
    running, streams = bounded
    streams.limits = streams.limits._replace(all_bytes=150_000)
    kind = {"content-type": "text/plain"}
    for user in ("u1", "u2", "u3"):
        with running.http(user) as http:
            http.put("/v1/stream/s", headers=kind, content=b"x" * 60_000).raise_for_status()
    assert streams.bytes.total() <= 150_000 and set(streams.bytes) == {"u2", "u3"}
    with running.http("u1") as http:
        assert http.get("/v1/stream/s").content == b"x" * 60_000


@pytest.mark.parametrize("offset", ["", "x", "00000_1", "99999_0000000000000000001"])
def test_S2_a_bad_offset_is_refused(ana, offset):
    ana.post("/v1/sessions", json={"session_id": "bad"}).raise_for_status()
    response = ana.get("/v1/stream/bad", params={"offset": offset})
    assert (response.status_code, response.json()["code"]) == (400, "invalid_offset")
