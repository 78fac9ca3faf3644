"""Reads a record as an entry that the fold accepts. Every reader of the log uses `foldable_entry`.

A fold does no I/O, so the reader adds the seed with which a fork begins to the entry of its
SESSION_OPENED. If the seed is unavailable, the entry gets the reason instead: the fold then freezes
the fork, and other sessions continue.
"""

from ..log.blobs import BlobCorrupt, BlobMissing
from ..schemas.codec import Entry, entry_of
from ..schemas.events import BlobRef, RecordSkipped, SessionOpened
from ..schemas.events.parts import ReadBlob
from ..schemas.record import Record
from ..schemas.seed import Piece, Seed, joined, piece, unseal
from ..schemas.value import replace

SEEDED = frozenset({SessionOpened, RecordSkipped})  # the events that may name a seed


def foldable_entry(record: Record, read: ReadBlob | None, *, chunks: bool = False) -> Entry:
    """A record's entry for a fold. If the event is a fork's SESSION_OPENED or a RECORD_SKIPPED, the
    entry gets the seed or the reason why it is unavailable, except if `read` is None. `chunks`: as
    in `entry_of`."""
    entry = entry_of(record, chunks=chunks)
    event = entry.event
    if type(event) not in SEEDED or event.seed_ref is None or read is None:
        return entry
    return replace(entry, seed=seed_of(event.seed_ref, read))


def seed_of(ref: BlobRef, read: ReadBlob) -> Seed:
    """Reads a fork's seed, and the seeds of its ancestors if the parent is itself a fork."""
    levels: list[bytes] = []
    up: BlobRef | None = ref
    newest = ref

    def noted(one: BlobRef) -> bytes:
        nonlocal newest
        newest = one
        return read(one)

    try:
        while up is not None:
            levels.insert(0, level_of(up, noted))
            up = unseal(levels[0]).seed
    except (BlobMissing, BlobCorrupt) as error:  # `why` has no path, so it is equal everywhere
        return Seed(why=f"{type(error).__name__}: {newest.sha256}")
    except ValueError as error:
        return Seed(why=f"{type(error).__name__}: {error}")
    return Seed(tuple(levels))


def level_of(ref: BlobRef, read: ReadBlob) -> bytes:
    """The seed that a head names, joined with its segments. Raises ValueError, and the errors of
    `read`."""
    head = piece(read(ref))
    segments: list[Piece] = []
    before = head.previous
    while before is not None:
        segments.append(piece(read(before)))
        before = segments[-1].previous
    return joined(head, segments)
