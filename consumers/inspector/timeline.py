"""A session with its views after each event: the time scrubber's ground.

The session is folded from its first offset, as its worker folds it, and every value is kept: views
are immutable and share their rows, so ten thousand of them cost little more than the last. A
timeline reads on when the log has grown and holds nothing open in between.
This file must not know what is asked of a moment, nor HTTP.
"""

import threading
from bisect import bisect_right
from collections import Counter, OrderedDict
from typing import NamedTuple

from ...log.blobs import BlobError
from ...log.door import Log
from ...log.errors import Retry
from ...log.partition import partition_for
from ...processors.fold.projections.partition import PartitionView
from ...processors.fold.ruling import Ruling
from ...processors.fold.sessions import FoldedSession, FoldedSessions
from ...processors.fold.views import SessionViews
from ...schemas import events as ev
from ...schemas.codec import Entry
from ...schemas.events.parts import ReadBlob
from ...schemas.topics import SESSION_EVENTS
from ..follow import Follow
from ..show import UnknownSession
from ..transcript_stream import INITIAL, Viewer, see

SESSIONS_MAX = 6
"""Timelines kept, the last used ones: somebody looks at one session, and compares with another."""

EVENTS_MAX = 200_000
"""Events kept in all of them, about 1 KB each; the one that is asked for is always kept."""


FOLDS_PER_USER_MAX = 2
"""Sessions that are folded anew for one user at a time: each fold reads a whole partition."""


class TooManyTimelines(Retry):
    """As many sessions are being folded for this user as may be at a time."""


class UnknownOffset(UnknownSession):
    """The session has no event at or before that offset: it is not there yet."""


class Moment(NamedTuple):
    """One event, the fold's word on it, and all that was so right after it.

    `viewer`: what the open attempt had said. `now_ms`: the newest broker time, for wake.
    """

    place: int
    entry: Entry
    ruling: Ruling
    views: SessionViews
    holders: PartitionView
    viewer: Viewer
    now_ms: int


class Timeline:
    """The moments of one session, in log order. Raises from the log; many threads may use it.

    `read`: for seeds of forks, and for answers that were too large for the log.
    """

    def __init__(self, log: Log, session_id: str, read: ReadBlob | None = None) -> None:
        self.session_id = session_id
        first = log.first_offsets(SESSION_EVENTS)
        self.partition = partition_for(session_id, len(first))
        self.next_offset = first[self.partition]
        self.moments: list[Moment] = []
        self.steps: list[int] = []
        """Places of the LLM_CALLED events that counted."""
        self._folded: FoldedSessions[FoldedSession] = FoldedSessions()
        self._log, self._read = log, read
        self._offsets: list[int] = []
        self._lock = threading.Lock()

    def extend(self) -> "Timeline":
        """Fold what the log has by now."""
        with self._lock:
            end = self._log.end_offsets(SESSION_EVENTS)[self.partition]
            if end <= self.next_offset:
                return self
            start = {self.partition: self.next_offset}
            with Follow(
                self._log, (self.session_id,), start, holders=True, read=self._read
            ) as follow:
                for batch in follow.to({self.partition: end}):
                    for entry in batch:
                        self._fold(entry)
                    self.next_offset = follow.cursor[self.partition]
        return self

    def _fold(self, entry: Entry) -> None:
        folded = self._folded.feed(entry)
        if folded is None:
            return
        viewer = self.moments[-1].viewer if self.moments else INITIAL
        try:
            viewer, _ = see(viewer, folded, self._read)
        except BlobError:  # it is said where the blob is shown
            viewer, _ = see(viewer, folded)
        place, (_, ruling, _, views) = len(self.moments), folded
        newest = self._folded.newest_ms
        moment = Moment(place, entry, ruling, views, self.holders, viewer, newest)
        self.moments.append(moment)
        # Behind it, and in this order: others read meanwhile, and what names a moment finds it.
        if ruling.accepted and isinstance(entry.event, ev.LlmCalled):
            self.steps.append(place)
        self._offsets.append(entry.offset)

    @property
    def holders(self) -> PartitionView:
        """Who holds the session's partition."""
        return self._folded.holders_of(self.partition)

    @property
    def known(self) -> bool:
        """Whether somebody opened the session."""
        return bool(self.moments) and self.moments[-1].views.turn.known

    def place_at(self, offset: int) -> int:
        """The place of the last event at or before an offset, -1 if there is none."""
        return bisect_right(self._offsets, offset) - 1

    def at(self, offset: int | None = None) -> Moment:
        """The moment right after an offset of the partition, or the newest. UnknownOffset."""
        moments = self.moments
        place = len(self._offsets) - 1 if offset is None else self.place_at(offset)
        if place < 0:
            where = f"begins at offset {self._offsets[0]}" if self._offsets else "has no events"
            raise UnknownOffset(
                f"session {self.session_id} {where} of partition {self.partition}: "
                f"nothing is known of it at offset {offset}"
            )
        return moments[place]

    def called(self, moment: Moment) -> Moment | None:
        """The moment of the newest model request that was decided by then."""
        before = bisect_right(self.steps, moment.place) - 1
        return self.moments[self.steps[before]] if before >= 0 else None


class Timelines:
    """The timelines that were looked at last."""

    def __init__(
        self,
        log: Log,
        read: ReadBlob | None = None,
        *,
        sessions_max: int = SESSIONS_MAX,
        events_max: int = EVENTS_MAX,
    ) -> None:
        self._log, self._read = log, read
        self._sessions_max, self._events_max = sessions_max, events_max
        self._kept: OrderedDict[str, Timeline] = OrderedDict()
        self._folding: Counter[str] = Counter()
        self._lock = threading.Lock()

    def of(self, session_id: str, user: str = "") -> Timeline:
        """The session's timeline, folded to the end of the log as of now. Raises
        TooManyTimelines where it must be folded anew and others are, for the same user."""
        with self._lock:
            timeline = self._kept.get(session_id)
            is_new = timeline is None
            if timeline is None:
                if self._folding[user] >= FOLDS_PER_USER_MAX:
                    raise TooManyTimelines(
                        f"{FOLDS_PER_USER_MAX} sessions are being read for you at this moment: "
                        "look at this one when they are there"
                    )
                timeline = self._kept[session_id] = Timeline(self._log, session_id, self._read)
                self._folding[user] += 1
            self._kept.move_to_end(session_id)
        try:
            timeline.extend()
        except Exception:  # what was folded so far may end amid a batch: begin anew next time
            with self._lock:
                self._kept.pop(session_id, None)
            raise
        finally:
            if is_new:
                with self._lock:
                    self._folding[user] -= 1
                    self._folding = +self._folding  # forgets who has none
        with self._lock:
            self._forget(session_id)
        return timeline

    def _forget(self, wanted: str) -> None:
        for name in [*self._kept]:
            events = sum(len(kept.moments) for kept in self._kept.values())
            if len(self._kept) <= self._sessions_max and events <= self._events_max:
                return
            if name != wanted:
                del self._kept[name]
