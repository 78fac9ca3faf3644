"""Invariants of background work: it delays no step, it ends, and its result is adopted once."""

from collections import Counter
from typing import Any

from foldlog.processors.fold.projections.background import SUMMARIES
from foldlog.processors.wake.budget import plan
from foldlog.processors.wake.decide import rules_of
from foldlog.schemas import events as ev
from foldlog.schemas.codec import decode
from foldlog.tests.kit.invariants import work_delays_no_step
from foldlog.tests.simulation.invariant import Invariant

ABORTS = ("cancelled", "terminated")


class CandidatesAreAdoptedOnce(Invariant):
    """S1.B: a summary comes into force with the first LLM_CALLED that names it. Each summary comes
    into force once, and covers more than the summary before."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.in_force: dict[str, tuple[int, int]] = {}  # (offset, kept_from)
        self.adopted: set[tuple[str, int]] = set()

    def on_seen(self, seen: Any) -> None:
        event, session = seen.entry.event, seen.entry.session_id
        if not isinstance(event, ev.LlmCalled) or not seen.ruling.accepted:
            return
        before = self.in_force.get(session, (None, 0))
        if event.checkpoint is None or event.checkpoint == before[0]:
            return
        named = self.world.witness.seen.get((seen.entry.partition, event.checkpoint))
        made = named and isinstance(named.entry.event, ev.ContextCompacted)
        if not made or not named.ruling.accepted or named.entry.session_id != session:
            self.fail(f"{session}: {event} names no accepted summary: {named}")
        kept_from = named.entry.event.kept_from
        self.demand(kept_from > before[1], f"{session} steps back from {before} to {kept_from}")
        self.demand((session, event.checkpoint) not in self.adopted, f"{event} adopts again")
        self.adopted.add((session, event.checkpoint))
        self.in_force[session] = event.checkpoint, kept_from


class WorkDelaysNoStep(Invariant):
    """S1.H: background work delays only a step whose request would not fit without it (N2w)."""

    def on_seen(self, seen: Any) -> None:
        if seen.views.turn.open and seen.views.turn.agent == self.world.agent.name:
            rules = rules_of(self.world.agent)
            work_delays_no_step.demand(seen, rules, self.world.now)


class WorkEnds(Invariant):
    """Law 4: claimed work ends once, within the attempts that the agent allows, and is not claimed
    again for the same offset."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.done: set[tuple[str, str, int]] = set()
        self.released: Counter[tuple[str, str, int]] = Counter()

    def on_seen(self, seen: Any) -> None:
        event, session = seen.entry.event, seen.entry.session_id
        if not seen.ruling.accepted:
            return
        if isinstance(event, ev.BackgroundStarted):
            place = (session, event.kind, event.upto)
            self.demand(place not in self.done, f"{event} claims finished work again")
            most = self.world.agent.limits.background_attempts + self.released[place]
            self.demand(event.attempt <= most, f"{event} is one attempt too many, of {most}")
        elif isinstance(event, ev.BackgroundDone):
            place = (session, event.kind, event.upto)
            self.demand(place not in self.done, f"{event} ends twice")
            if event.released:
                self.released[place] += 1
            else:
                self.done.add(place)

    def when_calm(self) -> None:
        for session, views in self.world.witness.views.items():
            known = views.turn.agent == self.world.agent.name and views.frozen is None
            if known:
                works = views.background.works
                self.demand(not works, f"{session} still has {works}")


class AbortedWorkStops(Invariant):
    """Constraint 3: an abort ends the running background work. Its candidates are rejected, no
    worker takes it over, and without faults it ends within the grace period."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.aborted: dict[tuple[str, str, int], int] = {}

    def on_seen(self, seen: Any) -> None:
        event, session = seen.entry.event, seen.entry.session_id
        if not seen.ruling.accepted:
            return
        closing = seen.views.turn.closing
        if isinstance(event, ev.CancelRequested | ev.SessionTerminated):
            if closing is not None and closing.reason in ABORTS:
                for work in seen.before.background.works:
                    place = (session, work.kind, work.upto)
                    self.aborted.setdefault(place, seen.entry.at)
        elif isinstance(event, ev.BackgroundStarted):
            place = (session, event.kind, event.upto)
            self.demand(place not in self.aborted, f"{event} takes over aborted work")
        elif isinstance(event, ev.ContextCompacted):
            stopped = [(session, kind, event.upto) in self.aborted for kind in SUMMARIES]
            self.demand(not any(stopped), f"{event} is accepted, but was aborted")
        elif isinstance(event, ev.BackgroundDone) and not self.world.scenario.faults:
            since = self.aborted.get((session, event.kind, event.upto))
            if since is not None:
                took = seen.entry.at - since
                most = self.world.agent.limits.grace_ms
                self.demand(took <= most, f"{event} took {took} ms to end")


class BudgetIsExceededOnlyAsLastResort(Invariant):
    """N2: a turn ends for its budget only if nothing can make its request fit: no background work
    is running that the session still waits for, and no candidate saves enough."""

    def on_produced(
        self, process: Any, partition: int, key: str, value: bytes, kind: bytes
    ) -> None:
        if kind != b"TURN_ENDED":
            return
        event = decode(value)
        if event.reason != "budget_exceeded" or event.limit is None:
            return
        owned = process.worker.owned[partition]
        views, agent = owned.views(key), process.worker.agents[self.world.agent.name]
        if agent.strategy != "compacted":
            return
        now, rules = process.worker.now(owned), rules_of(agent)
        works = [work for work in views.background.works if work.kind != "memory"]
        late = now >= views.turn.due_at + agent.limits.candidate_wait_ms
        self.demand(late or not works, f"{key} gives up although {works} may help")
        candidate = views.compaction.candidate
        if candidate is not None and plan(views, rules).checkpoint != candidate.offset:
            fragments, begin = views.context.fragments, 0
            if views.compaction.checkpoint is not None:
                begin = views.compaction.checkpoint.kept_from
            shown = sum(weight(views, n) for n in range(begin, candidate.kept_from))
            fits = event.used - shown + candidate.tokens <= event.limit
            self.demand(not fits, f"{key} gives up in spite of {candidate}, of {len(fragments)}")


def weight(views: Any, place: int) -> int:
    """The smallest number of tokens that a fragment of the context can have in a request. `place`:
    the index of the fragment."""
    fragments, view = views.context.fragments, views.compaction
    total = fragments[place].total - (fragments[place - 1].total if place else 0)
    return total - sum(short.saved for short in view.shorts if short.place == place)


BACKGROUND = (
    CandidatesAreAdoptedOnce,
    WorkDelaysNoStep,
    WorkEnds,
    AbortedWorkStops,
    BudgetIsExceededOnlyAsLastResort,
)
