"""What the real code would write for an obligation, at any view: for laws that quantify over views.

A probe is the Actions of an imaginary worker that holds the partition; what it writes, reports or
begins is caught and nothing leaves it.
"""

from typing import Any, NamedTuple

from foldlog.processors.effects.slots import Slots
from foldlog.processors.fold.projections.partition import Holder, PartitionView
from foldlog.processors.worker.actions import Actions
from foldlog.processors.worker.reports import ROLE_OF
from foldlog.schemas import events as ev
from foldlog.tests.laws import answers

ROLES = ("background", "delivery", "models", "sessions", "tools")


class Place(NamedTuple):
    """The part of PartitionCache that a discharge reads."""

    number: int
    partition: PartitionView
    stuck: dict


class _Caught(Actions):
    """Keeps the events instead of producing them."""

    def write(self, partition: int, key: str, event: Any, role: str, lost: Any = None) -> bytes:
        self.events.append((event, role))
        return b""


class Probe:
    """The Effects of an imaginary worker: `events` holds (event, role) of one discharge."""

    def __init__(self, world: Any, owner: str) -> None:
        self.world = world
        self.events: list[tuple[Any, str]] = []
        self.actions = _Caught(
            owner,
            None,
            self,
            world.blobs.body,
            world.blobs.read,
            Slots(16),
            Slots(16),
            world.nodes[0].clock,
            lambda text: None,
        )
        self.actions.events = self.events

    def generate(self, session_id: str, begin: Any) -> None:
        place = {"turn": begin.turn, "step": begin.step, "attempt": begin.attempt}
        content = ev.Body(inline=b"[]")
        event = ev.GenFailed(**place, content=content, error="x", detail="", permanent=True)
        self.events.append((event, "models"))

    def chunks_since(
        self, session_id: str, partition: int, offset: int, attempt: int
    ) -> list[ev.GenChunk]:
        return []

    def recover_chunks(self, session_id: str, partition: int, begin: Any) -> None:
        place = {"turn": begin.turn, "step": begin.step, "attempt": begin.attempt}
        event = ev.GenStopped(**place, why="x", content=ev.Body(inline=b"[]"))
        self.events.append((event, "models"))

    def run_tool(self, session_id: str, begin: Any) -> None:
        self.reconcile(session_id, begin)

    def reconcile(self, session_id: str, begin: Any) -> None:
        call = begin.call
        place = {"turn": call.turn, "step": call.step, "index": call.index}
        event = ev.ToolFailedUncertain(**place, attempt=call.attempt, reason="x")
        self.events.append((event, "tools"))

    def report(self, session_id: str, event: Any) -> None:
        self.events.append((event, ROLE_OF[type(event)]))

    def work(self, session_id: str, begin: Any) -> None:
        event = answers.done(begin.kind, begin.upto, begin.attempt, why="x")
        self.events.append((event, "background"))

    def deliver(self, session_id: str, begin: Any) -> None:
        place = (begin.owed.turn, begin.owed.step, begin.owed.channel, begin.owed.attempt)
        self.events.append((answers.undelivered(place, permanent=True), "delivery"))

    def stop(self, session_id: str, claim_offset: int, why: str) -> bool:
        return False

    def running(self, role: str) -> int:
        return 0


def discharge(
    world: Any, number: int, partition: PartitionView, views: Any, owed: Any, now: int
) -> list[tuple[Any, str]]:
    """The events that the holder of the partition writes for an obligation, with their roles."""
    holder = partition.holder(owed.role)
    assert holder is not None
    probe = Probe(world, holder.owner)
    probe.actions.discharge(Place(number, partition, {}), views, owed, world.agent, now)
    return probe.events


def taken_by(owner: str, epoch: int) -> PartitionView:
    """As if this owner had just taken the partition for every role."""
    return PartitionView(tuple(Holder(role, owner, epoch) for role in ROLES))
