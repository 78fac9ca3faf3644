"""B: what lies in the blob store and is lost is told in words, by every route, and is no 500."""

import json

import pytest

from foldlog.consumers.gateway.access import token_for
from foldlog.consumers.gateway.names import own_id
from foldlog.tests.consumers.gateway.served import served
from foldlog.tests.consumers.played import Played, memory_log, settings_in

SECRET = "s" * 40


@pytest.fixture(scope="module")
def log():
    return memory_log(threaded=True)


@pytest.fixture(scope="module")
def gateway(log, tmp_path_factory):
    place = tmp_path_factory.mktemp("gateway")
    with served(log, settings_in(place), place / "gateway", secret=SECRET) as running:
        yield running


@pytest.fixture(scope="module")
def ana(gateway):
    with gateway.http(token_for("ana", SECRET)) as http:
        yield http


def lose(gateway, ref):
    (kept,) = gateway.gateway.settings.blobs_dir.rglob(f"*{ref.sha256[4:]}*")
    kept.unlink()


def test_a_session_whose_blob_is_lost_can_be_looked_at_and_says_so(gateway, ana, log):
    long = "word " * 20_000
    ana.post("/v1/sessions/lost/messages", json={"text": long}).raise_for_status()
    played = Played(log, own_id("ana", "lost"))
    (received,) = played.views.messages.received
    played.call()
    lose(gateway, received.content.ref)
    with ana.stream("GET", "/v1/sessions/lost/stream") as stream:
        told = next(line[6:] for line in stream.iter_lines() if line.startswith("data: "))
    (block,) = json.loads(told)["line"]["content"]
    assert "missing from the blob store" in block["text"]
    looks, first = "/inspector/api/sessions/lost", received.offset
    for path in (f"{looks}/lines", f"{looks}/moment", f"{looks}/events", "/v1/stream/lost",
                 "/v1/sessions/lost/transcript", "/api/chat/lost/messages"):
        answer = ana.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert "missing" in answer.text or path.endswith(("events", "moment")), path
    for path in (f"{looks}/request", f"{looks}/compare?before={first}&after={first + 99}"):
        answer = ana.get(path)
        assert (answer.status_code, answer.json()["code"]) == (503, "blob"), answer.text
        assert "blob" in answer.json()["detail"]


def test_a_written_stream_whose_blob_is_lost_says_so_and_goes_on_when_it_is_back(gateway, ana, log):
    kind = {"content-type": "text/plain"}
    ana.put("/v1/stream/torn", headers=kind, content=b"x" * 100_000).raise_for_status()
    ana.put("/v1/stream/other", headers=kind, content=b"whole").raise_for_status()
    (batch,) = Played(log, own_id("ana", "torn")).views.items.batches
    (kept,) = gateway.gateway.settings.blobs_dir.rglob(f"*{batch.content.ref.sha256[4:]}*")
    data = kept.read_bytes()
    kept.unlink()
    with served(log, gateway.gateway.settings, kept.parent / "gateway-2", secret=SECRET) as second:
        with second.http(token_for("ana", SECRET)) as http:
            read = http.get("/v1/stream/torn")
            append = http.post("/v1/stream/torn", headers=kind, content=b"more")
            for answer in (read, append):
                assert (answer.status_code, answer.json()["code"]) == (503, "blob"), answer.text
            assert http.get("/v1/stream/other").content == b"whole"
            kept.write_bytes(data)
            assert http.post("/v1/stream/torn", headers=kind, content=b"more").status_code == 204
            assert http.get("/v1/stream/torn").content == b"x" * 100_000 + b"more"
