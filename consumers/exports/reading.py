"""The log, read once for an export: every event with the fold's word, and the facts of sessions.

What is exported is the log up to its ends as they were when reading began, so an export is one
instant, whoever writes meanwhile. This file must not know any format.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from ...log.door import Log
from ...log.errors import LogCut
from ...processors.fold.ruling import ACCEPTED, Ruling
from ...processors.fold.sessions import FoldedSessions
from ...schemas.codec import Entry
from ..follow import Follow
from ..show import UnknownSession
from .blocks import Contents
from .facts import SessionFacts
from .inherited import inherit

Progress = Callable[[int, int], None]
"""progress(events read, events there): of the partitions that are read."""


class Read(NamedTuple):
    """What reading came to: facts by session, in the order of their ids."""

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
    """Fold the wanted sessions (None: all); `see` is shown each event as it is folded.

    `chunks`: decode GEN_CHUNK too. Raises UnknownSession naming what is not there, LogUnreachable,
    LogCut if the beginning of the log was deleted.
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
            f"there is no session {', '.join(unknown)}: see `foldlog sessions`. Nothing was written"
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
        there = sum(ends[p] - begin[p] for p in ends)
        for batch in follow.to(ends):
            yield from (entry for entry in batch if entry.offset < ends[entry.partition])
            read = sum(min(at, ends[p]) - begin[p] for p, at in follow.cursor.items())
            progress(read, there)
