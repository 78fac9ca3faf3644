"""Encodes and decodes events: Avro single-object encoding, one schema per event type.

A record's value consists of `C3 01`, the 8-byte fingerprint of the writer's schema, and the Avro
body (Avro 1.11 specification, single-object encoding). A record header contains the event type, so
a reader can skip chunks without decoding them.
"""

import io
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from hashlib import sha256
from importlib import resources
from typing import Any, NamedTuple

import msgspec
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.schema import fingerprint, to_parsing_canonical_form

from .compiled import compiled_decoder
from .events import EVENT_TYPES, EventType
from .memory import MEMORY_TYPES
from .origin import HEADER as BY
from .record import Record
from .seed import Seed
from .topics import MEMORY_EVENTS
from .value import Value

MAGIC = b"\xc3\x01"
HEAD_BYTES = 10  # the magic and the fingerprint
_ADDRESS = re.compile(r" at 0x[0-9a-f]+", re.IGNORECASE)
"""The address of an object in an error of fastavro. The reason is in the view of a frozen session,
so every reader has to find the same one."""
Headers = list[tuple[str, bytes]]
Schema = dict[str, Any]
"""An Avro schema, or the content of a file of history/, as a dict parsed from JSON."""

_Reader = tuple[type, Any, Any]
"""Class, the writer's parsed schema, and the current schema if it differs (else None)."""

ROWS = (*EVENT_TYPES, *MEMORY_TYPES)
"""Every event that has a schema. A memory event is valid in its own topic only."""
BY_NAME = {row.name: row for row in ROWS}
BY_CLASS = {row.cls: row for row in ROWS}
_MEMORY = frozenset(row.cls for row in MEMORY_TYPES)


class Undecodable(ValueError):
    """A record is not a known event: the worker dead-letters it, or freezes its session."""


class ChunkSeen(Value):
    """The fields of a GEN_CHUNK that a fold needs, read from the record header `g`,
    not the value."""

    turn: int
    step: int
    attempt: int


class Unreadable(Value):
    """A record that could not be decoded. With `must_understand`, the fold freezes its session."""

    type: str
    must_understand: bool
    why: str


class Entry(Value):
    """One event and its position in the log. `at`: broker time in Unix ms, never used for ordering.

    `writer`: the role in the record header `w`.
    `session_id`: the record's key, which is a scope in memory-events.
    `seed`: the resolved seed, for a fork's SESSION_OPENED only (processors/entries.py).
    `by`: the value of the record header `by`, which names who recorded a person's command
        (origin.py).
    """

    session_id: str
    partition: int
    offset: int
    at: int
    writer: str
    event: Any
    seed: Seed | None = None
    by: str = ""


def schema_of(name: str) -> Schema:
    """The .avsc of an event type, as a dict."""
    text = resources.files(__package__).joinpath("avro", f"{name}.avsc").read_text("utf-8")
    schema: Schema = json.loads(text)
    return schema


@cache
def _writer(cls: type) -> tuple[bytes, Any]:
    schema = schema_of(BY_CLASS[cls].name)
    return MAGIC + fingerprint_of(schema), parse_schema(schema)


def fingerprint_of(schema: Schema) -> bytes:
    """The CRC-64-AVRO of a schema's canonical form. fastavro returns it in hex, with the lowest
    byte first."""
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


def fingerprints(rows: Iterable[EventType]) -> str:
    """A hash of the schemas of these events, 12 hex digits."""
    shapes = b"".join(fingerprint_of(schema_of(row.name)) for row in rows)
    return sha256(shapes).hexdigest()[:12]


@cache
def _readers() -> dict[bytes, _Reader]:
    """The readers of the current schemas, by the first 10 bytes of a value (HEAD_BYTES)."""
    return {_writer(row.cls)[0]: (row.cls, _writer(row.cls)[1], None) for row in ROWS}


@cache
def _history() -> list[Schema]:
    """The files of history/, read when the first record with a retired schema is decoded."""
    files = resources.files(__package__).joinpath("history").iterdir()
    return [json.loads(f.read_text("utf-8")) for f in files if f.name.endswith(".json")]


@cache
def _retired() -> dict[bytes, _Reader]:
    """The readers of retired schemas, which the current code no longer writes."""
    return {
        head: reader for head, reader in map(reader_of, _history()) if head not in _readers()
    }


@cache
def shapes() -> dict[bytes, Schema]:
    """Every schema whose records can be decoded, by the first 10 bytes of such a record's value.
    This function is slow."""
    schemas = [shape["schema"] for shape in _history()] + [schema_of(row.name) for row in ROWS]
    return {MAGIC + fingerprint_of(schema): schema for schema in schemas}


def reader_of(shape: Schema) -> tuple[bytes, _Reader]:
    """The first 10 bytes of every value that was written with an old schema, and the reader for
    these values.

    `shape` is a file of history/: {type, schema, ...}. Fields that the old schema lacks take their
    defaults.
    """
    cls = BY_NAME[shape["type"]].cls
    head = MAGIC + fingerprint_of(shape["schema"])
    return head, (cls, parse_schema(shape["schema"]), _writer(cls)[1])


def encode(event: object) -> bytes:
    """The record value of an event. Raises ValueError when a field does not fit its schema."""
    return encode_as(event, *_writer(BY_CLASS[type(event)].cls))


def encode_as(event: object, head: bytes, schema: Any) -> bytes:
    """A record value: the head, and the event as its parsed schema demands. Raises ValueError when
    a field does not fit the schema."""
    out = io.BytesIO()
    out.write(head)
    fields = msgspec.to_builtins(event, builtin_types=(bytes,))
    try:
        msgspec.convert(fields, type(event))  # checks bounds, so that what is written can be read
        schemaless_writer(out, schema, fields, strict=True)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{type(event).__name__}: {error}") from error
    return out.getvalue()


def digest(event: Any) -> bytes:
    """An 8-byte hash of an event's fields. GEN_START.called holds the hash of its LLM_CALLED."""
    return sha256(msgspec.msgpack.encode(event)).digest()[:8]


_compiled = compiled_decoder()


def use_compiled(wanted: bool) -> bool:
    """Decode with the compiled decoder from now on, if it is built, or in Python only. Returns
    whether the compiled decoder is in use."""
    global _compiled
    if wanted != (_compiled is not None):
        _compiled = compiled_decoder() if wanted else None
    return _compiled is not None


def uses_compiled() -> bool:
    """Whether this process decodes with the compiled decoder."""
    return _compiled is not None


def decode(value: bytes) -> Any:
    """The event in a record value. Raises Undecodable with the reason."""
    compiled = _compiled
    if compiled is not None:
        event = compiled.decode(value)
        if event is not None:
            return event
    if len(value) < HEAD_BYTES or value[:2] != MAGIC:
        raise Undecodable(f"not Avro single-object encoding: {len(value)} bytes {value[:10]!r}")
    head = value[:HEAD_BYTES]
    reader = _readers().get(head) or _retired().get(head)
    if reader is None:
        raise Undecodable(f"unknown schema fingerprint {head[2:].hex()}")
    if compiled is not None:
        compiled.learn(head, *reader)
    return read_as(value, *reader)


def read_as(value: bytes, cls: type, written: Any, read: Any) -> Any:
    """Decodes the event in a record's value. Avro schema resolution converts the event from the
    schema with which it was written (`written`) to the current schema (`read`).

    Raises Undecodable with the reason.
    """
    body = io.BytesIO(value)
    body.seek(HEAD_BYTES)
    try:
        event: Any = msgspec.convert(schemaless_reader(body, written, read), cls)
    except Exception as error:  # fastavro raises EOFError, IndexError, struct.error, UnicodeError..
        why = _ADDRESS.sub("", str(error))
        raise Undecodable(f"{cls.__name__}: {type(error).__name__}: {why}") from error
    if body.tell() != len(value):
        raise Undecodable(f"{cls.__name__}: {len(value) - body.tell()} bytes are left over")
    return event


def headers_for(event: Any, writer: str) -> Headers:
    """The record headers of an event: type, writer role, must-understand, and `g` for a chunk."""
    row = BY_CLASS[type(event)]
    headers = [("t", row.name.encode()), ("w", writer.encode())]
    if row.must_understand:
        headers.append(("m", b"1"))
    if row.name == "GEN_CHUNK":
        headers.append(("g", f"{event.turn}.{event.step}.{event.attempt}".encode()))
    return headers


def _header(headers: Sequence[tuple[str, bytes]], name: str) -> str:
    for key, value in headers:
        if key == name and value:
            return value.decode("utf-8", "replace")
    return ""


def entry_of(record: Record, *, chunks: bool = False) -> Entry:
    """A record as an entry. Never raises: a record that cannot be decoded becomes Unreadable.

    `chunks=False` leaves GEN_CHUNK undecoded (ChunkSeen), which makes a refold 2-4 times faster.
    """
    topic, partition, offset, at, key, value, headers = record
    session_id = key.decode("utf-8", "replace") if key else ""
    name, writer, by, must_understand, seen = _read_headers(headers, chunks)
    if seen is not None:
        return Entry(session_id, partition, offset, at, writer, seen, None, by)
    event = _decoded(topic, name, value or b"", must_understand)
    return Entry(session_id, partition, offset, at, writer, event, None, by)


class _Headers(NamedTuple):
    """The parsed headers of a record. `chunk`: the contents of the header `g`, if the record is a
    GEN_CHUNK whose value will not be decoded."""

    name: str
    writer: str
    by: str
    must_understand: bool
    chunk: ChunkSeen | Unreadable | None


# Few differ: one set for each type and writer, and for each streaming attempt.
@lru_cache(maxsize=1024)
def _read_headers(headers: tuple[tuple[str, bytes], ...], chunks: bool) -> _Headers:
    if not chunks and len(headers) == 3 and headers[0] == CHUNK and headers[2][0] == "g":
        writer = headers[1][1].decode("utf-8", "replace")
        return _Headers("GEN_CHUNK", writer, "", False, _chunk_seen(headers[2][1]))
    name = _header(headers, "t")
    chunk = None
    if name == "GEN_CHUNK" and not chunks:
        chunk = _chunk_seen(_header(headers, "g").encode())
    must_understand = _header(headers, "m") == "1"
    return _Headers(name, _header(headers, "w"), _header(headers, BY), must_understand, chunk)


def _decoded(topic: str, name: str, value: bytes, must_understand: bool) -> Any:
    try:
        event = decode(value)
        if type(event) in _MEMORY and topic != MEMORY_EVENTS:  # session folds do not handle it
            raise Undecodable(f"{name} belongs into {MEMORY_EVENTS}, not into {topic}")
        if name != BY_CLASS[type(event)].name:
            raise Undecodable(f"header says {name!r}, value is {type(event).__name__}")
    except Undecodable as error:
        known = BY_NAME.get(name)
        must = must_understand or (known is not None and known.must_understand)
        return Unreadable(name, must, str(error))
    return event


CHUNK = ("t", b"GEN_CHUNK")
"""The first header of a chunk, as headers_for writes it."""


def _chunk_seen(value: bytes) -> ChunkSeen | Unreadable:
    parts = value.decode("utf-8", "replace").split(".")
    if len(parts) != 3 or not all(p.isascii() and p.isdigit() and len(p) < 10 for p in parts):
        return Unreadable("GEN_CHUNK", False, "a chunk without a readable header g")
    return ChunkSeen(int(parts[0]), int(parts[1]), int(parts[2]))
