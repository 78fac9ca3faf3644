"""Folds one session as its worker does, from the first offset, by default without decoding chunks.

Used wherever a session's views are needed outside of a worker: to wait for a ruling, for viewers,
for `show`, `request` and `wake`. It calls the fold of `processors/`, so readers and workers cannot
disagree.
"""

from collections import deque
from collections.abc import Callable, Iterator

from ..log.door import Log
from ..processors.fold.projections.partition import PartitionView
from ..processors.fold.sessions import FoldedEvent, FoldedSession, FoldedSessions
from ..processors.fold.views import SessionViews
from ..schemas.codec import Entry
from ..schemas.events.parts import ReadBlob
from .closing import Closing
from .follow import POLL_S, Follow


class SessionFold(Closing):
    """The views of one session at an offset of the log that only moves forward.

    `views` and `holders` (the holders of the partition, for wake) have the state after the last
    event that was returned; `newest_ms` is the newest broker time of the events so far, and `begin`
    the offset at which the fold begins. `listen` is called with each folded event, whichever method
    folds it. `read` is the argument of Follow, `progress` that of Follow.to. Raises LogUnreachable,
    TopicMissing; polls may raise OffsetGone.
    """

    def __init__(
        self,
        log: Log,
        session_id: str,
        *,
        chunks: bool = False,
        read: ReadBlob | None = None,
        listen: Callable[[FoldedEvent], None] = lambda _folded: None,
        progress: Callable[[int, int], None] = lambda _read, _total: None,
    ) -> None:
        self._listen, self._progress = listen, progress
        self.session_id = session_id
        self._folded: FoldedSessions[FoldedSession] = FoldedSessions()
        self._follow = Follow(log, (session_id,), chunks=chunks, holders=True, read=read)
        ((self.partition, self.begin),) = self._follow.cursor.items()
        self._unread: deque[Entry] = deque()

    @property
    def views(self) -> SessionViews:
        """The session's views."""
        return self._folded.views_of(self.session_id)

    @property
    def holders(self) -> PartitionView:
        """The holders of the session's partition."""
        return self._folded.holders_of(self.partition)

    @property
    def newest_ms(self) -> int:
        """The newest broker time of the events folded so far, Unix ms."""
        return self._folded.newest_ms

    @property
    def cursor(self) -> int:
        """The next offset of the session's partition that is not folded yet."""
        return self._unread[0].offset if self._unread else self._follow.cursor[self.partition]

    def poll(self, timeout_s: float = POLL_S) -> Iterator[FoldedEvent]:
        """Fold and yield new events one at a time; ends if no event comes for `timeout_s` seconds.

        A caller that stops early loses nothing: the next poll continues after the last event taken.
        """
        if not self._unread:
            self._unread.extend(self._follow.poll(timeout_s))
        yield from self._take_before(None)

    def upto(self, end: int) -> Iterator[FoldedEvent]:
        """Fold and yield every event before the offset `end`.

        Raises LogUnreachable if reading stalls.
        """
        yield from self._take_before(end)
        for batch in self._follow.to({self.partition: end}, self._progress):
            self._unread.extend(batch)
            yield from self._take_before(end)

    def _take_before(self, end: int | None) -> Iterator[FoldedEvent]:
        while self._unread and (end is None or self._unread[0].offset < end):
            folded = self._folded.feed(self._unread.popleft())
            if folded is not None:
                self._listen(folded)
                yield folded

    def end(self) -> int:
        """The present end offset of the session's partition. Raises LogUnreachable."""
        return self._follow.ends()[self.partition]

    def to_end(self) -> SessionViews:
        """Fold everything that is in the log now, and return the views. Raises LogUnreachable."""
        for _ in self.upto(self.end()):
            pass
        return self.views

    def close(self) -> None:
        """Close the reader."""
        self._follow.close()
