"""B: if a blob is lost, every route reports this; none responds with a 500."""

import json

from foldlog.tests.kit.played import Played
from foldlog.tests.web.gateway.served import lines_of
from foldlog.web.gateway.names import own_id


def blob_file(settings, ref):
    (path,) = settings.blobs_dir.rglob(f"*{ref.sha256[4:]}*")
    return path


def test_a_session_with_a_lost_blob_can_be_read_and_reports_it(settings, ana, log):
    long = "word " * 20_000
    ana.post("/v1/sessions/lost/messages", json={"text": long}).raise_for_status()
    played = Played(log, own_id("ana", "lost"))
    (received,) = played.views.messages.received
    played.call()
    blob_file(settings, received.content.ref).unlink()
    with ana.stream("GET", "/v1/sessions/lost/stream") as stream:
        data = next(line[6:] for line in lines_of(stream) if line.startswith("data: "))
    (block,) = json.loads(data)["line"]["content"]
    assert "missing from the blob store" in block["text"]
    base, first = "/inspector/api/sessions/lost", received.offset
    for path in (f"{base}/lines", f"{base}/moment", f"{base}/events", "/v1/stream/lost",
                 "/v1/sessions/lost/transcript", "/api/chat/lost/messages"):
        response = ana.get(path)
        assert response.status_code == 200, (path, response.text)
        assert "missing" in response.text or path.endswith(("events", "moment")), path
    for path in (f"{base}/request", f"{base}/compare?before={first}&after={first + 99}"):
        response = ana.get(path)
        assert (response.status_code, response.json()["code"]) == (503, "blob"), response.text
        assert "blob" in response.json()["detail"]
