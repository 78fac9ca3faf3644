"""Recorded sessions: the records of a partition as they lay in the log, and what they must fold to.

NAME.jsonl holds one record a line. NAME.expect.json holds what was true when it was recorded: the
fold's word on every record, the state, the transcript in short, each request's sha256, and the hash
of every view. The text of a record never changes; what it folds to may, on purpose: record.py.
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
    """A record as a line of text: readable where it is text, hex where it is bytes."""
    headers = [[name, value.decode("latin-1")] for name, value in record.headers]
    held = {
        "offset": record.offset,
        "at": record.timestamp_ms,
        "key": (record.key or b"").decode(),
        "headers": headers,
        "value": None if record.value is None else record.value.hex(),
    }
    return json.dumps(held, ensure_ascii=False)


def record_in(line: str) -> Record:
    """The record of a line."""
    held = json.loads(line)
    headers = tuple((name, value.encode("latin-1")) for name, value in held["headers"])
    value = None if held["value"] is None else bytes.fromhex(held["value"])
    return Record(
        SESSION_EVENTS, 0, held["offset"], held["at"], held["key"].encode(), value, headers
    )


def names() -> list[str]:
    """The recorded sessions."""
    return sorted(path.stem for path in SESSIONS.glob("*.jsonl"))


def records(name: str) -> list[Record]:
    """The records of a session."""
    return [record_in(line) for line in _file(name, "jsonl").read_text("utf-8").splitlines()]


def expected(name: str) -> dict[str, Any]:
    """What a session must fold to."""
    return json.loads(_file(name, "expect.json").read_text("utf-8"))


def write(name: str, log: Iterable[Record], blobs: Blobs) -> None:
    """Record a session."""
    log = list(log)
    lines = [to_line(record) for record in log]
    _file(name, "jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    write_expected(name, log, blobs)


def write_expected(name: str, log: Iterable[Record], blobs: Blobs) -> None:
    """Note what the records fold to now."""
    held = json.dumps(folded(log, blobs), indent=1, ensure_ascii=False)
    _file(name, "expect.json").write_text(held + "\n", "utf-8")


def _file(name: str, kind: str) -> Path:
    return SESSIONS / f"{name}.{kind}"


def blobs_of(held: dict[str, Any]) -> Blobs:
    """The blobs that a session's records name."""
    return {sha: text.encode() for sha, text in held["blobs"].items()}


def folded(log: Iterable[Record], blobs: Blobs) -> dict[str, Any]:
    """What records fold to, as the file of a session says it."""
    views, rulings, requests = initial(SESSION_ID), [], {}
    for record in log:
        entry = entry_of(record)
        if entry.session_id == PARTITION_KEY:
            continue
        views, ruling = fold(views, entry)
        said = ruling.code if ruling.code else ruling.verdict
        rulings.append(f"{entry.offset} {type(entry.event).__name__} {said}")
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
    said = []
    for line in views.transcript.lines:
        inline = (line.body.inline or b"").decode()[:80] if line.body is not None else ""
        words = (f"{line.turn}.{line.step}", line.kind, line.name, line.call, line.text, inline)
        said.append(" | ".join(word for word in words if word))
    return said
