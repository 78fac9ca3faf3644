"""The state of a session that has viewers, and of each viewer's subscription.

A subscription has a bounded queue. A viewer that does not keep up is disconnected, and reconnects
with its cursor without losing anything.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from ...client.history import Frame, Place, after, count, missed
from ...client.transcript_stream import Attempt, Shown, Viewer, see, streamed
from ...processors.fold.partial_answer import Chain, chunks_of
from ...processors.fold.projections.turn_view import RUNNING
from ...processors.fold.sessions import FoldedEvent
from ...processors.fold.views import SessionViews
from ...schemas import events as ev
from ...schemas.events.parts import ReadBlob
from .cursors import cursor_of
from .deadline import Deadline

QUEUE_MAX = 2_000
"""The most frames queued for one viewer: some minutes of a fast model, a few hundred KB."""

FRAMES_MAX = 64
"""The most frames that a viewer takes from its queue at once."""

HEARTBEAT_S = 10.0
"""Pause in seconds after which a viewer gets a heartbeat; proxies cut idle connections at about 16
s.
"""


class WatchedSession:
    """A session in memory: its views, the text that its open attempt streamed, its subscriptions.
    """

    def __init__(self, session_id: str, views: SessionViews, offset: int) -> None:
        self.session_id, self.views, self.offset = session_id, views, offset
        self.viewer = Viewer()
        self.subscriptions: set[Subscription] = set()
        self._framed: Framed | None = None

    def open_attempt(self) -> tuple[Attempt, int] | None:
        """The running attempt that streams chunks, and an offset at or before its first chunk."""
        turn = self.views.turn
        generation = turn.generation
        if generation is None or generation.status is not RUNNING or generation.claim is None:
            return None
        return Attempt(turn.number, turn.step, generation.attempt), generation.offset

    def snapshot(self) -> "Snapshot":
        """A copy of the session's present state."""
        return Snapshot(self.views, self.viewer, self.offset)

    def apply(self, folded: FoldedEvent, read: ReadBlob) -> None:
        """Apply an event, and queue for every viewer what the event shows."""
        if folded.entry.offset < self.offset:
            return  # the session was loaded after this event
        self.views, self.offset = folded.views, folded.entry.offset + 1
        self.viewer, shown = see(self.viewer, folded, read)
        for subscription in list(self.subscriptions):
            subscription.put(self.offset, shown)
        self._framed = None

    def framed(self, place: Place, offset: int, shown: list[Shown]) -> "Framed":
        """What one event shows to a viewer at a place. Nearly all viewers are at the same place, so
        they share one result and its encoded bytes.
        """
        found = self._framed
        if found is None or found.shown is not shown or found.begin != place:
            found = self._framed = framed(
                self.session_id, place, offset - 1, offset, shown, live=True
            )
        return found

    def end(self) -> None:
        """Disconnect every viewer."""
        for subscription in list(self.subscriptions):
            subscription.end()


class Framed(NamedTuple):
    """The frames of what one event shows to a viewer at the place `begin`, and the viewer's place
    after the event.
    """

    shown: list[Shown]
    begin: Place
    frames: list[Frame]
    end: Place


def framed(
    session_id: str, begin: Place, at: int, offset: int, shown: list[Shown], *, live: bool
) -> Framed:
    """Each frame has a cursor, because a viewer may be cut off between two frames of an event.

    at: the event's own offset. Cursors inside the event contain it, so that a gateway that has not
        folded the event can tell that the viewer is ahead.
    offset: the next offset.
    """
    frames, last = [], len(shown) - 1
    place = begin._replace(offset=max(begin.offset, at))
    for number, thing in enumerate(shown):
        place = count(place, thing)
        if number == last:
            place = after(place, offset)
        frames.append(Frame(cursor_of(session_id, place), thing, live))
    return Framed(shown, begin, frames, place)


class Subscription:
    """One viewer of a session. Iterating yields frames as they come, and None after a pause or an
    event that shows nothing; `next_frames` returns several at once.

    The iteration ends when the viewer is too slow, when its token expires (`until`, Unix s), and
    when the gateway closes.
    """

    def __init__(
        self, session: WatchedSession, place: Place, user: str, until: float = math.inf
    ) -> None:
        self.session, self.place, self.user, self._until = session, place, user, until
        self.ended = False
        self._queue: deque[Frame] = deque()
        self._ready = asyncio.Event()
        self._has_paused = self._has_moved = False
        self._pause = Deadline(HEARTBEAT_S, self._note_pause)
        self._history = 0

    @property
    def views(self) -> SessionViews:
        """The session's current views, which may be ahead of the queue."""
        return self.session.views

    def put(self, offset: int, shown: list[Shown], past: int | None = None) -> None:
        """Queue what one event shows. past: the event's offset, if the event is part of the
        history."""
        live = past is None
        if self.ended or (live and offset <= self.place.offset):
            return  # disconnected, or its cursor is ahead of this gateway
        if past is None:
            found = self.session.framed(self.place, offset, shown)
        else:  # a thread may build the history, so it is not shared
            found = framed(self.session.session_id, self.place, past, offset, shown, live=False)
        self.place = found.end
        self._queue.extend(found.frames)
        self._has_moved |= live and not shown
        self._history += 0 if live else len(shown)  # history does not make a viewer slow
        if live and len(self._queue) > self._history + QUEUE_MAX:
            self.end()
        self._ready.set()

    def put_history(self, history: Iterable[tuple[int, int, list[Shown]]]) -> None:
        """Queue the history that a new or reconnected viewer has missed."""
        for at, offset, shown in history:
            self.put(offset, shown, at)

    def drain(self) -> list[Frame]:
        """Take all queued frames at once."""
        frames = list(self._queue)
        self._queue.clear()
        return frames

    async def wait_for_event(self, wait_s: float) -> None:
        """Wait at most `wait_s` seconds, until the session has an event (even one that shows
        nothing) or the subscription ends. Drops the queue, because the caller reads `views`
        instead.
        """
        self._queue.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._ready.wait()
        self._ready.clear()

    def end(self) -> None:
        """Disconnect the viewer and drop its queue."""
        self.ended = True
        self._queue.clear()
        self._ready.set()

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> Frame | None:
        await asyncio.sleep(0)  # yields to other tasks: this loop may never block
        if not await self._wait_for_frame():
            raise StopAsyncIteration
        return self._queue.popleft() if self._queue else None

    async def next_frames(self) -> list[Frame] | None:
        """All frames that are queued, at most FRAMES_MAX; waits for the first of them. Returns an
        empty list after a pause or an event that shows nothing, and None when the iteration ends.
        It need not yield to other tasks: its caller must.
        """
        if not await self._wait_for_frame():
            return None
        queue = self._queue
        return [queue.popleft() for _ in range(min(len(queue), FRAMES_MAX))]

    async def _wait_for_frame(self) -> bool:
        """Wait for a frame, for HEARTBEAT_S at most. Returns False if the iteration ends."""
        if not self._queue:
            self._has_paused = False
            self._pause.begin()
            while not (self._queue or self.ended or self._has_paused or self._has_moved):
                self._ready.clear()
                await self._ready.wait()
            self._pause.end()
            self._has_moved = False
        # A client whose token has expired must reconnect with a new one.
        return not (self.ended and not self._queue) and time.time() < self._until

    def _note_pause(self) -> None:
        self._has_paused = True
        self._ready.set()


class Snapshot(NamedTuple):
    """A session at one offset: its views, the text that its open attempt streamed, the next offset.
    """

    views: SessionViews
    viewer: Viewer
    offset: int

    def missed_since(self, place: Place, read: ReadBlob) -> Iterator[tuple[int, int, list[Shown]]]:
        """The items that a viewer at a place has missed, grouped by event: (offset, next offset,
        items)."""
        group: list[Shown] = []
        at = -1
        for offset, thing in missed(place, self.views, self.viewer, read):
            if group and offset != at:
                yield at, at + 1, group
                group = []
            at = offset
            group.append(thing)
        if group:
            yield at, max(place.offset, self.offset), group


def viewer_of(attempt: Attempt, chunks: Iterable[ev.GenChunk], chain: Chain) -> Viewer:
    """The Viewer that results from the chunks of an attempt and of the attempts that it continues.
    """
    viewer = Viewer(attempt._replace(attempt=chain[0][0]) if chain else attempt)
    for chunk in chunks_of(chunks, attempt, chain):
        viewer, _ = streamed(viewer._replace(resumed_by=chunk.attempt), chunk)
    return viewer._replace(resumed_by=attempt.attempt if chain else None)
