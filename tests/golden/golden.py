"""Recorded sessions: the original records of a partition, and the outcome of folding these records.

NAME.jsonl has one record per line. NAME.expect.json has the outcome at the time of the recording:
the ruling on every record, the state, a shortened transcript, the sha256 of each request and the
hash of every view. The records never change. Their outcome may change on purpose: see record.py.
"""

import json
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from foldlog.processors.fold.projections.session_state import as_json
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import SessionViews, initial
from foldlog.processors.request.build import BUILDER, request_bytes, request_sha256
from foldlog.processors.store.views_codec import view_hashes
from foldlog.schemas import events as ev
from foldlog.schemas.codec import entry_of
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.record import Record
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.structure.tree import ROOT

SESSIONS = ROOT / "tests" / "golden" / "sessions"
SESSION_ID = "golden"
Blobs = dict[str, bytes]


def to_line(record: Record) -> str:
    """Encodes a record as a line of JSON, with the value in hex."""
    headers = [[name, value.decode("latin-1")] for name, value in record.headers]
    fields = {
        "offset": record.offset,
        "at": record.timestamp_ms,
        "key": (record.key or b"").decode(),
        "headers": headers,
        "value": None if record.value is None else record.value.hex(),
    }
    return json.dumps(fields, ensure_ascii=False)


def record_in(line: str) -> Record:
    """Decodes the record in a line."""
    fields = json.loads(line)
    headers = tuple((name, value.encode("latin-1")) for name, value in fields["headers"])
    value = None if fields["value"] is None else bytes.fromhex(fields["value"])
    return Record(
        SESSION_EVENTS, 0, fields["offset"], fields["at"], fields["key"].encode(), value, headers
    )


def names() -> list[str]:
    """Lists the names of the recorded sessions."""
    return sorted(path.stem for path in SESSIONS.glob("*.jsonl"))


def records(name: str) -> list[Record]:
    """Reads the records of a session."""
    return [record_in(line) for line in _file(name, "jsonl").read_text("utf-8").splitlines()]


def expected(name: str) -> dict[str, Any]:
    """Reads the expected outcome of folding a session."""
    return json.loads(_file(name, "expect.json").read_text("utf-8"))


def write(name: str, log: Iterable[Record], blobs: Blobs) -> None:
    """Writes the records of a session and their outcome."""
    log = list(log)
    lines = [to_line(record) for record in log]
    _file(name, "jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    write_expected(name, log, blobs)


def write_expected(name: str, log: Iterable[Record], blobs: Blobs) -> None:
    """Writes the current outcome of folding the records."""
    text = json.dumps(folded(log, blobs), indent=1, ensure_ascii=False)
    _file(name, "expect.json").write_text(text + "\n", "utf-8")


def _file(name: str, kind: str) -> Path:
    return SESSIONS / f"{name}.{kind}"


def blobs_of(outcome: dict[str, Any]) -> Blobs:
    """Returns the blobs that the records of a session refer to."""
    return {sha: text.encode() for sha, text in outcome["blobs"].items()}


def folded(log: Iterable[Record], blobs: Blobs) -> dict[str, Any]:
    """Folds records and returns the outcome in the format of NAME.expect.json."""
    views, rulings, requests = initial(SESSION_ID), [], {}
    for record in log:
        entry = entry_of(record)
        if entry.session_id == PARTITION_KEY:
            continue
        views, ruling = fold(views, entry)
        verdict = ruling.code or ruling.verdict
        rulings.append(f"{entry.offset} {type(entry.event).__name__} {verdict}")
        if ruling.accepted and isinstance(entry.event, ev.LlmCalled):
            request = request_bytes(views, lambda ref: blobs[ref.sha256])
            requests[f"{entry.event.turn}.{entry.event.step}"] = request_sha256(request)
    assert all(sha256(data).hexdigest() == sha for sha, data in blobs.items())
    return {
        "state": json.loads(as_json(views.state)),
        "transcript": _transcript(views),
        "requests": requests,
        "builder": BUILDER,
        "rulings": rulings,
        "views": view_hashes(views),
        "blobs": {sha: data.decode() for sha, data in blobs.items()},
    }


def _transcript(views: SessionViews) -> list[str]:
    lines = []
    for line in views.transcript.lines:
        inline = (line.body.inline or b"").decode()[:80] if line.body is not None else ""
        words = (f"{line.turn}.{line.step}", line.kind, line.name, line.call, line.text, inline)
        lines.append(" | ".join(word for word in words if word))
    return lines
