"""Seeds: the history that a fork starts with, as bytes for the blob store.

A seed holds the records of the fork's parent up to the fork, as stored in the log. Every reader of
the fork refolds them, so a seed stays valid as long as the log format. Chunks are left out, except
those of an attempt that was still open.

A long history is a chain of blobs, so that a further fork writes only what is new. The last blob is
the head, which a fork's `seed_ref` names: it has the newest records and names the segment before
them, which names the segment before it, and so on. A segment holds only records, and its end
depends only on the records up to there, so every seed with the same beginning has the same
segments: those of other forks, of skips and of moves.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec

from .bounds import Count, TimeMs
from .events.parts import BlobRef
from .record import Record
from .topics import SESSION_EVENTS
from .value import Value

MEDIA_TYPE = "application/vnd.foldlog.seed"

WHOLE, CHAINED = 1, 2
"""The formats: a blob without a segment before it, and one that names a segment."""

LEAF_RECORDS_MAX = 64
GROUP_LEAVES = 8
SEGMENT_BASE = 11
"""A leaf is a turn's records up to its TURN_ENDED, or 64 of them. Eight leaves are a group. A
segment has 1, 11, 121, ... groups, the largest first, at most 10 of each size: up to 10,647 leaves
are at most 30 segments and a head, which has at most seven whole leaves. A fork one turn after
another writes its head, after every eighth turn also a group, and after every 88th eleven of them.
"""


class Seed(Value):
    """The resolved seed of a fork. `levels`: one seed without segments for each ancestor, from the
    oldest to the parent. `why`: the reason if a blob is unavailable; `levels` is then empty."""

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


class Piece(_Sealed):
    """One blob of a seed. `session_id`: '' in a segment. `before`: the segment before it."""

    before: tuple[str, int, str] | None = None

    @property
    def previous(self) -> BlobRef | None:
        """The segment before it."""
        return _ref(self.before)


class Unsealed(NamedTuple):
    """The content of a seed. `session_id`: the parent;
    `seed`: the parent's seed, if it is a fork."""

    session_id: str
    seed: BlobRef | None
    records: Iterator[Record]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Piece)


def seal(
    session_id: str,
    records: Iterable[Record],
    seed: BlobRef | None = None,
    before: BlobRef | None = None,
) -> bytes:
    """One blob of a seed, with a session's records, which must be in log order. `seed`: the seed of
    that session, if the session is itself a fork. `before`: the segment before these records."""
    sealed, partition = [], 0
    for record in records:
        partition = record.partition
        headers = tuple((name, bytes(value)) for name, value in record.headers)
        sealed.append(_SealedRecord(record.offset, record.timestamp_ms, headers, record.value))
    return _encoded(session_id, _parts(seed), partition, tuple(sealed), _parts(before))


def pieces(
    session_id: str, records: Iterable[Record], seed: BlobRef | None = None
) -> Iterator[bytes]:
    """The blobs of a seed: its segments, from the oldest, and then the head."""
    records = list(records)
    begin, before = 0, None
    for end in _segment_ends(records):
        data = seal("", records[begin:end], before=before)
        yield data
        name = sha256(data).hexdigest()
        begin, before = end, BlobRef(sha256=name, bytes=len(data), media_type=MEDIA_TYPE)
    yield seal(session_id, records[begin:], seed, before)


def piece(data: bytes) -> Piece:
    """Decode one blob of a seed. Raises ValueError."""
    try:
        found = _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{len(data)} bytes that are no seed: {error}") from error
    if found.format not in (WHOLE, CHAINED):
        raise ValueError(
            f"a seed of format {found.format}: this version reads {WHOLE} and {CHAINED}"
        )
    return found


def joined(head: Piece, segments: Sequence[Piece]) -> bytes:
    """One blob with the content of a head and its segments, which are given from the newest. Raises
    ValueError."""
    if not head.session_id or any(segment.session_id for segment in segments):
        raise ValueError("a segment in the place of a seed, or a seed in the place of a segment")
    newest = segments[0] if segments and not head.records else head
    blobs = (*reversed(segments), head)
    records = tuple(record for blob in blobs for record in blob.records)
    return _encoded(head.session_id, head.seed, newest.partition, records, None)


def unseal(data: bytes) -> Unsealed:
    """Decode the bytes of a seed without segments. Raises ValueError."""
    sealed = piece(data)
    if sealed.before is not None:
        raise ValueError("a seed whose segments are not joined")
    key = sealed.session_id.encode()
    records = (
        Record(SESSION_EVENTS, sealed.partition, one.offset, one.at, key, one.value, one.headers)
        for one in sealed.records
    )
    return Unsealed(sealed.session_id, _ref(sealed.seed), records)


def _segment_ends(records: Sequence[Record]) -> list[int]:
    """How many records end with each segment, in order."""
    leaves = _leaf_ends(records)
    ends, groups = list[int](), len(leaves) // GROUP_LEAVES
    while groups:
        ends.append(leaves[groups * GROUP_LEAVES - 1])
        size = 1
        while groups % (size * SEGMENT_BASE) == 0:
            size *= SEGMENT_BASE
        groups -= size
    return ends[::-1]


def _leaf_ends(records: Sequence[Record]) -> list[int]:
    """How many records end with each complete leaf."""
    ends, begin = list[int](), 0
    for end, record in enumerate(records, 1):
        if record.header("t") == b"TURN_ENDED" or end - begin == LEAF_RECORDS_MAX:
            ends.append(end)
            begin = end
    return ends


def _encoded(
    session_id: str,
    seed: tuple[str, int, str] | None,
    partition: int,
    records: tuple[_SealedRecord, ...],
    before: tuple[str, int, str] | None,
) -> bytes:
    if before is None:
        return _ENCODER.encode(_Sealed(WHOLE, session_id, seed, partition, records))
    return _ENCODER.encode(Piece(CHAINED, session_id, seed, partition, records, before))


def _parts(ref: BlobRef | None) -> tuple[str, int, str] | None:
    return None if ref is None else (ref.sha256, ref.bytes, ref.media_type)


def _ref(parts: tuple[str, int, str] | None) -> BlobRef | None:
    if parts is None:
        return None
    name, size, media_type = parts
    return BlobRef(sha256=name, bytes=size, media_type=media_type)
