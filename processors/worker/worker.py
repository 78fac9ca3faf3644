"""The worker's core: it takes records and does the pending work, without a thread, socket or clock
of its own.

A round folds new records, writes views and cursor in one batch, then evaluates WAKE and discharges
the obligations (the pending actions). The producer, the stores, the effects and the clock are
passed in, so the simulator runs the same code.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from ...log.blobs import BlobError, BlobsAway
from ...log.errors import Corrupt, LogCut, LogFatal
from ...log.settings import SESSION_CACHE_MB
from ...schemas.codec import ChunkSeen, Entry, Unreadable
from ...schemas.enums import EndReason, Role
from ...schemas.events import PartitionTaken, TurnEnded
from ...schemas.events.parts import AgentDigest
from ...schemas.ids import PARTITION_KEY
from ...schemas.record import Record
from .. import crash_points
from ..agent import Agent
from ..agent_digest import digests_of
from ..effects.failed_turns import failed_turn
from ..entries import foldable_entry
from ..fold.ruling import ACCEPTED
from ..fold.sessions import KEY_BYTES_MAX, fold_event, is_foldable
from ..fold.views import SessionViews
from ..store.clocks import Clock, ClockWatch, Reading, anchor_of, produced_header, reading
from ..store.hot_sessions import MB, HotSessions
from ..store.identity import Identity
from ..store.partition_cache import FactOf, OpenStore, OtherLog, PartitionCache, may_owe
from ..store.rocks import DiskFailed
from ..wake.decide import rules_of
from ..wake.facts import Obligation, owed_to_end, wake
from ..wake.table import Action
from .actions import Actions, DischargeResult, left_alone
from .announce import Announcer
from .deaths import Deaths, IsDead, unknown
from .fact_sender import FactSender
from .lost_effects import LostEffects
from .meter import Meter, refusal_lines

CLAIMED_AHEAD = (Action.GEN_START, Action.TOOL_STARTED)  # written with the decision before them
ASK_TIME_MS = 300_000  # between PARTITION_TAKENs that only measure broker time
BLOBS_RETRY_MS = 1_000  # between two tries of a session that needs a blob store that is away
NO_SESSION_KEY = f"the key is no session id: . or .., not UTF-8, or over {KEY_BYTES_MAX} bytes"
SESSION_TIMEOUT_MS = 6_000  # of the group; the shortest time between two PARTITION_TAKENs


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What a worker is made of. The parts with a default belong to the process around it, which the
    simulator and the test kit do not have.
    """

    identity: Identity
    roles: tuple[str, ...]
    agents: Iterable[Agent]
    open_store: OpenStore
    actions: Actions
    clock: Clock
    say: Callable[[str], None]
    announced: tuple[AgentDigest, ...] = ()
    session_cache_mb: int = SESSION_CACHE_MB
    is_dead: IsDead = unknown
    lost_effects: LostEffects | None = None
    announcer: Announcer | None = None
    fact_of: FactOf | None = None  # for the role sessions, as is `fact_sender`
    fact_sender: FactSender | None = None
    check_tokens: Callable[[SessionViews], None] | None = None  # called for changed sessions
    make_snapshots: Callable[["Worker"], None] | None = None  # called in each round
    has_letter: Callable[[Record], bool] | None = None  # whether a record has a dead letter
    meter: Meter | None = None
    only: str | None = None  # a session woken by hand: all others are skipped


class Worker:
    """Folds the partitions it owns and discharges the obligations of its roles."""

    def __init__(self, parts: WorkerParts) -> None:
        self.identity = parts.identity
        self.roles = parts.roles
        self.agents = {agent.name: agent for agent in parts.agents}
        self.announced = parts.announced or digests_of(self.agents.values())
        self.rules = {name: rules_of(agent) for name, agent in self.agents.items()}
        self.actions = parts.actions
        self.clock = parts.clock
        self.owned: dict[int, PartitionCache] = {}
        self.hot_sessions = HotSessions(parts.session_cache_mb * MB)
        self.rulings: dict[str, int] = {}
        self.deaths = Deaths(parts.identity, parts.actions, parts.roles[0], parts.is_dead)
        self.held_up = False  # in this round: a record needs a blob store that is away
        self._parts = parts
        self._clock_watch = ClockWatch(parts.say)
        self._lost_effects = parts.lost_effects
        self._seeks: dict[int, int] = {}
        self._away_until_ms = -1
        self._open_store = parts.open_store
        self._say = parts.say

    # -- assignment ------------------------------------------------------------------------------

    def assigned(self, partitions: Iterable[int]) -> dict[int, int]:
        """Open the stores and take the partitions. Returns the offsets from which to read.

        Reading begins one record before the store's cursor, to verify that the log is still the one
        from which the store was folded.
        """
        starts = {}
        for number in partitions:
            store = self._open_store(number, fresh=False)
            owned = PartitionCache(number, store, self.hot_sessions, self._parts.fact_of)
            self.owned[number] = owned
            if self._lost_effects is not None:
                self._lost_effects.partition_regained(number)
            starts[number] = owned.first_read()
            crash_points.reach("partition.opened")
            self._take(owned)
        return starts

    def _take(self, owned: PartitionCache) -> None:
        owned.taken_at = self.clock.monotonic_ms()
        for role in self.roles:
            event = PartitionTaken(role=role, owner=self.identity.owner, agents=self.announced)
            produced = produced_header(owned.taken_at)
            self.actions.write(owned.number, PARTITION_KEY, event, role, produced)
            crash_points.reach("partition.taking")

    def revoked(self, partitions: Iterable[int]) -> None:
        """Begin no more effects in these partitions. The running effects continue and report their
        outcomes by themselves."""
        for number in partitions:
            owned = self.owned.pop(number, None)
            if owned is not None:
                crash_points.reach("partition.revoked")
                if self._lost_effects is not None:
                    self._lost_effects.partition_lost(owned)
                if self._parts.fact_sender is not None:
                    self._parts.fact_sender.stop(number)
                owned.release()
                owned.store.close()
                self.actions.drop_partition(number)

    def close(self) -> None:
        """Close every store. Running effects end with the process."""
        self._lost_effects = None
        self.revoked(list(self.owned))

    # -- one round -------------------------------------------------------------------------------

    def consume(self, records: Iterable[Record]) -> dict[int, int]:
        """Run a round on these records.
        Returns the offsets to seek to, for stores that were rebuilt."""
        self.held_up = False
        for number, run in groupby(records, attrgetter("partition")):
            owned = self.owned.get(number)
            if owned is not None and number not in self._seeks:
                self._with_rebuild(self._fold_or_wait, owned, run)
        moved = [o for o in self.owned.values() if o.next_offset != o.store.cursor.offset]
        if moved:
            crash_points.reach("fold.done")
        for owned in moved:
            self._with_rebuild(self._write, owned)
        for owned in moved:
            self._with_rebuild(self._wake_touched, owned)
        return self._take_seeks()

    def _take_seeks(self) -> dict[int, int]:
        seeks, self._seeks = self._seeks, {}
        return seeks

    def _fold_or_wait(self, owned: PartitionCache, records: Iterable[Record]) -> None:
        """Fold one partition's records up to the first one that needs an unavailable blob: the seed
        of a fork. That record and the next ones are read again.
        """
        try:
            self._fold_run(owned, records)
        except BlobsAway as away:
            self._blobs_are_away(away)
            self.held_up, self._seeks[owned.number] = True, owned.next_offset

    def _fold_run(self, owned: PartitionCache, records: Iterable[Record]) -> None:
        """Fold one partition's records. Stop if the partition's store belongs to another log."""
        try:
            owned.fold_run(records, partial(self._fold, owned), partial(self._write, owned))
        except OtherLog as other:
            self._refold(owned, str(other))

    def _refold(self, owned: PartitionCache, why: str) -> None:
        self._say(f"partition {owned.number}: {why}; the store is rebuilt")
        if self._parts.fact_sender is not None:
            self._parts.fact_sender.stop(owned.number)
        owned.store.abandon()
        crash_points.reach("refold.begun")
        owned.reset(self._open_store(owned.number, fresh=True))
        self._seeks[owned.number] = owned.first_read()

    def _with_rebuild(self, do: Callable[..., None], owned: PartitionCache, *args: Any) -> None:
        """Call `do`, and rebuild the partition's store if it is damaged or its disk fails. Raises
        Corrupt or DiskFailed if this happens to the rebuilt store too.

        After a rebuild, the partition counts as lost and reassigned: no obligation is discharged in
        it until this worker has refolded the log and then read a new PARTITION_TAKEN of its own.
        """
        try:
            do(owned, *args)
        except (Corrupt, DiskFailed) as damage:
            # If a new store is damaged too, do not rebuild it forever. One from a snapshot is
            # rebuilt from an older snapshot.
            is_empty_made = owned.store.is_new and not owned.store.is_loaded
            if is_empty_made or isinstance(damage, LogCut):
                raise
            self.actions.drop_partition(owned.number)
            self._refold(owned, f"its store is damaged ({damage})")
            owned.takes_from = owned.store.log_end
            self._take(owned)

    def reopened(self, partition: int, why: str) -> int:
        """Reopen a partition because the log is no longer the one that was read. Returns the next
        offset.

        If the log was recreated or truncated at its end, the store is rebuilt. Raises LogCut if the
        log has lost records that must be folded.
        """
        self._say(f"partition {partition}: {why}; reopening its store")
        self.revoked([partition])
        return self.assigned([partition])[partition]

    def _fold(self, owned: PartitionCache, record: Record) -> str | None:
        """Fold one record. If the record is an accepted chunk, returns the session id, because the
        chunks that follow it may be folded together; else None.
        """
        entry = foldable_entry(record, self.actions.read_blob)
        session_id = entry.session_id
        owned.advance(record)
        if session_id == PARTITION_KEY:
            if type(entry.event) is Unreadable:
                self._dead_letter(owned, record, entry)
            self._fold_partition(owned, entry, record)
            return None
        known = owned.views(session_id) is not None
        if type(entry.event) is Unreadable or not (known or is_foldable(record.key)):
            self._dead_letter(owned, record, entry)
            if not is_foldable(record.key):
                return None
        event = owned.feed(entry)
        assert event is not None, entry
        ruling, before = event.ruling, event.before
        if ruling is not ACCEPTED:
            self.rulings[ruling.code] = self.rulings.get(ruling.code, 0) + 1
        meter = self._parts.meter
        if meter is not None and entry.offset >= owned.store.history_end:
            meter.count(entry, before, ruling)
            for line in refusal_lines(entry, before, ruling):
                self._say(line)
        self.actions.read_back(owned, entry, record, before, ruling)
        return session_id if type(entry.event) is ChunkSeen and ruling is ACCEPTED else None

    def _fold_partition(self, owned: PartitionCache, entry: Entry, record: Record) -> None:
        held, before = self.held(owned), owned.partition
        if self._is_own(entry) and entry.offset >= owned.takes_from:
            anchor = anchor_of(record, self.clock.monotonic_ms())
            owned.anchor = anchor or owned.anchor
        owned.feed(entry)
        now_held = self.held(owned)
        if now_held and owned.partition is not before:
            owned.wake_all = True  # also for another role, whose claims may be lost now (S4g, A2)
        if now_held - held:
            self.deaths.watch(owned, before)
            crash_points.reach("partition.held")
        for role in held - now_held:
            owned.taken_at = self.clock.monotonic_ms()  # one session timeout from now
            self._say(f"partition {owned.number}: another worker took it for {role}")

    def _is_own(self, entry: Entry) -> bool:
        return getattr(entry.event, "owner", "") == self.identity.owner

    def held(self, owned: PartitionCache) -> frozenset[str]:
        """The roles for which this process holds the partition, according to the records read so
        far.

        A PARTITION_TAKEN of an earlier assignment does not count: another worker may have taken the
        partition after it.
        """
        return frozenset(
            holder.role
            for holder in owned.partition.holders
            if holder.owner == self.identity.owner
            and holder.epoch >= owned.takes_from
            and holder.role in self.roles
        )

    def holds(self, partition: int) -> bool:
        """Whether this process has read its PARTITION_TAKEN
        of a partition for each of its roles."""
        owned = self.owned.get(partition)
        return owned is not None and len(self.held(owned)) == len(self.roles)

    def _dead_letter(self, owned: PartitionCache, record: Record, entry: Entry) -> None:
        why = getattr(entry.event, "why", "") or NO_SESSION_KEY
        if Role.SESSIONS not in self.roles or record.offset < owned.store.letters_from:
            return
        has_letter, meter = self._parts.has_letter, self._parts.meter
        if has_letter is not None and record.offset < owned.store.log_end and has_letter(record):
            return  # another worker folded it, or this one with another store
        if meter is not None:
            meter.add("foldlog_dead_letters")
        self.actions.dead_letter(record, why)

    def _write(self, owned: PartitionCache) -> None:
        refolds = owned.store.is_new and owned.next_offset < owned.store.log_end
        announcer = None if refolds else self._parts.announcer

        def busy(views: SessionViews) -> bool:
            if self._may_owe(views):
                return True
            return announcer is not None and announcer.is_unannounced(views)

        for session_id, views in owned.write(busy).items():
            assert views.frozen is not None
            self._say(f"session {session_id} is frozen: {views.frozen.why}; the others continue")
        if owned.touched and self._lost_effects is not None:  # before any of them is evicted
            self._lost_effects.check(map(owned.hot, owned.touched), owned.next_offset)
        crash_points.reach("refold.written" if refolds else "store.written")

    # -- waking ----------------------------------------------------------------------------------
    def _wake_touched(self, owned: PartitionCache) -> None:
        if owned.wake_all:
            owned.wake_all = False
            owned.touched.update(owned.store.busy())
        touched, owned.touched = owned.touched, set()
        held = self.held(owned)
        if held:
            for session_id in sorted(touched):  # sorted, so that the simulator's seeds replay
                self.wake(owned, session_id)
                if (views := owned.views(session_id)) is not None:
                    self._changed(views)
                owned.trim({session_id})  # an assignment may wake more than fits in memory
        owned.trim(touched)

    def _changed(self, views: SessionViews) -> None:
        if self._parts.announcer is not None:
            self._parts.announcer.announce(views)
        if self._parts.check_tokens is not None:
            self._parts.check_tokens(views)

    def owned_since(self, partition: int) -> int:
        """The first offset at which this process owned a partition; -1 if it does not own it."""
        owned = self.owned.get(partition)
        return -1 if owned is None else owned.takes_from

    def mark_idle(self, session_id: str) -> None:
        """Mark an announced session as idle in the store, if it has no obligation."""
        for owned in self.owned.values():
            views = owned.hot(session_id)
            if views is not None and not may_owe(views, self.rules.get(views.turn.agent)):
                owned.store.mark_idle(session_id)

    def tick(self) -> dict[int, int]:
        """Handle what is due: timers, free slots, partitions to take again.

        Returns the offsets to seek to, as `consume` does.
        """
        now = self.clock.monotonic_ms()
        self._clock_watch.check(self.skew_ms())
        self.deaths.check(self.owned, now)
        for owned in list(self.owned.values()):
            if owned.next_offset < owned.takes_from:
                owned.taken_at = now  # still catching up: the PARTITION_TAKEN is ahead, not lost
            if now - owned.taken_at >= self._retake_ms(owned):
                self._take(owned)
            for session_id in owned.due(self.now(owned)):
                self._with_rebuild(self._wake_and_trim, owned, session_id)
        for number, session_id in self.actions.sessions_to_retry(self._latest()):
            if number in self.owned:
                self._with_rebuild(self._wake_and_trim, self.owned[number], session_id)
        if self._parts.make_snapshots is not None:
            self._parts.make_snapshots(self)
        if self._parts.fact_sender is not None:
            self._send_facts(self._parts.fact_sender)
        return self._take_seeks()

    def _send_facts(self, sender: FactSender) -> None:
        if not sender.begins_round():
            return
        for owned in list(self.owned.values()):
            has_caught_up = owned.next_offset >= owned.takes_from
            if has_caught_up and owned.facts_stored != 0:
                self._with_rebuild(sender.send, owned)

    def _retake_ms(self, owned: PartitionCache) -> float:
        """The delay in ms between this worker's last PARTITION_TAKEN of a partition and the next
        one. The worker writes the next one to try again to take the partition, or only to measure
        broker time."""
        if not self.holds(owned.number):
            return SESSION_TIMEOUT_MS
        return ASK_TIME_MS if self._reading(owned).is_off else math.inf

    def _wake_and_trim(self, owned: PartitionCache, session_id: str) -> None:
        self.wake(owned, session_id)
        owned.trim({session_id})

    def _latest(self) -> int:
        return max(map(self.now, self.owned.values()), default=self.clock.now_ms())

    def now(self, owned: PartitionCache) -> int:
        """The time for decisions, Unix ms:
        the wall clock while it agrees with broker time, else broker time."""
        return self._reading(owned).now

    def _reading(self, owned: PartitionCache) -> Reading:
        return reading(self.clock, owned.anchor, owned.newest_at)

    def skew_ms(self) -> int:
        """How far the wall clock is certainly ahead of broker time (negative: behind), or 0."""
        found = [self._reading(owned).skew_ms for owned in list(self.owned.values())]
        return max(found, key=abs, default=0)

    def next_due_ms(self) -> int | None:
        """Ms until the next timer, or None."""
        waits = [due - self.now(owned) for owned in self.owned.values() if (due := owned.next_due)]
        if (check_at := self.actions.slot_queue.next_due) is not None:
            waits.append(check_at - self._latest())
        sender = self._parts.fact_sender
        if sender is not None and (retry_ms := sender.next_due_ms()) is not None:
            waits.append(retry_ms)
        return max(0, min(waits)) if waits else None

    def wake(self, owned: PartitionCache, session_id: str) -> None:
        """Discharge a session's obligations that belong to this worker's roles."""
        held, views = self.held(owned), owned.views(session_id)
        if self._parts.only not in (None, session_id):
            return
        if not held or views is None:
            return
        if owned.is_left_alone(session_id, views.turn.number):
            self._end_if_closing(owned, views)
            return
        rules = self.rules.get(views.turn.agent)
        now = self.now(owned)
        try:
            if not views.turn.open:
                self.actions.prerender(views)
            if not self._may_owe(views):
                self.actions.forget_session(session_id)
                return
            for obligation in wake(views, owned.partition, now, rules):
                # An obligation that waits for another role may become ours later (S2w, then S4g).
                if obligation.role in held or obligation.owed == Action.WAIT:
                    self._discharge(owned, views, obligation, now)
        except (LogFatal, Corrupt, OSError):
            raise
        except BlobsAway as away:
            self._blobs_are_away(away)
            owned.schedule_wake(session_id, now + BLOBS_RETRY_MS)
        except Exception as bug:  # such as a lost blob: other sessions continue
            if type(bug) is BlobError:  # the disk is full: no session can continue
                raise
            self._leave_alone(owned, views, f"{type(bug).__name__}: {bug}"[:500])

    def _end_if_closing(self, owned: PartitionCache, views: SessionViews) -> None:
        """End the turn of a session that is left alone, if the turn was cancelled or the session
        terminated. This depends neither on the agent nor on the conversation."""
        if self.actions.is_rejected(views.session_id, views.turn):
            return
        if not (views.turn.open or views.turn.refusals):
            self.actions.forget_session(views.session_id)
        now = self.now(owned)
        for obligation in owed_to_end(views, owned.partition, now):
            if obligation.role in self.held(owned):
                self._discharge(owned, views, obligation, now)

    def _blobs_are_away(self, away: BlobsAway) -> None:
        """Log the outage once. What needs a blob is tried again, and everything else continues."""
        now = self.clock.monotonic_ms()
        if now > self._away_until_ms:
            self._say(str(away))
        self._away_until_ms = now + 2 * BLOBS_RETRY_MS

    def waits_for_blobs(self) -> bool:
        """Whether a session or a partition of this worker needs a blob store that is away."""
        return self.clock.monotonic_ms() <= self._away_until_ms

    def _may_owe(self, views: SessionViews) -> bool:
        try:
            return may_owe(views, self.rules.get(views.turn.agent))
        except Exception:  # `wake` raises it too, and leaves this session alone
            return True

    def _leave_alone(self, owned: PartitionCache, views: SessionViews, why: str) -> None:
        self._say(left_alone(views.session_id, views.turn.number, why))
        owned.leave_alone(views.session_id, views.turn.number, why)
        self._end_if_closing(owned, views)  # the cancel may be what was read

    def _discharge(
        self, owned: PartitionCache, views: SessionViews, obligation: Obligation, now: int
    ) -> None:
        if obligation.owed == Action.WAIT:
            if obligation.due is not None:
                owned.schedule_wake(views.session_id, obligation.due)
            return
        done = self._act(owned, views, obligation, now)
        if done.check_at is not None:
            owned.schedule_wake(views.session_id, done.check_at)
        for event in done.written:
            if type(event) is TurnEnded and event.reason == EndReason.FAILED:
                self._say(failed_turn(views))
        if done.written and obligation.owed in (Action.LLM_CALLED, Action.TOOL_INVOKED):
            self._claim_ahead(owned, views, done.written, now)

    def _act(
        self, owned: PartitionCache, views: SessionViews, obligation: Obligation, now: int
    ) -> DischargeResult:
        agent = self.agents.get(views.turn.agent)
        done = self.actions.discharge(owned, views, obligation, agent, now)
        if done.written and self._parts.meter is not None:
            self._parts.meter.add("foldlog_wake_rows", obligation.row)
        return done

    def _claim_ahead(
        self, owned: PartitionCache, views: SessionViews, decided: tuple[Any, ...], now: int
    ) -> None:
        """Produce a decision's claims together with the decision, to save a round trip.

        If another event is written between the decision and the claims, the fold ignores the
        claims, and WAKE requires them again.
        """
        for offset, event in enumerate(decided, owned.next_offset):
            entry = Entry(views.session_id, owned.number, offset, now, "sessions", event)
            views = fold_event(views, entry).views
        held = self.held(owned)
        for obligation in wake(views, owned.partition, now, self.rules.get(views.turn.agent)):
            if obligation.owed in CLAIMED_AHEAD and obligation.role in held:
                self._act(owned, views, obligation, now)
