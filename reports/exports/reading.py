"""Reads the log once for an export: each event with its ruling, and the facts of sessions.

Reading stops at the end offsets that the log had when reading began, so an export is a consistent
snapshot even while others write.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from ...client.follow import Follow
from ...client.show import UnknownSession
from ...log.door import Log
from ...log.errors import LogCut
from ...processors.fold.ruling import ACCEPTED, Ruling
from ...processors.fold.sessions import FoldedSessions
from ...schemas.codec import Entry
from .blocks import Contents
from .facts import SessionFacts
from .inherited import inherit

Progress = Callable[[int, int], None]
"""progress(events read, events in total), both for the partitions that are read."""


class Read(NamedTuple):
    """The result of `read_log`: the facts of each session, ordered by session id."""

    sessions: dict[str, SessionFacts]
    ends: Mapping[int, int]


def read_log(
    log: Log,
    wanted: Collection[str] | None,
    contents: Contents,
    see: Callable[[Entry, Ruling], None] | None = None,
    progress: Progress = lambda _read, _there: None,
    *,
    chunks: bool = False,
) -> Read:
    """Fold the wanted sessions (all if None), and call `see` with each folded event.

    `chunks`: whether to decode GEN_CHUNK. Raises UnknownSession with the unknown names,
    LogUnreachable, and LogCut if the beginning of the log was deleted.
    """
    folded = FoldedSessions(SessionFacts)
    for entry in _entries(log, wanted, contents, progress, chunks):
        event = folded.feed(entry)
        if see is not None and (event is not None or wanted is None):
            see(entry, ACCEPTED if event is None else event.ruling)
    sessions = folded.sessions
    unknown = [w for w in wanted or () if w not in sessions or not sessions[w].views.turn.known]
    if unknown:
        raise UnknownSession(
            f"there is no session {', '.join(unknown)}. Nothing was written. See `foldlog sessions`"
        )
    for facts in sessions.values():
        facts.holders = folded.holders_of(facts.partition)
        inherit(facts, contents)
    ends = {facts.partition: facts.next for facts in sessions.values()}
    return Read(dict(sorted(sessions.items())), ends)


def _entries(
    log: Log,
    wanted: Collection[str] | None,
    contents: Contents,
    progress: Progress,
    chunks: bool,
) -> Iterator[Entry]:
    with Follow(
        log, wanted, chunks=chunks, holders=True, folded=True, read=contents.read
    ) as follow:
        begin, ends = follow.cursor, follow.ends()
        for partition, first in begin.items():
            if first > 0:
                raise LogCut(partition, 0, first)
        total = sum(ends[p] - begin[p] for p in ends)
        for batch in follow.to(ends):
            yield from (entry for entry in batch if entry.offset < ends[entry.partition])
            read = sum(min(at, ends[p]) - begin[p] for p, at in follow.cursor.items())
            progress(read, total)
