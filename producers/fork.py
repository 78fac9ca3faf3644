"""The write side of a fork: stores the parent's records as a seed blob, then writes the events.

The blob is on disk before the SESSION_OPENED that refers to it is produced. The caller and the fold
decide who may fork which session.
"""

from collections.abc import Collection, Iterable

from ..log.blobs import BlobStore
from ..log.door import Log
from ..log.errors import LogUnreachable
from ..schemas.enums import WhenBusy
from ..schemas.events import MessageReceived, RecordSkipped, SessionOpened
from ..schemas.events.parts import BlobRef, Body
from ..schemas.record import Record
from ..schemas.seed import MEDIA_TYPE, seal
from ..schemas.topics import SESSION_EVENTS
from . import checks
from .sessions import RULES, Receipt, Sessions

POLL_S = 0.2
STALLS_MAX = 50  # polls in a row that bring nothing: 10 s


def read_records(log: Log, session_id: str, partition: int, end: int) -> list[Record]:
    """The records of a session before the offset `end`. Raises LogUnreachable, TopicMissing."""
    first = log.first_offsets(SESSION_EVENTS)[partition]
    reader = log.reader(SESSION_EVENTS, {partition: first})
    key, stalls = session_id.encode(), 0
    found: list[Record] = []
    try:
        while reader.positions().get(partition, first) < end:
            records = reader.poll(POLL_S)
            stalls = 0 if records else stalls + 1
            if stalls > STALLS_MAX:
                raise LogUnreachable(
                    f"the log stopped answering while session {session_id} was read. Nothing was "
                    "written. Look at the broker (`foldlog status`), then try again."
                )
            found += [record for record in records if record.key == key and record.offset < end]
    finally:
        reader.close()
    return found


def without_chunks(records: Iterable[Record], streaming: Iterable[str] = ()) -> list[Record]:
    """The records that a seed holds: of chunks those of the attempts that are named.

    streaming: TURN.STEP.ATTEMPT each, as a chunk's header `g` says it.
    """
    kept = {name.encode() for name in streaming}
    return [
        record
        for record in records
        if record.header("t") != b"GEN_CHUNK" or record.header("g") in kept
    ]


def without_skipped(records: Iterable[Record], skipped: Collection[int]) -> list[Record]:
    """The records without those that are passed over, and without the events that say so: they
    fold to what the session is."""
    return [
        record
        for record in records
        if record.offset not in skipped and record.header("t") != b"RECORD_SKIPPED"
    ]


def store_seed(
    blobs: BlobStore, session_id: str, records: Iterable[Record], seed: BlobRef | None
) -> BlobRef:
    """Keep a seed; the same records are kept once. `seed`: of a parent that is a fork itself."""
    return blobs.store(seal(session_id, records, seed), MEDIA_TYPE)


def open_fork(
    sessions: Sessions,
    session_id: str,
    parent: str,
    offset: int,
    seed: BlobRef,
    *,
    agent: str,
    user: str | None = None,
) -> Receipt:
    """Begin a session as another was right after an offset; `seed` is in the blob store."""
    return sessions.append(
        session_id,
        SessionOpened(
            user_id=sessions.user(user),
            agent=checks.an_id("agent", agent),
            rules=RULES,
            parent_session=checks.an_id("parent", parent),
            parent_offset=offset,
            seed_ref=seed,
        ),
    )


def skip_record(
    sessions: Sessions,
    session_id: str,
    offset: int,
    seed: BlobRef,
    *,
    reason: str = "",
    user: str | None = None,
) -> Receipt:
    """Have a session continue without the record at an offset; `seed` is in the blob store."""
    return sessions.append(
        session_id,
        RecordSkipped(
            offset=offset,
            seed_ref=seed,
            reason=checks.a_reason(reason),
            by_user=sessions.user(user),
        ),
    )


def repeat(
    sessions: Sessions,
    session_id: str,
    message_id: str,
    content: Body,
    tokens: int,
    *,
    channel: str = "python",
    user: str | None = None,
) -> Receipt:
    """Say to a fork what was said to its parent: the same bytes under the same id."""
    return sessions.append(
        session_id,
        MessageReceived(
            message_id=checks.an_id("message_id", message_id),
            role="user",
            content=content,
            tokens=tokens,
            channel=checks.an_id("channel", channel),
            when_busy=WhenBusy.QUEUE.value,
            by_user=sessions.user(user),
        ),
        message_id,
    )
