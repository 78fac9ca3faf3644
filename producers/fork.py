"""Writes a fork: stores the parent's records as a seed, then writes the events.

The seed is on disk before the event that refers to it is produced. This file does not check
permissions: the caller and the fold decide who may fork which session.
"""

from collections.abc import Collection, Iterable

from ..log.blobs import BlobStore
from ..schemas.enums import Outcome, WhenBusy
from ..schemas.events import MessageReceived, RecordSkipped, ResultReplaced, SessionOpened
from ..schemas.events.parts import BlobRef, Body
from ..schemas.record import Record
from ..schemas.seed import MEDIA_TYPE, pieces
from ..schemas.tokens import estimate
from . import checks
from .sessions import RULES, Receipt, Sessions


def without_chunks(records: Iterable[Record], streaming: Iterable[str] = ()) -> list[Record]:
    """The records to store in a seed: all records except chunks of attempts that are not in
    `streaming`.

    streaming: attempts as TURN.STEP.ATTEMPT, the value of a chunk's header `g`.
    """
    wanted = {name.encode() for name in streaming}
    return [
        record
        for record in records
        if record.header("t") != b"GEN_CHUNK" or record.header("g") in wanted
    ]


def without_skipped(records: Iterable[Record], skipped: Collection[int]) -> list[Record]:
    """The records without skipped records and without RECORD_SKIPPED events.

    The result folds to the same state as the session.
    """
    return [
        record
        for record in records
        if record.offset not in skipped and record.header("t") != b"RECORD_SKIPPED"
    ]


def store_seed(
    blobs: BlobStore, session_id: str, records: Iterable[Record], seed: BlobRef | None
) -> BlobRef:
    """Store the records as a seed; segments that other seeds have are not written again.

    seed: the parent's own seed, if the parent is a fork.
    """
    *segments, head = pieces(session_id, records, seed)
    for segment in segments:  # before the head, which names them
        blobs.ensure(segment, MEDIA_TYPE)
    return blobs.ensure(head, MEDIA_TYPE)


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
    """Open a session in the state that its parent had after an offset.

    `seed` must be stored already.
    """
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
    """Make a session continue without the record at an offset. `seed` must be stored already."""
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
    """Send a message of the parent to a fork, with the same bytes and the same id."""
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


def replace_result(
    sessions: Sessions,
    session_id: str,
    call: str,
    text: str,
    *,
    error: bool = False,
    reason: str = "",
    user: str | None = None,
) -> Receipt:
    """Replace the result of a call that a fork inherited. The fold refuses this once a request has
    contained the result."""
    content = checks.a_result(text)
    return sessions.append(
        session_id,
        ResultReplaced(
            call=checks.a_call(call),
            outcome=(Outcome.ERROR if error else Outcome.OK).value,
            content=Body(inline=content),
            tokens=estimate(content),
            reason=checks.a_reason(reason),
            by_user=sessions.user(user),
        ),
    )
