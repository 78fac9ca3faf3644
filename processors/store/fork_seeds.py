"""Seeds resolved: the one place where a reader of the log gets what a fork begins with.

A fold does no I/O, so whoever decodes a SESSION_OPENED of a fork hands the seed's bytes to it with
the entry. The worker, every viewer, replays, the gateway and the simulator come here. A seed that
can not be had is told with the reason: the fold then freezes the fork, and its neighbours go on.
"""

from collections.abc import Callable

from ...log.blobs import BlobCorrupt, BlobMissing
from ...schemas.codec import Entry, entry_of
from ...schemas.events import BlobRef, RecordSkipped, SessionOpened
from ...schemas.record import Record
from ...schemas.seed import Seed, unseal
from ...schemas.value import replace

ReadBlob = Callable[[BlobRef], bytes]


def foldable_entry(record: Record, read: ReadBlob | None, *, chunks: bool = False) -> Entry:
    """A record as a fold needs it: a fork's SESSION_OPENED, and a RECORD_SKIPPED, with the seed or
    with why it is unavailable. `read` None: without either. `chunks`: as `entry_of`."""
    entry = entry_of(record, chunks=chunks)
    event = entry.event
    if type(event) not in (SessionOpened, RecordSkipped) or event.seed_ref is None or read is None:
        return entry
    return replace(entry, seed=seed_of(event.seed_ref, read))


def seed_of(ref: BlobRef, read: ReadBlob) -> Seed:
    """A seed and those of its ancestors: a fork may have been forked."""
    levels: list[bytes] = []
    up: BlobRef | None = ref
    try:
        while up is not None:
            levels.insert(0, read(up))
            up = unseal(levels[0]).seed
    except (BlobMissing, BlobCorrupt) as error:  # the same everywhere: no path of this machine
        assert up is not None
        return Seed(why=f"{type(error).__name__}: {up.sha256}")
    except ValueError as error:
        return Seed(why=f"{type(error).__name__}: {error}")
    return Seed(tuple(levels))
