"""The viewers of a gateway: a watched session is followed once and shown to all its viewers.

Runs in one event loop; the tail hands its batches over to it. The state of a watched session and of
a viewer is in watching.py.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from ...log.errors import Refused, Retry
from ...processors.fold.sessions import FoldedEvent
from ...processors.store.chunks_reader import ChunksReader
from ...schemas.events.parts import ReadBlob
from ..history import Place
from ..outcomes import Decision
from ..transcript_stream import Viewer
from .cursors import BadCursor, place_of
from .tail import Batch, Tail
from .watching import QUEUE_MAX, Seat, Watching, viewer_of

IDLE_WATCHES_MAX = 64
"""Sessions kept in memory after their last viewer left: most viewers return at once."""

DECISIONS_MAX = 4_096
"""Decisions kept for requests that ask for them a moment late."""

DECIDE_S = 10.0
"""How long a command waits for its decision; the fold takes milliseconds."""

VIEWERS_MAX = 5_000
"""Viewers of one gateway."""

VIEWERS_PER_USER_MAX = 1_000

HISTORIES_MAX = 2
"""Histories built at the same time. Building is computation: more threads are not faster, and each
of them competes with the event loop for the interpreter lock."""

SINCE = ("start", "turn", "now")


Lines = asyncio.Queue[dict[str, Any] | None]


class TooManyViewers(Retry):
    """The gateway, or this user, has reached the limit of viewers."""


class NotDecidedYet(Retry):
    """The event is in the log, but the gateway has not folded it in time."""


class Hub:
    """All viewers, and the decisions that requests wait for. Use it from one event loop."""

    def __init__(
        self, tail: Tail, read: ReadBlob, chunks: ChunksReader, say: Callable[[str], None]
    ) -> None:
        self._tail, self._read, self._chunks, self._say = tail, read, chunks, say
        self._watchings: OrderedDict[str, asyncio.Task[Watching]] = OrderedDict()
        self._pending: dict[str, list[FoldedEvent]] = {}
        self._decisions: OrderedDict[tuple[str, int], Decision] = OrderedDict()
        self._waiting: dict[tuple[str, int], asyncio.Future[Decision]] = {}
        self._viewers: Counter[str] = Counter()
        self._lists: set[Lines] = set()
        self._histories = asyncio.Semaphore(HISTORIES_MAX)
        self.viewers_max, self.viewers_per_user_max = VIEWERS_MAX, VIEWERS_PER_USER_MAX

    def start(self) -> None:
        """Subscribe to the tail's batches."""
        loop = asyncio.get_running_loop()
        self._tail.listen = lambda batch: loop.call_soon_threadsafe(self._take, batch)
        self._tail.interrupted = lambda: loop.call_soon_threadsafe(self._disconnect_all)

    def bound(self, connections: int) -> None:
        """Limit the viewers to what a server with so many connections can serve: a tenth of them is
        for other requests, and one user gets half at most."""
        self.viewers_max = min(VIEWERS_MAX, connections * 9 // 10)
        self.viewers_per_user_max = min(VIEWERS_PER_USER_MAX, connections // 2)

    def _disconnect_all(self) -> None:
        """Disconnect every viewer, because the tail may have missed records: they reconnect with
        their cursors. Sessions whose loading has just begun are dropped too."""
        for task in self._watchings.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                for seat in list(task.result().seats):
                    seat.end()
        self._watchings.clear()
        for queue in self._lists:
            _put(queue, None)

    def close(self) -> None:
        """Disconnect every viewer."""
        for task in self._watchings.values():
            if not task.done():
                task.cancel()
                continue
            for seat in list(task.result().seats):
                seat.end()
        self._watchings.clear()

    @property
    def viewers(self) -> int:
        """The number of viewers now."""
        return self._viewers.total()

    # -- batches -----------------------------------------------------------------------------------

    def _take(self, batch: Batch) -> None:
        for decision in batch.decided:
            key = (decision.session_id, decision.offset)
            waiting = self._waiting.pop(key, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(decision)
            self._decisions[key] = decision
            if len(self._decisions) > DECISIONS_MAX:
                self._decisions.popitem(last=False)
        for seen in batch.seen:
            task = self._watchings.get(seen.entry.session_id)
            if task is not None and task.done():
                self._show(task.result(), seen)
            elif seen.entry.session_id in self._pending:
                self._pending[seen.entry.session_id].append(seen)
        for line in batch.moved.values():
            for queue in self._lists:
                _put(queue, line)

    def _show(self, watching: Watching, seen: FoldedEvent) -> None:
        """Show an event to the viewers; if it cannot be shown, disconnect that session's viewers.
        """
        try:
            watching.take(seen, self._read)
        except Exception as error:
            place = f"{watching.session_id} at offset {seen.entry.offset}"
            self._say(f"session {place} cannot be shown: {type(error).__name__}: {error}")
            self._watchings.pop(watching.session_id, None)
            self._tail.unwatch(watching.session_id)
            for seat in list(watching.seats):
                seat.end()

    async def decided(self, session_id: str, offset: int) -> Decision:
        """The fold's decision on an event that a producer wrote. Raises NotDecidedYet."""
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
                f"your command is in the log (offset {offset}), but this gateway has not decided "
                f"it within {DECIDE_S:.0f} s. Read the session in a moment; sending the command "
                "again with the same id is harmless."
            ) from None

    # -- viewers -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def attach(
        self, session_id: str, cursor: str | None = None, since: str = "start", user: str = ""
    ) -> AsyncIterator[Seat]:
        """As `sit`, and leave when the block ends."""
        seat = await self.sit(session_id, cursor, since, user)
        try:
            yield seat
        finally:
            self.leave(seat)

    async def sit(
        self, session_id: str, cursor: str | None = None, since: str = "start", user: str = ""
    ) -> Seat:
        """Add a viewer to a known session: from a cursor on, or from the start of the session, the
        start of the open or last turn, or now. `leave` removes it. Raises BadCursor,
        TooManyViewers.
        """
        assert since in SINCE, since
        place = None if cursor is None else place_of(session_id, cursor)
        self._enter(user)
        try:
            if place is not None:
                await self._demand_reached(session_id, place)
            watching = await self._watch(session_id)
            seat = Seat(watching, place or _start(watching, since), user)
            # A long history is built in a thread, without the events that arrive meanwhile; those
            # are few, and queued below.
            async with self._histories:
                past = watching.moment().lacking(seat.place, self._read)
                await asyncio.to_thread(seat.show, past)
            # The session may have been dropped meanwhile
            seat.watching = watching = await self._watch(session_id)
            seat.show(watching.moment().lacking(seat.place, self._read))
        except BaseException:
            self._exit(user)
            raise
        watching.seats.add(seat)
        return seat

    def leave(self, seat: Seat) -> None:
        """Remove a viewer; calling it again is harmless."""
        if not seat.left:
            seat.left = True
            seat.watching.seats.discard(seat)
            self._exit(seat.user)
            self._drop_idle()

    def _enter(self, user: str) -> None:
        """Count a viewer. Raises TooManyViewers."""
        is_full = self.viewers >= self.viewers_max
        if is_full or self._viewers[user] >= self.viewers_per_user_max:
            raise TooManyViewers("this gateway, or your user, has reached its limit of viewers: "
                                 "nothing was opened. Close one and try again")
        self._viewers[user] += 1

    def _exit(self, user: str) -> None:
        self._viewers[user] -= 1
        self._viewers += Counter()  # drops the users at zero

    def place(self, user: str) -> Callable[[], None]:
        """Count a viewer of something other than a session. Call the result when it leaves; calling
        it again is harmless. Raises TooManyViewers."""
        self._enter(user)
        left = False

        def leave() -> None:
            nonlocal left
            if not left:
                left = True
                self._exit(user)

        return leave

    async def _demand_reached(self, session_id: str, place: Place) -> None:
        """Raise BadCursor for a place beyond the end of the log."""
        # Of this gateway; another one may be further
        ahead = place.offset > self._tail.cursor(session_id)[1]
        if ahead and place.offset > await asyncio.to_thread(self._tail.end, session_id):
            raise BadCursor("points beyond the end of the log")

    async def _watch(self, session_id: str) -> Watching:
        while True:
            task = self._watchings.get(session_id)
            if task is None:
                task = asyncio.ensure_future(self._load(session_id))
                self._watchings[session_id] = task
            self._watchings.move_to_end(session_id)
            watching = await asyncio.shield(task)
            if self._watchings.get(session_id) is task:
                return watching  # else it was dropped before this viewer got it

    async def _load(self, session_id: str) -> Watching:
        """Load a session to watch: its views, the open attempt's chunks, then the events since."""
        pending: list[FoldedEvent] = []
        self._pending[session_id] = pending
        try:
            views, offset = await asyncio.to_thread(self._tail.watch, session_id)
            if views is None:
                raise Refused(f"there is no session {session_id}")
            watching = Watching(session_id, views, offset)
            running = watching.open_attempt()
            if running is not None and views.stream.chunks:
                attempt, claim = running
                partition, _ = self._tail.cursor(session_id)
                chunks = await asyncio.to_thread(self._chunks, session_id, partition, claim)
                assert views.turn.generation is not None
                chain = views.turn.generation.chain
                watching.viewer = viewer_of(attempt, chunks, chain)
            elif running is not None:
                watching.viewer = Viewer(running[0])
            for seen in pending:
                watching.take(seen, self._read)
            return watching
        except BaseException:  # the next viewer tries again
            self._watchings.pop(session_id, None)
            self._tail.unwatch(session_id)
            raise
        finally:
            if self._pending.get(session_id) is pending:
                del self._pending[session_id]

    def _drop_idle(self) -> None:
        """Stop watching sessions without viewers, except the most recent ones."""
        idle = [
            session_id
            for session_id, task in self._watchings.items()
            if task.done() and not task.result().seats
        ]
        for session_id in idle[: max(0, len(idle) - IDLE_WATCHES_MAX)]:
            del self._watchings[session_id]
            self._tail.unwatch(session_id)

    # -- lists -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def changes(self) -> AsyncIterator["Lines"]:
        """New summaries of every session, as they come; a full queue drops the oldest. None: some
        may be missing, and the reader must start over.
        """
        queue: Lines = asyncio.Queue(QUEUE_MAX)
        self._lists.add(queue)
        try:
            yield queue
        finally:
            self._lists.discard(queue)


def _put(queue: Lines, line: dict[str, Any] | None) -> None:
    if queue.full():
        queue.get_nowait()  # the newest lines are enough for a list
    queue.put_nowait(line)


def _start(watching: Watching, since: str) -> Place:
    turn = watching.views.turn
    starts = {"start": 0, "turn": turn.opened_offset, "now": watching.offset}
    return Place(max(0, starts[since]))
