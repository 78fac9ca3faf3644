"""Stops effects that still run in this process after their partition moved to another worker.

A worker that lost a partition makes no decisions in it and lets its running effects end, but a
cancel must still reach these effects. So the worker continues to read the partition, outside of the
group, from the offset where it stopped. It folds, in memory, only the sessions whose effects run in
this process, and stops an effect once its outcome is no longer needed.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from ...log.door import Log, Reader
from ...log.errors import OffsetGone
from ...schemas.enums import Role
from ...schemas.events.parts import ReadBlob
from ...schemas.record import Record
from ...schemas.topics import SESSION_EVENTS
from ..effects.kinds import is_wanted
from ..effects.ports import EffectId
from ..entries import foldable_entry
from ..fold.sessions import fold_event
from ..fold.views import SessionViews, initial
from ..store.partition_cache import PartitionCache

POLL_S = 0.2
RETRY_S = 1.0  # delay before the log is read again after an error
CLOSE_S = 2.0  # how long the thread may take to end its round
ENDING = "the turn is ending"


class Running(NamedTuple):
    """A running effect and its role."""

    role: Role
    effect: EffectId


class Effects(Protocol):
    """Lists and stops running effects. Any thread may call the methods."""

    def begun(self) -> list[Running]: ...
    def stop(self, effect: EffectId, why: str) -> bool: ...


class _Lost:
    """A lost partition: the sessions whose effects run in this process,
    and the next offset to read."""

    def __init__(self, next_offset: int, sessions: dict[str, SessionViews]) -> None:
        self.next_offset, self.sessions = next_offset, sessions


class LostEffects:
    """Reads lost partitions in a thread while effects run. No method blocks.

    threaded: False if the caller calls `round` itself.
    """

    def __init__(
        self,
        log: Log,
        effects: Effects,
        read_blob: ReadBlob,
        say: Callable[[str], None],
        *,
        threaded: bool = True,
    ) -> None:
        self._log, self._effects, self._say, self._threaded = log, effects, say, threaded
        self._read_blob = read_blob
        self._lost: dict[int, _Lost] = {}
        self._reader: Reader | None = None
        self._jobs: deque[Callable[[], None]] = deque()
        self._lock, self._halt = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    # -- called by the worker --------------------------------------------------------------------

    def partition_lost(self, owned: PartitionCache) -> None:
        """Continue to read a lost partition, for the sessions whose effects still run in this
        process.
        """
        names = {running.effect.session_id for running in self._claimed()}
        known = {name: owned.views(name) for name in names}
        if owned.next_offset < owned.takes_from:  # still catching up: a session may be missing
            known = {name: held or initial(name) for name, held in known.items()}
        sessions = {name: held for name, held in known.items() if held is not None}
        number, next_offset = owned.number, owned.next_offset
        for held in sessions.values():
            if held.turn.known:
                self.judge(held, next_offset)
        if sessions:
            self._post(lambda: self._follow(number, next_offset, sessions))

    def partition_regained(self, partition: int) -> None:
        """Stop reading the partition, because the worker itself folds it again."""
        if self._lost or self._jobs:
            self._post(lambda: self._forget(partition))

    def check(self, sessions: Iterable[SessionViews | None], next_offset: int) -> None:
        """Stop effects of changed sessions in an assigned partition, if their outcome is no longer
        needed.

        `sessions`: the views of these sessions.
        `next_offset`: the offset up to which the views are folded.

        WAKE also stops effects in a partition that this worker holds, but it knows only the newest
        claim of each effect. An effect may still run in this process under an older claim: another
        worker took the effect over, or an earlier attempt of the same call reported its outcome.
        """
        claimed = self._claimed()
        names = {running.effect.session_id for running in claimed}
        for views in sessions if names else ():
            if views is not None and views.session_id in names:
                self._judge(views, next_offset, claimed)

    def judge(self, views: SessionViews, next_offset: int) -> None:
        """Stop a session's effects whose outcome is no longer needed.

        The views may be old, for example while a store is refolded. They contain no claims from
        `next_offset` on, so effects with these claims are not stopped.
        """
        self._judge(views, next_offset, self._claimed())

    def _judge(self, views: SessionViews, next_offset: int, claimed: list[Running]) -> None:
        for running in claimed:
            effect = running.effect
            known = effect.session_id == views.session_id and effect.claim_offset < next_offset
            if known and not is_wanted(views, running.role, effect.claim_offset):
                self._effects.stop(effect, ENDING)

    def _claimed(self) -> list[Running]:
        """The running effects that can be stopped, without recoveries and deliveries."""
        begun = self._effects.begun()
        return [r for r in begun if r.role != Role.DELIVERY and not r.effect.recovers]

    # -- following -------------------------------------------------------------------------------

    def positions(self) -> dict[int, int]:
        """The next offset of every lost partition that is read."""
        return {number: lost.next_offset for number, lost in self._lost.items()}

    def round(self, timeout_s: float) -> bool:
        """Read new records and stop unneeded effects.
        Returns whether lost partitions are being read."""
        while self._jobs:
            self._jobs.popleft()()
        names = {running.effect.session_id for running in self._claimed()}
        for number, lost in list(self._lost.items()):
            lost.sessions = {n: v for n, v in lost.sessions.items() if n in names}
            if not lost.sessions:
                self._forget(number)
        if not self._lost:
            return False
        if self._reader is None:
            self._reader = self._log.reader(SESSION_EVENTS, self.positions())
        try:
            for record in self._reader.poll(timeout_s):
                self._take(record)
        except OffsetGone as gone:
            self._say(f"cancels no longer reach the running effects of a lost partition: {gone}")
            self._forget(gone.partition)
        return True

    def _take(self, record: Record) -> None:
        lost = self._lost.get(record.partition)
        if lost is None:
            return
        lost.next_offset = record.offset + 1
        name = (record.key or b"").decode("utf-8", "replace")
        before = lost.sessions.get(name)
        if before is None:
            return
        views = fold_event(before, foldable_entry(record, self._read_blob)).views
        lost.sessions[name] = views
        if views is not before:
            self.judge(views, lost.next_offset)

    def _follow(self, partition: int, next_offset: int, sessions: dict[str, SessionViews]) -> None:
        self._lost[partition] = _Lost(next_offset, sessions)
        self._close_reader()

    def _forget(self, partition: int) -> None:
        if self._lost.pop(partition, None) is not None:
            self._close_reader()

    def _close_reader(self) -> None:
        """Close the reader, because another set of partitions needs a new reader."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    # -- the thread ------------------------------------------------------------------------------

    def _post(self, job: Callable[[], None]) -> None:
        with self._lock:
            self._jobs.append(job)
            if self._threaded and self._thread is None and not self._halt.is_set():
                self._thread = threading.Thread(target=self._run, name="lost effects", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        reported: type[Exception] | None = None  # the class only: texts vary during an outage
        while not self._halt.is_set():
            try:
                follows, reported = self.round(POLL_S), None
            except Exception as error:  # the broker is unreachable: the effects continue
                if type(error) is not reported:
                    reported = type(error)
                    self._say(
                        "the effects of lost partitions continue, and cancels do not reach them "
                        f"until the log can be read again: {error}"
                    )
                self._close_reader()
                self._halt.wait(RETRY_S)
                continue
            with self._lock:
                if not follows and not self._jobs:
                    self._thread = None
                    return
        self._close_reader()

    def close(self) -> None:
        """Stop reading."""
        self._halt.set()
        thread = self._thread
        if thread is not None:
            thread.join(CLOSE_S)
