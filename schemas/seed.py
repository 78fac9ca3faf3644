"""Seeds: the history that a fork starts with, as bytes for the blob store.

A seed holds the records of the fork's parent up to the fork, as stored in the log. Every reader of
the fork refolds them, so a seed stays valid as long as the log format. Chunks are left out, except
those of an attempt that was still open. The same records give the same bytes, so forks at the same
offset share one blob.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from .bounds import Count, TimeMs
from .events.parts import BlobRef
from .record import Record
from .topics import SESSION_EVENTS
from .value import Value

MEDIA_TYPE = "application/vnd.foldlog.seed"
FORMAT = 1


class Seed(Value):
    """The resolved seed of a fork. `levels`: one blob for each ancestor, from the oldest to the
    parent. `why`: the reason if a blob is unavailable; `levels` is then empty."""

    levels: tuple[bytes, ...] = ()
    why: str = ""


class _SealedRecord(Value):
    offset: Count
    at: TimeMs
    headers: tuple[tuple[str, bytes], ...]
    value: bytes | None


class _Sealed(Value):
    format: int
    session_id: str
    seed: tuple[str, int, str] | None
    partition: int
    records: tuple[_SealedRecord, ...]


class Unsealed(NamedTuple):
    """The content of a seed. `session_id`: the parent;
    `seed`: the parent's seed, if it is a fork."""

    session_id: str
    seed: BlobRef | None
    records: Iterator[Record]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Sealed)


def seal(session_id: str, records: Iterable[Record], seed: BlobRef | None = None) -> bytes:
    """The bytes of a seed with a session's records, which must be in log order. `seed`: the seed of
    that session, if the session is itself a fork."""
    sealed, partition = [], 0
    for record in records:
        partition = record.partition
        headers = tuple((name, bytes(value)) for name, value in record.headers)
        sealed.append(_SealedRecord(record.offset, record.timestamp_ms, headers, record.value))
    up = None if seed is None else (seed.sha256, seed.bytes, seed.media_type)
    return _ENCODER.encode(_Sealed(FORMAT, session_id, up, partition, tuple(sealed)))


def unseal(data: bytes) -> Unsealed:
    """Decode the bytes of a seed. Raises ValueError."""
    try:
        sealed = _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{len(data)} bytes that are no seed: {error}") from error
    if sealed.format != FORMAT:
        raise ValueError(f"a seed of format {sealed.format}: this version reads {FORMAT}")
    key, seed = sealed.session_id.encode(), None
    if sealed.seed is not None:
        sha256, size, media_type = sealed.seed
        seed = BlobRef(sha256=sha256, bytes=size, media_type=media_type)
    records = (
        Record(SESSION_EVENTS, sealed.partition, one.offset, one.at, key, one.value, one.headers)
        for one in sealed.records
    )
    return Unsealed(sealed.session_id, seed, records)
