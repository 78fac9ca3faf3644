"""One worker's Actions at a desk: what it would write or begin is recorded instead of done.

The laws ask WAKE what a view owes and let the real Actions and decide answer it here. Nothing of
ours is replaced: only the producer and the effects, which are handed in to Actions everywhere.
"""

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, NamedTuple

from foldlog.log.blobs import BlobMissing
from foldlog.processors.agent import Agent
from foldlog.processors.effects.slots import Slots
from foldlog.processors.fold.projections.partition import PartitionView
from foldlog.processors.fold.views import SessionViews
from foldlog.processors.request.layers import NO_LAYERS, Layers
from foldlog.processors.request.rendered import Renderings
from foldlog.processors.store.partition_cache import PartitionCache
from foldlog.processors.store.store import DictBackend, Store
from foldlog.processors.wake.facts import Obligation
from foldlog.processors.worker.actions import Actions, BeginGeneration, BeginTool, BeginWork
from foldlog.processors.worker.claims import claim_of
from foldlog.processors.worker.ports import BeginDelivery
from foldlog.schemas import events as ev
from foldlog.schemas.codec import decode, entry_of
from foldlog.schemas.record import Record

INLINE_MAX = 200  # far below the real limit, so that histories have references in them
SLOTS = 1000  # never short: what waits for a slot is tested elsewhere


class Blobs:
    """A blob store in memory; a body of more than `inline_max` bytes becomes a reference."""

    def __init__(self, inline_max: int = INLINE_MAX) -> None:
        self.inline_max = inline_max
        self.held: dict[str, bytes] = {}

    def body(self, data: bytes, media_type: str = "application/json") -> ev.Body:
        if len(data) <= self.inline_max:
            return ev.Body(inline=data)
        return ev.Body(ref=self.store(data, media_type))

    def store(self, data: bytes, media_type: str) -> ev.BlobRef:
        name = sha256(data).hexdigest()
        self.held[name] = data
        return ev.BlobRef(sha256=name, bytes=len(data), media_type=media_type)

    def read(self, ref: ev.BlobRef) -> bytes:
        if ref.sha256 not in self.held:
            raise BlobMissing(f"no blob {ref.sha256}")
        return self.held[ref.sha256]


def chunks_in(records: Iterable[Record], before: int | None = None) -> list[ev.GenChunk]:
    """The chunks among records that lie before an offset, or among all of them."""
    chunks = (
        entry_of(record, chunks=True).event
        for record in records
        if dict(record.headers).get("t") == b"GEN_CHUNK"
        and (before is None or record.offset < before)
    )
    return [chunk for chunk in chunks if isinstance(chunk, ev.GenChunk)]


class Done(NamedTuple):
    """What a worker did about an obligation. `written`: (event, role) for the log; `begun`:
    (what, begin) for effects; `reported`: outcomes that no effect makes."""

    written: list[tuple[Any, str]]
    begun: list[tuple[str, BeginGeneration | BeginTool | BeginWork | BeginDelivery]]
    reported: list[Any]
    stopped: list[int]


class Desk:
    """A worker that has just started: nothing in the air, nothing begun."""

    def __init__(
        self,
        owner: str,
        blobs: Blobs,
        now: Callable[[], int],
        layers: Layers = NO_LAYERS,
        renderings: Renderings | None = None,
        records: Iterable[Record] = (),
    ) -> None:
        self._records = records
        self.done = Done([], [], [], [])
        self.said: list[str] = []
        self._now = now
        self._owned = PartitionCache(0, Store(DictBackend()))
        self.actions = Actions(
            owner, self._append, self, blobs.body, blobs.read, Slots(SLOTS), Slots(SLOTS), self,
            self.said.append, lambda agent, views: layers,
        )
        if renderings is not None:
            self.actions._renderings = renderings

    # -- the clock -------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._now()

    def monotonic_ms(self) -> int:
        return self._now()

    # -- the producer ----------------------------------------------------------------------------

    def _append(self, topic, partition, key, value, headers, failed) -> None:
        role = dict(headers)["w"].decode()
        self.done.written.append((decode(value), role))

    # -- the effects -----------------------------------------------------------------------------

    def generate(self, session_id: str, begin: BeginGeneration) -> None:
        self.done.begun.append(("generate", begin))

    def run_tool(self, session_id: str, begin: BeginTool) -> None:
        self.done.begun.append(("run_tool", begin))

    def reconcile(self, session_id: str, begin: BeginTool) -> None:
        self.done.begun.append(("reconcile", begin))

    def recover_chunks(self, session_id: str, partition: int, begin: BeginGeneration) -> None:
        self.done.begun.append(("recover_chunks", begin))

    def chunks_since(
        self, session_id: str, partition: int, offset: int, attempt: int
    ) -> list[ev.GenChunk]:
        return chunks_in(record for record in self._records if record.offset >= offset)

    def work(self, session_id: str, begin: BeginWork) -> None:
        self.done.begun.append(("work", begin))

    def deliver(self, session_id: str, begin: BeginDelivery) -> None:
        self.done.begun.append(("deliver", begin))

    def report(self, session_id: str, event: Any) -> None:
        self.done.reported.append(event)

    def stop(self, session_id: str, claim_offset: int, why: str) -> bool:
        self.done.stopped.append(claim_offset)
        return True

    def running(self, role: str) -> int:
        return 0

    # -- work ------------------------------------------------------------------------------------

    def discharge(
        self,
        views: SessionViews,
        holders: PartitionView,
        owed: Obligation,
        agent: Agent | None,
        now: int,
    ) -> Done:
        """What this worker does about one obligation at these views."""
        self.done = Done([], [], [], [])
        self._owned.partition = holders
        if owed.owed == "begin" and owed.role != "tools":  # it has read its claim back at once
            claim = claim_of(views, owed)
            self.actions._claim_times.produced(views.session_id, owed, claim, self._now())
        self.actions.discharge(self._owned, views, owed, agent, now)
        return self.done
