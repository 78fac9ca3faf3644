"""The sink of a worker's effects: produces chunks directly, and outcomes through the outbox.

An outcome is synced to disk before it is produced, and is never dropped: it is produced again until
the log has it. After a restart, stored outcomes are produced before the worker takes its
partitions.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from ...log.door import Delivered, Producer
from ...log.errors import AppendError, FoldlogError, LogBusy, RecordTooLarge
from ...schemas import events as ev
from ...schemas.codec import encode, headers_for
from ...schemas.events import EVENT_TYPES
from ...schemas.tokens import estimate
from ...schemas.topics import SESSION_EVENTS
from .. import crash_points
from .outbox import Outbox, OutboxFull, Pending

RETRY_S = 0.5  # delay before an outcome that could not be written is produced again
GENERATIONS = (ev.GenComplete, ev.GenFailed, ev.GenStopped)
ROLE_OF = {row.cls: row.writers[0] for row in EVENT_TYPES}
"""The role that writes the outcome of an effect."""


class Reports:
    """Writes effects' chunks and outcomes.
    There is one per process; any thread and event loop may use it."""

    def __init__(self, producer: Producer, outbox: Outbox, say: Callable[[str], None]) -> None:
        self._producer = producer
        self._outbox = outbox
        self._say = say

    def chunk(self, session_id: str, event: ev.GenChunk) -> None:
        """Produce a chunk without waiting. If a chunk is lost, viewers only miss some text."""
        try:
            self._producer.append(
                SESSION_EVENTS, session_id, encode(event), headers_for(event, "models")
            )
            crash_points.reach("models.chunk")
        except FoldlogError as error:
            self._say(f"a chunk of {session_id} was not written: {error}")

    async def outcome(self, session_id: str, event: Any) -> None:
        """Store the outcome in the outbox, then produce it until the log has it."""
        role = ROLE_OF[type(event)]
        crash_points.reach(f"{role}.ended")
        token = await self._keep(session_id, event)
        crash_points.reach(f"{role}.kept")
        while True:
            done = asyncio.get_running_loop().create_future()
            settle = _settle(done)
            try:
                self._append(session_id, event, settle)
                crash_points.reach(f"{role}.sent")
                answer = await done
            except RecordTooLarge as error:
                self._say(f"an outcome of {session_id} is too large: {error}")
                event = _smaller(event, str(error))
                continue
            except LogBusy as error:
                answer = error
            if isinstance(answer, Delivered):
                crash_points.reach(f"{role}.delivered")
                self._drop(token)
                crash_points.reach(f"{role}.done")
                return
            self._say(f"an outcome of {session_id} is produced again: {answer}")
            await asyncio.sleep(RETRY_S)

    async def _keep(self, session_id: str, event: Any) -> int | None:
        """Store an outcome. Returns its token, or None if the disk failed;
        it is produced in either case."""
        try:
            return await asyncio.to_thread(self._outbox.put, session_id, event)
        except (OSError, OutboxFull) as error:
            self._say(
                f"an outcome of {session_id} is only in memory until the log has it, because it "
                f"could not be written to the outbox: {error}"
            )
            return None

    def _drop(self, token: int | None) -> None:
        try:
            if token is not None:
                self._outbox.done(token)
        except OSError as error:  # the outcome is produced once more at the next start
            self._say(f"could not record in the outbox that the log has an outcome: {error}")

    def _append(
        self, session_id: str, event: Any, settle: Callable[[Delivered | AppendError], None]
    ) -> None:
        headers = headers_for(event, ROLE_OF[type(event)])
        self._producer.append(
            SESSION_EVENTS, session_id, encode(event), headers, on_delivery=settle
        )

    def emit_pending(self, timeout_s: float) -> int:
        """Produce the stored outcomes of an earlier process.
        Returns how many were not written in time."""
        left, until = threading.Semaphore(0), time.monotonic() + timeout_s
        pending = self._outbox.pending()
        for kept in pending:

            def settled(answer: Delivered | AppendError, token: int = kept.token) -> None:
                if isinstance(answer, Delivered):
                    self._outbox.done(token)
                    left.release()

            self._append_kept(kept, settled, until)
            crash_points.reach("start.outbox")
        self._producer.flush(max(0.0, until - time.monotonic()))
        written = sum(1 for _ in pending if left.acquire(timeout=0))
        if pending:
            self._say(f"{written} of {len(pending)} outcomes of an earlier process were written")
        return len(pending) - written

    def _append_kept(
        self, kept: Pending, settle: Callable[[Delivered | AppendError], None], until: float
    ) -> None:
        """Produce a stored outcome, shortened if it is too large. If the broker does not accept the
        outcome, it stays in the outbox.
        """
        event = kept.event
        while True:
            try:
                return self._append(kept.session_id, event, settle)
            except RecordTooLarge as error:
                self._say(f"an outcome of {kept.session_id} is too large: {error}")
                event = _smaller(event, str(error))
            except LogBusy as error:
                if time.monotonic() >= until:
                    self._say(f"an outcome of {kept.session_id} stays in the outbox: {error}")
                    return None
                self._producer.flush(RETRY_S)


def _settle(done: asyncio.Future) -> Callable[[Delivered | AppendError], None]:
    loop = done.get_loop()

    def answer(result: Delivered | AppendError) -> None:
        def once() -> None:
            if not done.done():
                done.set_result(result)

        if not loop.is_closed():
            loop.call_soon_threadsafe(once)

    return answer


def _smaller(event: Any, why: str) -> Any:
    """A shorter outcome that replaces one which exceeds the record limit."""
    assert isinstance(event, (*GENERATIONS, ev.ToolResult)), "short events are never too large"
    place: dict[str, Any] = {"turn": event.turn, "step": event.step, "attempt": event.attempt}
    text = f"The outcome could not be written: {why}"[:2_000]
    if isinstance(event, ev.ToolResult):
        return ev.ToolResult(
            **place,
            index=event.index,
            outcome=event.outcome,
            via=event.via,
            content=ev.Body(inline=text.encode()),
            bytes=event.bytes,
            tokens=estimate(text),
            left_out=event.bytes,
        )
    return ev.GenFailed(
        **place,
        content=ev.Body(inline=b"[]"),
        error="outcome_too_large",
        detail=text,
        permanent=True,
        usage=getattr(event, "usage", None),
    )
