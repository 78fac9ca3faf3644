"""Seeds resolved: the one place where a reader of the log gets what a fork begins with.

A fold does no I/O, so whoever decodes a SESSION_OPENED of a fork hands the seed's bytes to it with
the entry. The worker, every viewer, replays, the gateway and the simulator come here. A seed that
can not be had is told with the reason: the fold then freezes the fork, and its neighbours go on.
"""

from collections.abc import Callable

from ...producers.blobs import BlobCorrupt, BlobMissing
from ...schemas.codec import Entry
from ...schemas.events import BlobRef, SessionOpened
from ...schemas.seed import Seed, unseal
from ...schemas.value import replace

ReadBlob = Callable[[BlobRef], bytes]


def seeded(entry: Entry, read: ReadBlob | None) -> Entry:
    """The entry; of a fork's SESSION_OPENED with its seed, or with why it can not be had."""
    event = entry.event
    if type(event) is not SessionOpened or event.seed_ref is None or read is None:
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
    except (BlobMissing, BlobCorrupt, ValueError) as error:
        return Seed(why=f"{type(error).__name__}: {error}")
    return Seed(tuple(levels))
