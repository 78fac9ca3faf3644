"""A worker's Actions with recorded output: the events that they write and the effects that they
begin.

The laws ask WAKE for the obligations of a view, and let the real Actions and decide discharge them.
Only the producer and the effects are replaced, and Actions receives these as arguments anyway.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, assert_never

from foldlog.processors.agent import Agent
from foldlog.processors.effects.ports import (
    Begin,
    BeginDelivery,
    BeginGeneration,
    BeginTool,
    BeginWork,
    EffectId,
)
from foldlog.processors.effects.slots import Slots
from foldlog.processors.fold.projections.partition import PartitionView
from foldlog.processors.fold.views import SessionViews
from foldlog.processors.request.layers import NO_LAYERS, Layers
from foldlog.processors.request.rendered import Renderings
from foldlog.processors.store.partition_cache import PartitionCache
from foldlog.processors.store.store import DictBackend, Store
from foldlog.processors.wake.facts import Obligation
from foldlog.processors.worker.actions import Actions
from foldlog.schemas import events as ev
from foldlog.schemas.codec import decode, entry_of
from foldlog.schemas.record import Record
from foldlog.tests.kit.blobs import MemoryBlobs

SLOTS = 1000  # never short: waiting for a slot is tested elsewhere


def what_begins(begin: Begin) -> str:
    """What an effect does, in a word."""
    match begin:
        case BeginGeneration():
            return "recover_chunks" if begin.recovers else "generate"
        case BeginTool():
            return "reconcile" if begin.recovers else "run_tool"
        case BeginWork():
            return "work"
        case BeginDelivery():
            return "deliver"
        case _:
            assert_never(begin)


def chunks_in(records: Iterable[Record], before: int | None = None) -> list[ev.GenChunk]:
    """The chunks among these records: those below an offset, or all of them."""
    chunks = (
        entry_of(record, chunks=True).event
        for record in records
        if dict(record.headers).get("t") == b"GEN_CHUNK"
        and (before is None or record.offset < before)
    )
    return [chunk for chunk in chunks if isinstance(chunk, ev.GenChunk)]


class RecordedEffects:
    """Effects that are recorded and never run. `begins`: each with what it does; `reported`:
    outcomes that the worker reports without an effect; `stopped`: the claim offsets of the effects
    to stop."""

    def __init__(self) -> None:
        self.begins: list[tuple[str, Begin]] = []
        self.reported: list[Any] = []
        self.stopped: list[int] = []

    def begin(self, session_id: str, begin: Begin) -> None:
        self.begins.append((what_begins(begin), begin))

    def chunks_since(
        self, session_id: str, partition: int, offset: int, attempt: int
    ) -> list[ev.GenChunk]:
        return []

    def report(self, session_id: str, event: Any) -> None:
        self.reported.append(event)

    def stop(self, effect: EffectId, why: str) -> bool:
        self.stopped.append(effect.claim_offset)
        return True

    def running(self, role: str) -> int:
        return 0


class Discharge(NamedTuple):
    """The output for one obligation. `written`: the (event, role) of each event for the log; for
    the other fields see RecordedEffects."""

    written: list[tuple[Any, str]]
    begun: list[tuple[str, Begin]]
    reported: list[Any]
    stopped: list[int]


class RecordedActions(RecordedEffects):
    """The Actions of a worker that has just started, with the effects and the clock that they
    use."""

    def __init__(
        self,
        owner: str,
        blobs: MemoryBlobs,
        now: Callable[[], int],
        layers: Layers = NO_LAYERS,
        renderings: Renderings | None = None,
        records: Iterable[Record] = (),
    ) -> None:
        super().__init__()
        self._records = records
        self._now = now
        self._written: list[tuple[Any, str]] = []
        self._owned = PartitionCache(0, Store(DictBackend()))
        self.lines: list[str] = []
        self.actions = Actions(
            owner, self._append, self, blobs.body, blobs.read, Slots(SLOTS), Slots(SLOTS), self,
            self.lines.append, lambda agent, views: layers,
        )
        if renderings is not None:
            self.actions.kinds.models.renderings = renderings

    # -- the clock -------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._now()

    def monotonic_ms(self) -> int:
        return self._now()

    # -- the producer and the log ----------------------------------------------------------------

    def _append(self, topic, partition, key, value, headers, failed) -> None:
        role = dict(headers)["w"].decode()
        self._written.append((decode(value), role))

    def chunks_since(
        self, session_id: str, partition: int, offset: int, attempt: int
    ) -> list[ev.GenChunk]:
        return chunks_in(record for record in self._records if record.offset >= offset)

    # -- discharge -------------------------------------------------------------------------------

    def discharge(
        self,
        views: SessionViews,
        holders: PartitionView,
        owed: Obligation,
        agent: Agent | None,
        now: int,
    ) -> Discharge:
        """Discharge one obligation at these views."""
        self._written, self.begins, self.reported, self.stopped = [], [], [], []
        self._owned.partition = holders
        if owed.owed == "begin" and owed.role != "tools":  # let it read back its claim at once
            claim = self.actions.kinds.of(owed.role).claimed(views, owed)
            self.actions._claim_times.record(views.session_id, owed, claim, self._now())
        self.actions.discharge(self._owned, views, owed, agent, now)
        return Discharge(self._written, self.begins, self.reported, self.stopped)
