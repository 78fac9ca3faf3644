"""A session with its views after each event: the data of the time scrubber.

The session is folded from its first offset, as its worker does, and the views after every event are
kept. Views are immutable and share their rows, so keeping all of them takes little more memory than
keeping only the newest. When the log has grown, a timeline can be extended; between two extensions
it keeps no reader open.
"""

import threading
from bisect import bisect_right
from collections import Counter, OrderedDict
from typing import NamedTuple

from ...client.follow import Follow
from ...client.show import UnknownSession
from ...client.transcript_stream import INITIAL, Viewer, see
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
from .runs import Runs

SESSIONS_MAX = 6
"""How many of the most recently used timelines are in memory."""

EVENTS_MAX = 200_000
"""The most events in all timelines, at about 1 KB each. The requested timeline is always kept."""

FOLDS_PER_USER_MAX = 2
"""How many new timelines are folded for one user at a time; each fold reads a whole partition."""


class TooManyTimelines(Retry):
    """This user has reached the limit of timelines that are folded at a time."""


class UnknownOffset(UnknownSession):
    """The session has no event at or before the offset."""


class Moment(NamedTuple):
    """One event, its ruling, and the state right after it.

    `viewer`: the open attempt's output so far.
    `now_ms`: the newest broker time up to this event; WAKE is evaluated at this time.
    """

    place: int
    entry: Entry
    ruling: Ruling
    views: SessionViews
    holders: PartitionView
    viewer: Viewer
    now_ms: int


class Timeline:
    """The moments of one session, in log order, for any thread. Raises the errors of the log.

    `read`: reads the seeds of forks, and answers that are too large for the log.
    """

    def __init__(self, log: Log, session_id: str, read: ReadBlob | None = None) -> None:
        self.session_id = session_id
        first = log.first_offsets(SESSION_EVENTS)
        self.partition = partition_for(session_id, len(first))
        self.next_offset = first[self.partition]
        self.moments: list[Moment] = []
        self.steps: list[int] = []
        """Places of the accepted LLM_CALLED events."""
        self.runs = Runs()
        self.fills: dict[int, dict[str, int]] = {}
        """What filled the requests that were looked at, by their places."""
        self._folded: FoldedSessions[FoldedSession] = FoldedSessions()
        self._log, self._read = log, read
        self._offsets: list[int] = []
        self._lock = threading.Lock()

    def extend(self) -> "Timeline":
        """Fold the log up to its present end."""
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
        except BlobError:  # reported where the blob is shown
            viewer, _ = see(viewer, folded)
        place, (_, ruling, _, views) = len(self.moments), folded
        newest = self._folded.newest_ms
        moment = Moment(place, entry, ruling, views, self.holders, viewer, newest)
        self.moments.append(moment)
        self.runs.feed(entry, ruling, views, self._read)
        # Extend these lists last, because other threads look up their entries in the lists above.
        if ruling.accepted and isinstance(entry.event, ev.LlmCalled):
            self.steps.append(place)
        self._offsets.append(entry.offset)

    @property
    def holders(self) -> PartitionView:
        """The holders of the session's partition."""
        return self._folded.holders_of(self.partition)

    @property
    def known(self) -> bool:
        """Whether the session was opened."""
        return bool(self.moments) and self.moments[-1].views.turn.known

    def at(self, offset: int | None = None) -> Moment:
        """The moment right after an offset of the partition, or the newest. Raises UnknownOffset.
        """
        count = len(self._offsets) if offset is None else bisect_right(self._offsets, offset)
        if not count:
            where = f"begins at offset {self._offsets[0]}" if self._offsets else "has no events"
            raise UnknownOffset(
                f"session {self.session_id} {where} of partition {self.partition}: "
                f"it did not exist yet at offset {offset}. Choose a later offset"
            )
        return self.moments[count - 1]

    def called(self, moment: Moment) -> Moment | None:
        """The moment of the newest model request that was decided up to this moment."""
        before = bisect_right(self.steps, moment.place) - 1
        return self.moments[self.steps[before]] if before >= 0 else None


class Timelines:
    """The most recently used timelines."""

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
        self._recent: OrderedDict[str, Timeline] = OrderedDict()
        self._folding: Counter[str] = Counter()
        self._lock = threading.Lock()

    def of(self, session_id: str, user: str = "") -> Timeline:
        """The session's timeline, folded to the present end of the log. Raises TooManyTimelines if
        the timeline is not in memory and too many timelines are being folded for the same user.
        """
        with self._lock:
            timeline = self._recent.get(session_id)
            is_new = timeline is None
            if timeline is None:
                if self._folding[user] >= FOLDS_PER_USER_MAX:
                    raise TooManyTimelines(
                        f"{FOLDS_PER_USER_MAX} sessions are already being read for you: nothing "
                        "was read. Open this one when they are loaded"
                    )
                timeline = self._recent[session_id] = Timeline(self._log, session_id, self._read)
                self._folding[user] += 1
            self._recent.move_to_end(session_id)
        try:
            timeline.extend()
        except Exception:  # the fold may be inside a batch: start over next time
            with self._lock:
                self._recent.pop(session_id, None)
            raise
        finally:
            if is_new:
                with self._lock:
                    self._folding[user] -= 1
                    self._folding = +self._folding  # drops users whose count is zero
        with self._lock:
            self._forget(session_id)
        return timeline

    def _forget(self, wanted: str) -> None:
        for name in [*self._recent]:
            events = sum(len(timeline.moments) for timeline in self._recent.values())
            if len(self._recent) <= self._sessions_max and events <= self._events_max:
                return
            if name != wanted:
                del self._recent[name]
