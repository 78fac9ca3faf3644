"""Invariants of claims and effects: no effect happens twice, and none begins without its claim."""

from collections import Counter
from typing import Any

from foldlog.processors.fold.projections.background import find_work
from foldlog.processors.fold.projections.delivery import find_owed
from foldlog.processors.worker.worker import SESSION_TIMEOUT_MS
from foldlog.schemas import events as ev
from foldlog.schemas.codec import decode
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.tests.simulation.invariant import Invariant, calls_of, key_of

CLAIMS = (
    b"TOOL_STARTED", b"GEN_START", b"GEN_RESUMED", b"BACKGROUND_STARTED", b"DELIVERY_STARTED",
)
TAKEOVERS = (b"TOOL_STARTED", b"GEN_RESUMED", b"BACKGROUND_STARTED", b"DELIVERY_STARTED")


class OnceRunsOnce(Invariant):
    """I3, S2.7: a call of a `once` tool acts on the world at most once, whatever dies."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.acted: dict[tuple[str, str], Any] = {}

    def on_executed(self, line: Any) -> None:
        if line.effect != "once":
            return
        earlier = self.acted.setdefault((line.session_id, line.call), line)
        self.demand(earlier is line, f"{earlier} and again {line}")


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
        if isinstance(event, ev.ToolResult) and event.outcome in ("not_run", "cancelled"):
            if event.outcome == "not_run" or calls_of(before)[key_of(event)].effect == "once":
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


class DecidedOnce(Invariant):
    """I4: a started call gets exactly one outcome (a doubt is not an outcome). A later result may
    contradict only a person's answer or a reconciler's denial."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.started: set[tuple[str, str]] = set()

    def on_seen(self, seen: Any) -> None:
        if seen.views.turn is seen.before.turn:
            return
        session, before = seen.entry.session_id, calls_of(seen.before)
        for key, call in calls_of(seen.views).items():
            was = before.get(key)
            if call.status == "started":
                self.started.add((session, key))
            if was is None or was is call or was.status != "done":
                continue
            contested = (was.human or was.denied) and call.status == "contradicted"
            if not contested:
                self.fail(f"{session} {key} was {was.outcome}, became {call}")

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


class NoRunInDoubt(Invariant):
    """S2.7: no attempt of a call is claimed while the call is in doubt or after it has an outcome,
    and no attempt of a `once` call is claimed after the call has run."""

    def on_seen(self, seen: Any) -> None:
        event = seen.entry.event
        if isinstance(event, ev.ToolStarted) and seen.ruling.accepted:
            call = calls_of(seen.before)[key_of(event)]
            self.demand(call.status in ("allowed", "started"), f"{call} was claimed by {event}")
            if call.status == "started" and call.effect == "once":
                assert call.claim is not None
                begun = any(
                    line.claim == call.claim.offset and line.session_id == seen.entry.session_id
                    for line in self.world.executions
                )
                self.demand(not begun, f"{call} has run and is claimed again by {event}")


class OnlyWonClaimsBegin(Invariant):
    """Laws 5 and 6, I15: an effect begins once per claim, after the claim was accepted under the
    epoch that was in force, at a worker that has not read of a newer owner."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.begun: Counter[tuple[int, int]] = Counter()

    def on_begun(self, role: str, process: Any, session_id: str, begin: Any) -> None:
        witness, claim = self.world.witness, begin.claim
        number = witness.partition_of[session_id]
        seen = witness.seen.get((number, claim.offset))
        if seen is None or not seen.ruling.accepted:
            self.fail(f"{process.owner} begins {begin.claim}, which was never won")
        event = seen.entry.event
        holder = witness.holder_at(number, role, claim.offset)
        if holder != (event.epoch, process.owner) or event.owner != process.owner:
            self.fail(f"{process.owner} begins {event}, claimed under {holder}")
        read = process.worker.owned[number].next_offset
        now = witness.holder_at(number, role, read)
        self.demand(now[1] == process.owner, f"{process.owner} has read that {now} holds {role}")
        self.begun[number, claim.offset] += 1
        self.demand(self.begun[number, claim.offset] == 1, f"{session_id} {claim} begins again")


class BeginsInTime(Invariant):
    """T4, S2, B2, D2: an effect begins within the start window after its claim was produced, or
    never. If it began later, another worker might already have taken it over, and a model call
    would be paid for twice. Law 6: a tool acts on the world no later than its deadline, so the
    margin covers only differences between clocks."""

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
        waited = self.world.now - at
        window = self.world.agent.limits.start_window_ms
        self.demand(waited <= window, f"{role} {begin.claim} begins {waited} ms after its claim")
        self.begun[place] = (begin.claim.deadline, error)

    def on_executed(self, line: Any) -> None:
        place = self.world.witness.partition_of[line.session_id], line.claim
        deadline, error = self.begun[place]
        late = line.at - (deadline - error)
        self.demand(late <= 0, f"{line} acts {late} ms after its deadline")


class ReconcilesLate(Invariant):
    """T6: no answer of a reconciler is final before deadline + margin, because its "no" could
    become untrue."""

    def on_reconciled(self, process: Any, session_id: str, begin: Any) -> None:
        tool, limits = begin.agent.tool(begin.call.name), begin.agent.limits
        if tool is None or tool.reconciler is None or begin.early:
            return
        worker = process.worker
        number = self.world.witness.partition_of[session_id]
        now = worker.now(worker.owned[number])
        sure_at = begin.claim.deadline + limits.margin_ms
        self.demand(now >= sure_at, f"{begin.call.key} is reconciled {sure_at - now} ms early")


class TakeoversAreLawful(Invariant):
    """Law 6: a claim is taken over in four cases only: it is void; its owner is an older
    incarnation of the same worker; the log says that its owner is dead (OWNER_GONE); or its
    deadline and the margin have passed."""

    def on_produced(
        self, process: Any, partition: int, key: str, value: bytes, kind: bytes
    ) -> None:
        if kind not in TAKEOVERS:
            return
        event, views = decode(value), process.worker.owned[partition].views(key)
        turn = views.turn
        if kind == b"BACKGROUND_STARTED":
            work = find_work(views.background, event.kind, event.upto)
            if work is not None and not work.released:
                self._check(process, partition, key, "background", work.claim)
            return
        if kind == b"DELIVERY_STARTED":
            owed = find_owed(views.delivery, event.turn, event.step, event.channel)
            if owed is not None and owed.status == "running":
                self._check(process, partition, key, "delivery", owed.claim)
            return
        if kind == b"GEN_RESUMED":
            self._check(process, partition, key, "models", turn.generation.claim)
            return
        call = next(call for call in turn.calls if call.key == key_of(event))
        if call.status == "started":
            self._check(process, partition, key, "tools", call.claim)

    def on_reconciled(self, process: Any, session_id: str, begin: Any) -> None:
        number = self.world.witness.partition_of[session_id]
        self._check(process, number, session_id, "tools", begin.claim)

    def _check(self, process: Any, number: int, session: str, role: str, claim: Any) -> None:
        name, _, incarnation = claim.owner.rpartition("/")
        if name == process.identity.worker_id and incarnation != process.identity.incarnation:
            return
        witness, worker = self.world.witness, process.worker
        holder = worker.owned[number].partition.holder(role)
        if holder is not None and claim.owner in holder.gone:
            return  # OnlyTheDeadAreGone checks that
        if witness.holder_at(number, role, claim.offset) != (claim.epoch, claim.owner):
            return  # the claim is void: its owner did not hold the role then
        now = worker.now(worker.owned[number])
        left = claim.deadline + self.world.agent.limits.margin_ms - now
        self.demand(left <= 0, f"{process.owner} takes {session} {claim} over {left} ms early")


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
    """An accepted outcome of a generation belongs to its newest attempt."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.newest: dict[tuple[str, int, int], int] = {}

    def on_seen(self, seen: Any) -> None:
        event = seen.entry.event
        if not seen.ruling.accepted:
            return
        if isinstance(event, ev.GenStart | ev.GenResumed):
            place = (seen.entry.session_id, event.turn, event.step)
            had = self.newest.get(place, 0)
            self.demand(event.attempt == had + 1, f"attempt {event.attempt} follows {had}")
            self.newest[place] = event.attempt
        elif isinstance(event, ev.GenComplete | ev.GenFailed | ev.GenStopped):
            newest = self.newest.get((seen.entry.session_id, event.turn, event.step))
            if event.attempt != newest:
                self.fail(f"{event} is accepted, but the newest attempt is {newest}")


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
    DecidedOnce,
    NoRunInDoubt,
    OnlyWonClaimsBegin,
    BeginsInTime,
    ReconcilesLate,
    TakeoversAreLawful,
    OnlyTheDeadAreGone,
    NewestAttemptCompletes,
    TakesAreBounded,
    NothingBeforeItsTake,
)
