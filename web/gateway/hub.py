"""The viewers of a gateway: each watched session is folded once, and shown to all its viewers.

The hub runs in one event loop; the tail (tail.py) passes batches of events to it. The state of a
watched session and of a subscription is in subscriptions.py.
"""

import asyncio
import math
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from ...client.history import Place
from ...client.outcomes import Decision
from ...client.transcript_stream import Viewer
from ...log.errors import Refused, Retry
from ...processors.fold.sessions import FoldedEvent
from ...processors.store.chunks_reader import ChunksReader
from ...schemas.events.parts import ReadBlob
from .cursors import BadCursor, place_of
from .subscriptions import QUEUE_MAX, Subscription, WatchedSession, viewer_of
from .tail import Batch, NotReady, Tail

IDLE_SESSIONS_MAX = 64
"""Sessions kept in memory after their last viewer left, because most viewers return at once."""

DECISIONS_MAX = 4_096
"""The most rulings kept for HTTP requests that begin to wait after the ruling."""

DECIDE_S = 10.0
"""How long an HTTP request waits for the ruling on its command, in seconds; the fold takes
milliseconds."""

POLL_S = 0.05
"""How often a request checks how far this gateway has folded, in seconds."""

VIEWERS_MAX = 5_000
"""The most viewers of one gateway."""

VIEWERS_PER_USER_MAX = 1_000

HISTORIES_MAX = 2
"""Histories built at the same time. Building only computes, so more threads are not faster, and
each competes with the event loop for the interpreter lock.
"""

SINCE = ("start", "turn", "now")

Lines = asyncio.Queue[dict[str, Any] | None]


class TooManyViewers(Retry):
    """The gateway or this user has reached the limit of viewers."""


class NotDecidedYet(Retry):
    """The event is in the log, but the gateway has not folded it in time."""


class Hub:
    """All viewers, and the rulings that HTTP requests wait for. Use a hub from one event loop
    only."""

    def __init__(
        self, tail: Tail, read: ReadBlob, chunks: ChunksReader, print_line: Callable[[str], None]
    ) -> None:
        self._tail, self._read, self._chunks, self._print = tail, read, chunks, print_line
        self._sessions: OrderedDict[str, asyncio.Task[WatchedSession]] = OrderedDict()
        self._pending: dict[str, list[FoldedEvent]] = {}
        self._decisions: OrderedDict[tuple[str, int], Decision] = OrderedDict()
        self._waiting: dict[tuple[str, int], asyncio.Future[Decision]] = {}
        self._viewers: Counter[str] = Counter()
        self._lists: set[Lines] = set()
        self._histories = asyncio.Semaphore(HISTORIES_MAX)
        self.viewers_max, self.viewers_per_user_max = VIEWERS_MAX, VIEWERS_PER_USER_MAX
        self._is_closed = False

    def start(self) -> None:
        """Start to receive the tail's batches."""
        loop = asyncio.get_running_loop()
        self._tail.on_batch = lambda batch: loop.call_soon_threadsafe(self._take, batch)
        self._tail.on_gap = lambda: loop.call_soon_threadsafe(self._disconnect_all)

    def limit_viewers(self, connections: int) -> None:
        """Limit the viewers of a server that allows `connections` connections. A tenth of the
        connections is left for other requests. One user's viewers may use at most half of all
        connections.
        """
        self.viewers_max = min(VIEWERS_MAX, connections * 9 // 10)
        self.viewers_per_user_max = min(VIEWERS_PER_USER_MAX, connections // 2)

    def close(self) -> None:
        """Disconnect every viewer, present or new, and cancel the requests that wait for a session
        to load.
        """
        self._is_closed = True
        for task in self._sessions.values():
            task.cancel()  # no effect if it is loaded
        self._disconnect_all()

    def _disconnect_all(self) -> None:
        """Disconnect every viewer, because the tail may have missed records. Viewers reconnect with
        their cursors. Sessions that are still loading are loaded again.
        """
        for task in self._sessions.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().end()
        self._sessions.clear()
        for queue in self._lists:
            _put(queue, None)

    @property
    def viewers(self) -> int:
        """The present number of viewers."""
        return self._viewers.total()

    # -- batches -----------------------------------------------------------------------------------

    def _take(self, batch: Batch) -> None:
        for decision in batch.decisions:
            key = (decision.session_id, decision.offset)
            waiting = self._waiting.pop(key, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(decision)
            self._decisions[key] = decision
            if len(self._decisions) > DECISIONS_MAX:
                self._decisions.popitem(last=False)
        for folded in batch.events:
            task = self._sessions.get(folded.entry.session_id)
            if task is not None and task.done():
                self._apply(task.result(), folded)
            elif folded.entry.session_id in self._pending:
                self._pending[folded.entry.session_id].append(folded)
        for line in batch.summaries.values():
            for queue in self._lists:
                _put(queue, line)

    def _apply(self, session: WatchedSession, folded: FoldedEvent) -> None:
        """Show an event to the session's viewers; disconnect them if the event cannot be shown."""
        try:
            session.apply(folded, self._read)
        except Exception as error:
            place = f"{session.session_id} at offset {folded.entry.offset}"
            self._print(f"session {place} cannot be shown: {type(error).__name__}: {error}")
            self._sessions.pop(session.session_id, None)
            self._tail.unwatch(session.session_id)
            session.end()

    async def decision(self, session_id: str, offset: int) -> Decision:
        """The fold's ruling on an event that a producer wrote. Raises NotDecidedYet."""
        key = (session_id, offset)
        if key in self._decisions:
            return self._decisions[key]
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(DECIDE_S):
                return await asyncio.shield(waiting)
        except TimeoutError:
            self._waiting.pop(key, None)
            raise NotDecidedYet(
                f"your command is in the log (offset {offset}), but this gateway has not folded "
                f"it within {DECIDE_S:.0f} s. Read the session in a moment; sending the command "
                "again with the same id is harmless."
            ) from None

    # -- viewers -----------------------------------------------------------------------------------

    async def subscribe(
        self,
        session_id: str,
        cursor: str | None = None,
        since: str = "start",
        user: str = "",
        until: float = math.inf,
    ) -> Subscription:
        """Add a viewer to a known session, until `unsubscribe`. The viewer begins at the cursor or,
        without one, at `since`: the start of the session, the start of the open or last turn, or
        now. until: when the viewer's token expires (Unix s). Raises BadCursor, TooManyViewers.
        """
        assert since in SINCE, since
        place = None if cursor is None else place_of(session_id, cursor)
        self._admit(user)
        try:
            if place is not None:
                await self._demand_reached(session_id, place)
            session = await self._watch(session_id)
            subscription = Subscription(session, place or _start(session, since), user, until)
            # A long history is built in a thread. The few events that arrive meanwhile are queued
            # below.
            async with self._histories:
                past = session.snapshot().missed_since(subscription.place, self._read)
                await asyncio.to_thread(subscription.put_history, past)
            # The session may have been dropped meanwhile.
            subscription.session = session = await self._watch(session_id)
            missed = session.snapshot().missed_since(subscription.place, self._read)
            subscription.put_history(missed)
        except BaseException:
            self._release(user)
            raise
        session.subscriptions.add(subscription)
        if self._is_closed:
            subscription.end()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Remove a viewer; calling it again is harmless."""
        if subscription in subscription.session.subscriptions:
            subscription.session.subscriptions.remove(subscription)
            self._release(subscription.user)
            self._drop_idle()

    def _admit(self, user: str) -> None:
        """Count a viewer. Raises TooManyViewers."""
        is_full = self.viewers >= self.viewers_max
        if is_full or self._viewers[user] >= self.viewers_per_user_max:
            raise TooManyViewers("this gateway, or your user, has reached its limit of viewers: "
                                 "nothing was opened. Close one and try again")
        self._viewers[user] += 1

    def _release(self, user: str) -> None:
        self._viewers[user] -= 1
        self._viewers += Counter()  # drops users whose count is zero

    def reserve(self, user: str) -> Callable[[], None]:
        """Count a viewer of something other than a session. The caller calls the returned function
        once when the viewer leaves. Raises TooManyViewers.
        """
        self._admit(user)
        return partial(self._release, user)

    async def _demand_reached(self, session_id: str, place: Place) -> None:
        """Raise BadCursor for a place beyond the end of the log. Wait until this gateway has folded
        an event of which the viewer has seen a part."""
        # A place beyond this gateway's folds may be valid, because another gateway may have folded
        # more.
        ahead = place.offset > self._tail.cursor(session_id)[1]
        if ahead and place.offset > await asyncio.to_thread(self._tail.end, session_id):
            raise BadCursor("points beyond the end of the log")
        until = asyncio.get_running_loop().time() + DECIDE_S
        while place.lines and self._tail.cursor(session_id)[1] <= place.offset:
            if asyncio.get_running_loop().time() > until:
                raise NotReady("this gateway is still reading the log. Try again in a moment.")
            await asyncio.sleep(POLL_S)  # rare: another gateway was ahead of this one

    async def _watch(self, session_id: str) -> WatchedSession:
        while True:
            task = self._sessions.get(session_id)
            if task is None:
                task = asyncio.ensure_future(self._load(session_id))
                self._sessions[session_id] = task
            self._sessions.move_to_end(session_id)
            session = await asyncio.shield(task)
            if self._sessions.get(session_id) is task:
                return session  # otherwise it was dropped before this viewer got it

    async def _load(self, session_id: str) -> WatchedSession:
        """Load a session to watch: its views, the open attempt's chunks, then the events that
        arrived during the load.
        """
        pending: list[FoldedEvent] = []
        self._pending[session_id] = pending
        try:
            views, offset = await asyncio.to_thread(self._tail.watch, session_id)
            if views is None:
                raise Refused(f"there is no session {session_id}")
            session = WatchedSession(session_id, views, offset)
            running = session.open_attempt()
            if running is not None and views.stream.chunks:
                attempt, claim = running
                partition, _ = self._tail.cursor(session_id)
                chunks = await asyncio.to_thread(self._chunks, session_id, partition, claim)
                assert views.turn.generation is not None
                chain = views.turn.generation.chain
                session.viewer = viewer_of(attempt, chunks, chain)
            elif running is not None:
                session.viewer = Viewer(running[0])
            for folded in pending:
                session.apply(folded, self._read)
            return session
        except BaseException:  # the next viewer loads the session again
            self._sessions.pop(session_id, None)
            self._tail.unwatch(session_id)
            raise
        finally:
            if self._pending.get(session_id) is pending:
                del self._pending[session_id]

    def _drop_idle(self) -> None:
        """Stop watching sessions without viewers, except the most recent ones."""
        idle = [
            session_id
            for session_id, task in self._sessions.items()
            if task.done() and not task.result().subscriptions
        ]
        for session_id in idle[: max(0, len(idle) - IDLE_SESSIONS_MAX)]:
            del self._sessions[session_id]
            self._tail.unwatch(session_id)

    # -- lists -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def changes(self) -> AsyncIterator[Lines]:
        """Yield new summaries of all sessions as they come; a full queue drops the oldest summary.
        None means that summaries may be missing, and the reader must start over.
        """
        queue: Lines = asyncio.Queue(QUEUE_MAX)
        self._lists.add(queue)
        if self._is_closed:
            _put(queue, None)
        try:
            yield queue
        finally:
            self._lists.discard(queue)


def _put(queue: Lines, line: dict[str, Any] | None) -> None:
    if queue.full():
        queue.get_nowait()  # the newest lines are enough for a list
    queue.put_nowait(line)


def _start(session: WatchedSession, since: str) -> Place:
    turn = session.views.turn
    starts = {"start": 0, "turn": turn.opened_offset, "now": session.offset}
    return Place(max(0, starts[since]))
