"""Invariants of claims and effects: no effect happens twice, and none begins without its claim."""

from collections import Counter
from typing import Any

from foldlog.processors.worker.worker import SESSION_TIMEOUT_MS
from foldlog.schemas import events as ev
from foldlog.schemas.codec import decode
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.tests.kit.invariants import (
    ATTEMPTS,
    GENERATION_ENDS,
    begins_in_time,
    calls_of,
    key_of,
    newest_attempt_completes,
    once_runs_once,
    only_won_claims_begin,
    reconciles_late,
    says_not_run,
    taken_over,
    takeovers_are_lawful,
)
from foldlog.tests.simulation.invariant import Invariant

CLAIMS = (
    b"TOOL_STARTED", b"GEN_START", b"GEN_RESUMED", b"BACKGROUND_STARTED", b"DELIVERY_STARTED",
)


class OnceRunsOnce(Invariant):
    """I3, S2.7, by the ledger of all executions."""

    def on_executed(self, line: Any) -> None:
        acts = [(one.session_id, one.call) for one in self.world.executions]
        earlier = acts.count((line.session_id, line.call)) - 1
        once_runs_once.demand(line.effect, line, earlier)


class OnceStartsOnce(Invariant):
    """S2.7: no attempt of a `once` call is claimed after the call has run."""

    def on_seen(self, seen: Any) -> None:
        event = seen.entry.event
        if not isinstance(event, ev.ToolStarted) or not seen.ruling.accepted:
            return
        call = calls_of(seen.before)[key_of(event)]
        if call.status == "started" and call.effect == "once":
            lines = ((line.session_id, line.claim) for line in self.world.executions)
            begun = (seen.entry.session_id, call.claim.offset) in lines
            self.demand(not begun, f"{call} has run and is claimed again by {event}")


class NotRunMeansNotRun(Invariant):
    """T4, T6: a call whose outcome in the log is `not_run` never acted on the world and never
    will."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.not_run: dict[tuple[str, str], int] = {}

    def on_seen(self, seen: Any) -> None:
        if not seen.ruling.accepted:
            return
        event, before = seen.entry.event, seen.before
        if isinstance(event, ev.ToolResult):
            if says_not_run(calls_of(before)[key_of(event)].effect, event.outcome):
                self._is_denied(seen, key_of(event))
        elif isinstance(event, ev.ApprovalDecided | ev.ApprovalExpired):
            if calls_of(seen.views)[event.call].status == "done":
                self._is_denied(seen, event.call)
        elif isinstance(event, ev.TurnEnded):
            for call in before.turn.calls:
                if call.status in ("proposed", "asks", "allowed"):
                    self._is_denied(seen, call.key)

    def _is_denied(self, seen: Any, key: str) -> None:
        session = seen.entry.session_id
        self.not_run[session, key] = seen.entry.offset
        acted = self.world.has_executed(session, key)
        self.demand(not acted, f"{session} {key} has run, but offset {seen.entry.offset} denies it")

    def on_executed(self, line: Any) -> None:
        denied_at = self.not_run.get((line.session_id, line.call))
        self.demand(denied_at is None, f"offset {denied_at} calls it not run, then {line}")


class StartedCallsAreDecided(Invariant):
    """I4: in the end, a started call has exactly one outcome (a doubt is not an outcome)."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.started: set[tuple[str, str]] = set()

    def on_seen(self, seen: Any) -> None:
        if isinstance(seen.entry.event, ev.ToolStarted) and seen.ruling.accepted:
            self.started.add((seen.entry.session_id, key_of(seen.entry.event)))

    def at_end(self) -> None:
        for session, key in self.started:
            views = self.world.witness.views[session]
            if views.frozen is not None:
                continue
            results = [
                f for f in views.context.fragments if f.kind == "result" and key_of(f) == key
            ]
            self.demand(len(results) == 1, f"{session} {key} has {len(results)} results: {results}")
            call = calls_of(views).get(key)
            undecided = call is not None and call.status not in ("done", "doubt", "contradicted")
            self.demand(not undecided, f"{session} {key} is left {call}")


class OnlyWonClaimsBegin(Invariant):
    """Laws 5 and 6, I15, by the takes in the log."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.begun: Counter[tuple[int, int]] = Counter()

    def on_begun(self, role: str, process: Any, session_id: str, begin: Any) -> None:
        witness, claim = self.world.witness, begin.claim
        number = witness.partition_of[session_id]
        seen = witness.seen.get((number, claim.offset))
        if seen is None or not seen.ruling.accepted:
            self.fail(f"{process.owner} begins {begin.claim}, which was never won")
        won_under = witness.holder_at(number, role, claim.offset)
        now = witness.holder_at(number, role, process.worker.owned[number].next_offset)
        self.begun[number, claim.offset] += 1
        times = self.begun[number, claim.offset]
        only_won_claims_begin.demand(process.owner, claim, won_under, now[1], times)


class BeginsInTime(Invariant):
    """T4, S2, B2, D2, by the true time at which the claim was produced. Law 6: a tool acts on the
    world no later than its deadline, so the margin covers only differences between clocks."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.produced: dict[tuple[str, bytes], tuple[int, int]] = {}  # ms, clock's error
        self.begun: dict[tuple[int, int], tuple[int, int]] = {}

    def on_produced(
        self, process: Any, partition: int, key: str, value: bytes, kind: bytes
    ) -> None:
        if kind in CLAIMS:
            worker = process.worker
            error = worker.now(worker.owned[partition]) - self.world.now
            self.produced.setdefault((process.owner, value), (self.world.now, error))

    def on_begun(self, role: str, process: Any, session_id: str, begin: Any) -> None:
        place = self.world.witness.partition_of[session_id], begin.claim.offset
        value = self.world.witness.seen[place].record.value
        at, error = self.produced[process.owner, value]
        begins_in_time.demand(begin.claim, self.world.now - at, self.world.agent.limits)
        self.begun[place] = (begin.claim.deadline, error)

    def on_executed(self, line: Any) -> None:
        place = self.world.witness.partition_of[line.session_id], line.claim
        deadline, error = self.begun[place]
        late = line.at - (deadline - error)
        self.demand(late <= 0, f"{line} acts {late} ms after its deadline")


class ReconcilesLate(Invariant):
    """T6, by the time that the worker believes it is."""

    def on_reconciled(self, process: Any, session_id: str, begin: Any) -> None:
        owned = process.worker.owned[self.world.witness.partition_of[session_id]]
        reconciles_late.demand(begin, process.worker.now(owned))


class TakeoversAreLawful(Invariant):
    """Law 6, by the takes in the log and the time that the worker believes it is."""

    def on_produced(
        self, process: Any, partition: int, key: str, value: bytes, kind: bytes
    ) -> None:
        if kind in CLAIMS:
            found = taken_over(decode(value), process.worker.owned[partition].views(key))
            if found is not None:
                self._check(process, partition, *found)

    def on_reconciled(self, process: Any, session_id: str, begin: Any) -> None:
        number = self.world.witness.partition_of[session_id]
        self._check(process, number, "tools", begin.claim, begin.claim.deadline)

    def _check(self, process: Any, number: int, role: str, claim: Any, deadline: int) -> None:
        owned = process.worker.owned[number]
        held_then = self.world.witness.holder_at(number, role, claim.offset)
        is_void = held_then != (claim.epoch, claim.owner)
        left_ms = deadline + self.world.agent.limits.margin_ms - process.worker.now(owned)
        holder = owned.partition.holder(role)
        takeovers_are_lawful.demand(process.owner, claim, left_ms, is_void, holder)


class OnlyTheDeadAreGone(Invariant):
    """Law 6: a worker writes OWNER_GONE about itself when it ends, and about another worker only if
    that worker is dead."""

    def on_produced(
        self, process: Any, partition: int, key: str, value: bytes, kind: bytes
    ) -> None:
        if kind == b"OWNER_GONE":
            owner = decode(value).owner
            alive = owner != process.owner and self.world.is_alive(owner)
            self.demand(not alive, f"{process.owner} writes OWNER_GONE of {owner}, which lives")


class NewestAttemptCompletes(Invariant):
    """An accepted outcome of a model call belongs to its newest attempt, as counted here."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.newest: dict[tuple[str, int, int], int] = {}

    def on_seen(self, seen: Any) -> None:
        event = seen.entry.event
        if not isinstance(event, (*ATTEMPTS, *GENERATION_ENDS)) or not seen.ruling.accepted:
            return
        place = (seen.entry.session_id, event.turn, event.step)
        newest_attempt_completes.demand(seen, self.newest.get(place, 0))
        if isinstance(event, ATTEMPTS):
            self.newest[place] = event.attempt


class TakesAreBounded(Invariant):
    """Law 6: after an assignment, a worker writes PARTITION_TAKEN again at most once per session
    timeout."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.took: dict[tuple[str, int], list[int]] = {}

    def on_assigned(self, process: Any, partitions: list[int]) -> None:
        for number in partitions:
            self.took[process.owner, number] = []

    def on_produced(
        self, process: Any, partition: int, key: str, value: bytes, kind: bytes
    ) -> None:
        if kind != b"PARTITION_TAKEN":
            return
        took = self.took[process.owner, partition]
        took.append(self.world.now)
        roles = len(process.worker.roles)
        if len(took) > roles:
            gap = took[-1] - took[-1 - roles]
            self.demand(gap >= SESSION_TIMEOUT_MS, f"{process.owner} takes again after {gap} ms")


class NothingBeforeItsTake(Invariant):
    """Law 6: after an assignment, a worker does nothing in the partition until it has read back its
    own PARTITION_TAKEN."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.since: dict[tuple[str, int], int] = {}

    def on_assigned(self, process: Any, partitions: list[int]) -> None:
        for number in partitions:
            self.since[process.owner, number] = self.world.witness.next_offset(number)

    def _check(self, process: Any, number: int, what: str) -> None:
        owned = process.worker.owned.get(number)
        since = self.since.get((process.owner, number))
        if owned is None or since is None:
            return
        late = owned.next_offset > since
        self.demand(late, f"{process.owner} {what} at {owned.next_offset}, assigned at {since}")

    def on_produced(
        self, process: Any, partition: int, key: str, value: bytes, kind: bytes
    ) -> None:
        if key != PARTITION_KEY:
            self._check(process, partition, "produces")

    def on_begun(self, role: str, process: Any, session_id: str, begin: Any) -> None:
        self._check(process, self.world.witness.partition_of[session_id], "begins")


class AbortsReachWhatRuns(Invariant):
    """Constraint 3, law 7: a worker that has read that a turn is closing or over has requested the
    end of the turn's model and tool calls, even if another worker holds the partition by then."""

    def on_round(self, process: Any) -> None:
        if process.has_unread() or process.lost._jobs:
            return
        for task in process.effects.tasks:
            if task.role not in ("models", "tools") or task.effect.recovers:
                continue
            session, offset = task.effect.session_id, task.effect.claim_offset
            if task.ended or task.stop.requested:
                continue
            seen = self.world.witness.seen[self.world.witness.partition_of[session], offset]
            views = self.world.witness.views[session]
            turn = views.turn
            over = not turn.open or turn.closing is not None or turn.number != seen.entry.event.turn
            if over and views.frozen is None:
                self.fail(f"{process.owner} runs {task.role} of {session} {offset}: {turn}")


EFFECTS = (
    AbortsReachWhatRuns,
    OnceRunsOnce,
    NotRunMeansNotRun,
    StartedCallsAreDecided,
    OnceStartsOnce,
    OnlyWonClaimsBegin,
    BeginsInTime,
    ReconcilesLate,
    TakeoversAreLawful,
    OnlyTheDeadAreGone,
    NewestAttemptCompletes,
    TakesAreBounded,
    NothingBeforeItsTake,
)
