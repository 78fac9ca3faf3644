"""Sessions as durable streams over HTTP, read by the real client."""

import threading
from pathlib import Path
from time import monotonic

import pytest

from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.played import Played
from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.tests.web.gateway.served import SECRET
from foldlog.web.gateway.access import token_for
from foldlog.web.gateway.names import own_id

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


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH", "DELETE"])
@pytest.mark.parametrize("name", ["mine", "nobodys"])
def test_S2_a_request_that_would_write_is_refused(log, ana, method, name):
    ana.post("/v1/sessions", json={"session_id": "mine"}).raise_for_status()
    before = log.end_offsets(SESSION_EVENTS)
    body = b"" if method == "DELETE" else b"[1]"
    headers = {"content-type": "application/json"}
    response = ana.request(method, f"/v1/stream/{name}", content=body, headers=headers)
    assert (response.status_code, response.json()["code"]) == (405, "read_only")
    assert response.headers["allow"] == "GET, HEAD"
    assert "nothing was done" in response.json()["detail"]
    assert log.end_offsets(SESSION_EVENTS) == before


def test_S2_the_end_of_a_stream_is_an_empty_page_and_the_place_to_continue(log, ana):
    turn(ana, log, "end", "one", "eins")
    end = end_after(ana, "end", 3)
    for page in (ana.get("/v1/stream/end?offset=now"), ana.get(f"/v1/stream/end?offset={end}")):
        assert (page.status_code, page.json()) == (200, [])
        assert page.headers["content-type"] == "application/json"
        assert page.headers["stream-next-offset"] == end
        assert page.headers["stream-up-to-date"] == "true"
    assert ana.head("/v1/stream/end").headers["stream-next-offset"] == end


@pytest.mark.parametrize("query", ["live=sse", "live=long-poll", "offset=-1&offset=now"])
def test_S2_a_read_without_exactly_one_offset_is_refused(ana, query):
    ana.post("/v1/sessions", json={"session_id": "one"}).raise_for_status()
    response = ana.get(f"/v1/stream/one?{query}")
    assert (response.status_code, response.json()["code"]) == (400, "invalid_offset")


@pytest.mark.parametrize("offset", ["", "x", "00000_1", "99999_0000000000000000001"])
def test_S2_a_bad_offset_is_refused(ana, offset):
    ana.post("/v1/sessions", json={"session_id": "bad"}).raise_for_status()
    response = ana.get("/v1/stream/bad", params={"offset": offset})
    assert (response.status_code, response.json()["code"]) == (400, "invalid_offset")
