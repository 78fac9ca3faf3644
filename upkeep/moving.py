"""Moves every session of a log to a new log, such as one with more partitions.

Events refer to offsets, so records are not copied. Like a fork, a session begins in the new log
with its old records as its seed, and keeps its name, user and agent. Transcript, context, phase,
project and messages move. As with a fork, calls in doubt and costs do not move. Open turns do not
move either: in the new log they are closed. Terminated sessions stay in the old log too. Memory is
copied. At the end the old log is marked as moved; it can still be read.
"""

from collections.abc import Callable
from typing import NamedTuple

from ..client.branching import streaming_attempts
from ..client.follow import read_before
from ..client.show import Everything, fold_everything
from ..client.waiting import doubtful
from ..log.blobs import open_blobs
from ..log.door import Log, Offsets
from ..log.errors import LogUnreachable, Refused
from ..log.made import LogMoved, apply_topics, facts_of, note, partitions_of
from ..log.settings import Settings
from ..processors.fold.projections.partition import ROLES
from ..processors.fold.views import SessionViews
from ..producers.fork import open_fork, store_seed, without_chunks, without_skipped
from ..producers.sessions import Sessions
from ..schemas.codec import entry_of
from ..schemas.events import SessionOpened
from ..schemas.events.parts import BlobRef, ReadBlob
from ..schemas.record import Record
from ..schemas.topics import LOG_FACTS, MEMORY_EVENTS, SESSION_EVENTS, topics

FLUSH_S = 10.0
SHOWN_MAX = 5


class CanNotMove(Refused):
    """The sessions could not be moved, or the old log could not be marked as moved."""


class Moved(NamedTuple):
    """The result of a move. left: the sessions that stay in the old log, and why."""

    sessions: int
    memory: int
    left: tuple[tuple[str, str], ...]


def move(
    old: Log,
    new: Log,
    settings: Settings,
    read: ReadBlob,
    *,
    close_turns: bool = False,
    report: Callable[[str], None] = lambda _text: None,
) -> Moved:
    """Move all sessions; run it again to continue an interrupted move.

    settings: the settings of the new log; both logs share the blobs.
    close_turns: whether to move sessions with an open turn or a doubt too.

    Raises CanNotMove, LogMoved, TopicMismatch, LogUnreachable.
    """
    moved_to = facts_of(old).moved_to
    if moved_to not in (None, settings.topic_prefix):
        raise LogMoved(moved_to)
    _demand_no_workers(old)
    before = _ends(old)
    everything = fold_everything(old, read)
    wanted, left, busy = _classify(everything)
    if moved_to is not None:
        report("this log was already moved there: only checking the new log")
    elif busy and not close_turns:
        raise CanNotMove(
            f"{len(busy)} sessions have an open turn or a call in doubt: {_named(busy)}. Nothing "
            "was written. Let them end, cancel or resolve them while a worker can still run; or "
            "move them with --close-turns: then the turn ends as `forked`, its message must be "
            "sent again, and a call in doubt stays in the old log."
        )
    apply_topics(new, settings.partitions, settings.replication).demand()
    report("the topics of the new log exist")
    memory = _copy_memory(old, new)
    report(f"{memory} records of memory copied")
    sessions = Sessions(new, settings)
    try:
        for number in range(partitions_of(old)):
            for session_id, records in _by_session(old, number, wanted).items():
                _open_session(sessions, everything.sessions[session_id], records, settings)
            report(f"partition {number} of {partitions_of(old)} moved")
    finally:
        sessions.close()
    _verify(new, wanted, read)
    if _ends(old) != before:
        raise CanNotMove(
            "the old log was written to during the move, so it was not marked as moved. Stop the "
            "gateways and every other writer, delete the topics of the new log, and move again."
        )
    facts = [spec for spec in topics(1, settings.replication) if spec.name == LOG_FACTS]
    old.apply_topics(facts)
    if moved_to is None:
        note(old, "moved_to", settings.topic_prefix)
    return Moved(len(wanted), memory, tuple(left))


def _demand_no_workers(old: Log) -> None:
    workers = [
        member.instance_id
        for member in old.members("foldlog-")
        if set(member.group.removeprefix("foldlog-").split("-")) <= set(ROLES)
    ]
    if workers:
        raise CanNotMove(
            f"workers run on the old log: {_named(workers)}. Nothing was written. Stop them and "
            "the gateways, then try again; a stopped worker is listed for 6 s more."
        )


def _ends(log: Log) -> tuple[Offsets, Offsets]:
    return log.end_offsets(SESSION_EVENTS), log.end_offsets(MEMORY_EVENTS)


def _classify(everything: Everything) -> tuple[set[str], list[tuple[str, str]], list[str]]:
    """The sessions to move; the sessions that stay, each with the reason; and those of the sessions
    to move that have an open turn or a call in doubt.
    """
    wanted, left, busy = set[str](), list[tuple[str, str]](), list[str]()
    for name, views in sorted(everything.sessions.items()):
        if why := _why_left(views):
            left += [(name, why)] if views.turn.known or views.frozen else []
            continue
        wanted.add(name)
        if views.turn.open or doubtful(views.turn):
            busy.append(name)
    return wanted, left, busy


def _why_left(views: SessionViews) -> str:
    if views.frozen is not None:
        return f"frozen at offset {views.frozen.offset}: {views.frozen.why}"
    if not views.turn.known:
        return "unknown"
    return "terminated" if views.turn.terminated else ""


def _copy_memory(old: Log, new: Log) -> int:
    """Copy memory-events in order; writing an event twice is harmless."""
    producer, failed, count = new.producer(), list[object](), 0
    try:
        for partition, end in old.end_offsets(MEMORY_EVENTS).items():
            for record in read_before(old, MEMORY_EVENTS, partition, end):
                producer.append(MEMORY_EVENTS, record.key, record.value, record.headers,
                                on_delivery=lambda answer: failed.append(answer)
                                if isinstance(answer, Exception) else None)
                count += 1
                if count % 1000 == 0:
                    producer.flush(FLUSH_S)
        if producer.flush(FLUSH_S) or failed:
            raise LogUnreachable("the new log did not accept every memory record. The old "
                                            "log was not changed. Move again")
    finally:
        producer.close()
    return count


def _by_session(old: Log, number: int, wanted: set[str]) -> dict[str, list[Record]]:
    """The records of the wanted sessions in one partition, by session."""
    found: dict[str, list[Record]] = {}
    for record in read_before(old, SESSION_EVENTS, number, old.end_offsets(SESSION_EVENTS)[number]):
        name = (record.key or b"").decode("utf-8", "replace")
        if name in wanted:
            found.setdefault(name, []).append(record)
    return found


def _open_session(
    sessions: Sessions,
    views: SessionViews,
    records: list[Record],
    settings: Settings,
) -> None:
    """Open a session in the new log, with its old records as its seed."""
    seed_records = without_skipped(records, views.skipped)
    seed_records = without_chunks(seed_records, streaming_attempts(views))
    blobs, first_seed = open_blobs(settings), _seed(views, records)
    seed = store_seed(blobs, views.session_id, seed_records, first_seed)
    open_fork(
        sessions,
        views.session_id,
        views.session_id,
        records[-1].offset,
        seed,
        agent=views.turn.agent,
        user=views.state.user_id,
    )


def _seed(views: SessionViews, records: list[Record]) -> BlobRef | None:
    """The seed that the session itself began with, if it was forked or moved before."""
    if views.origin is None:
        return None
    for record in records:
        event = entry_of(record).event
        if isinstance(event, SessionOpened) and record.offset == views.origin.opened:
            return event.seed_ref
    raise AssertionError("the SESSION_OPENED of this fork is not among its records")


def _verify(new: Log, wanted: set[str], read: ReadBlob) -> None:
    sessions = fold_everything(new, read).sessions
    wrong = [
        name
        for name in sorted(wanted)
        if name not in sessions or not sessions[name].turn.known or sessions[name].frozen
    ]
    if wrong:
        raise CanNotMove(
            f"{len(wrong)} sessions are missing or frozen in the new log: {_named(wrong)}. The old "
            "log is intact and was not marked as moved. Run `foldlog doctor` on the new one."
        )


def _named(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more
