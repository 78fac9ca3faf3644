"""Invariants of WAKE and of progress: every obligation can be discharged, and is discharged."""

from collections import Counter
from typing import Any

from foldlog.processors.effects.kinds import SLOTS
from foldlog.processors.fold.projections.partition import ROLES, Holder, PartitionView
from foldlog.processors.wake.facts import wake
from foldlog.processors.wake.table import BY_ID
from foldlog.tests.kit.invariants import has_ended, nobody_is_stuck
from foldlog.tests.kit.law9 import ViewOfPartition, check_view
from foldlog.tests.simulation.invariant import Invariant

FAR_MS = 10**9  # past every deadline
LONG_MS = 1_000  # longer than any step takes here that is not an effect
SLOTS_MIN = 1  # an effect of the role may occupy the last slot
RUNNING = ("wait", "begin", "abort")  # owed as long as an effect runs


def taken_by(owner: str, epoch: int) -> PartitionView:
    """The holders of a partition after this owner has taken it for every role."""
    return PartitionView(tuple(Holder(role, owner, epoch) for role in sorted(ROLES)))


class WakeAndFoldAgree(Invariant):
    """Law 9: at every view, the fold accepts each event that the WAKE table asks for.

    The event then discharges the row that asked for it. Some views, chosen at random, are also
    checked with a later time or a new holder. A second evaluation of WAKE returns the same rows.
    """

    def on_seen(self, seen: Any) -> None:
        if seen.views.turn is seen.before.turn and seen.views.frozen is seen.before.frozen:
            return
        world, entry = self.world, seen.entry
        place = entry.offset + 1, entry.partition
        self.check(ViewOfPartition(seen.views, seen.holders, world.now, *place))
        if world.rng_checks.random() < world.scenario.probes:
            owner = world.rng_checks.choice(("w1/1", "w1/99", "w9/1"))
            holders = taken_by(owner, entry.offset + 1)
            now = world.now + world.rng_checks.choice((0, FAR_MS))
            place = entry.offset + 2, entry.partition
            self.check(ViewOfPartition(seen.views, holders, now, *place))

    def on_taken(self, partition: int, entry: Any) -> None:
        witness = self.world.witness
        holders = witness.holders[partition]
        for session, views in witness.views.items():
            if witness.partition_of[session] == partition and views.turn.open:
                place = entry.offset + 1, partition
                self.check(ViewOfPartition(views, holders, self.world.now, *place))

    def check(self, now: ViewOfPartition) -> None:
        """Check every obligation at one view."""
        rules = self.world.rules_for(now.views)
        owed = wake(now.views, now.holders, now.at, rules)
        again = wake(now.views, now.holders, now.at, rules)
        if owed != again:
            self.fail(f"wake returned {owed}, then {again}")
        rows: Counter[str] = Counter()
        agent = self.world.agent if rules is not None else None
        try:
            check_view(now, agent, self.world.blobs, rows)
        except AssertionError as broken:
            self.fail(str(broken))
        for row in rows:
            if BY_ID[row].owed != "wait" and now.holders.holder(BY_ID[row].role) is not None:
                self.world.stats[f"law9 {row}"] += rows[row]


class NobodyIsStuck(Invariant):
    """Law 9 at run time, for each partition of a worker after its round."""

    def on_round(self, process: Any) -> None:
        for owned in process.worker.owned.values():
            nobody_is_stuck.demand(process.owner, owned.stuck)


class NothingIsForgotten(Invariant):
    """Law 4: without faults, a worker that has been idle for long has no obligation that it could
    discharge."""

    def on_jump(self, gap_ms: int) -> None:
        world, witness = self.world, self.world.witness
        if gap_ms < LONG_MS or world.scenario.faults or world.scenario.fates:
            return
        for session, views in witness.views.items():
            number = witness.partition_of[session]
            process = next(node.process for node in world.nodes if number in node.want)
            rules = world.rules_for(views)
            now = process.worker.now(process.worker.owned[number])
            for owed in wake(views, witness.holders[number], now, rules):
                if owed.owed in RUNNING or process.effects.running(owed.role) >= SLOTS_MIN:
                    continue
                if now < process.model_slots.back_off_until_ms and owed.role == "models":
                    continue
                self.fail(f"{session} is owed {owed}, and no worker acts for {gap_ms} ms")


class SlotsAreKept(Invariant):
    """No more effects run at the same time than an API key or a process has slots.

    This is not checked in scenarios with delays, where a claim that is considered lost may still be
    accepted.
    """

    def on_begun(self, role: str, process: Any, session_id: str, begin: Any) -> None:
        if self.world.scenario.delays:
            return
        own = {"models": self.world.model_slots, "tools": self.world.tool_slots}
        slots = {**SLOTS, **own}[role]
        begun = process.effects.begun()  # reconciling and recovering need no slot
        running = sum(1 for one in begun if one.role == role and not one.effect.recovers)
        self.demand(running < slots, f"{running} {role} run already, of {slots}")


class Liveness(Invariant):
    """I17: without faults, every session becomes idle or waits for a person."""

    def when_calm(self) -> None:
        world, witness = self.world, self.world.witness
        for session, views in witness.views.items():
            number = witness.partition_of[session]
            holders, rules = witness.holders[number], world.rules_for(views)
            has_ended.demand(views, holders, world.now, rules)

    def at_end(self) -> None:
        """Check that no turn is open after the last message of each person."""
        for session, views in self.world.witness.views.items():
            if views.frozen is None and views.turn.agent == self.world.agent.name:
                self.demand(not views.turn.open, f"{session} does not end: {views.turn}")


WAKE = (WakeAndFoldAgree, NobodyIsStuck, NothingIsForgotten, SlotsAreKept, Liveness)
