"""The searched system: two workers, one session, and everything that can happen next.

A state is four numbers: the end of the log, the two processes, and the rest. Each action is
indivisible. A worker need not act while others do, so every interleaving is a path, and a pause is
a path on which time passes while a worker does not act.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from foldlog.schemas import events as ev
from foldlog.tests.kit.manual_worker import USER, message, opened
from foldlog.tests.states.checks import Checks
from foldlog.tests.states.effects import NOTHING, Effects, Ending, Task
from foldlog.tests.states.host import EMPTY, Host, Memory, Owned, Step
from foldlog.tests.states.outboxes import Outboxes
from foldlog.tests.states.records import Log, Numbered
from foldlog.tests.states.variants import Variant

START_MS = 1_700_000_000_000
SHORT_MS = 16_000  # past the start window, the grace, what is awaited, and the session timeout
LONG_MS = 60_000  # past every deadline and its margin
OUTBOX_MS = 30_000  # as assemble.py's OUTBOX_S
WORKERS = (0, 1)
NAMES = "ab"
SHOWN = (
    "turn", "step", "index", "attempt", "role", "owner", "epoch", "basis", "outcome", "reason",
    "decision",
)
FATES = ("held", "twice", "unacknowledged", "lost")


class Process(NamedTuple):
    """A worker's machine. `memory`: the number of the process's memory, or -1 if it is dead;
    `unread`: the records between its position and the log's end; `queue`: the records that its
    producer could not send yet; `outbox`: the outcomes on its disk."""

    incarnation: int
    started_at: int
    memory: int
    unread: tuple[int, ...] = ()
    tasks: tuple[Task, ...] = ()
    queue: tuple[int, ...] = ()
    outbox: tuple[int, ...] = ()


class Rest(NamedTuple):
    """All that is of no process. `faults` and `jumps`: how many are left; `owner`: the worker that
    the group assigns the partition to; `acts`: the ledger, the number of executions of the call;
    `begun`: the effects that have begun, each as its kind and the offset of its claim."""

    now: int
    faults: int
    jumps: int
    owner: int = 0
    cancelled: bool = False
    decided: str = ""
    acts: int = 0
    begun: tuple[tuple[str, int], ...] = ()


class State(NamedTuple):
    """One state of the system, by numbers."""

    end: int
    a: int
    b: int
    rest: int


Label = tuple[Any, ...]
"""An action: its name, its worker (or None), and more."""


class Change:
    """A state that an action changes step by step. `notes`: what happened, for people, or None if
    nobody reads it."""

    def __init__(self, system: "System", state: State, notes: list[str] | None = None) -> None:
        self.system, self.notes = system, notes
        self.end = state.end
        self.processes: list[Process] = [system.processes[state.a], system.processes[state.b]]
        self.rest: Rest = system.rests[state.rest]

    def note(self, text: str) -> None:
        """Add a line for people."""
        if self.notes is not None:
            self.notes.append(text)

    def state(self) -> State:
        """The state now."""
        a, b = map(self.system.processes.number, self.processes)
        return State(self.end, a, b, self.system.rests.number(self.rest))

    def change(self, worker: int, **fields: Any) -> None:
        """Change fields of a process."""
        self.processes[worker] = self.processes[worker]._replace(**fields)

    def append(self, draft: int) -> None:
        """Append a record to the log; each worker with the partition has it to read."""
        system, stamped = self.system, self.system.log.stamped.number((draft, self.rest.now))
        before = self.end
        self.end = system.log.after(before, stamped)
        system.checks.at(self.end, self.rest)
        if self.notes is not None:
            self.note(system.described(before, stamped))
        for worker in WORKERS:
            process = self.processes[worker]
            if system.owned(process) is not None:
                self.change(worker, unread=(*process.unread, stamped))

    def send(self, worker: int, drafts: tuple[int, ...]) -> None:
        """Append the records of a worker, behind those that its producer could not send yet."""
        queue = self.processes[worker].queue
        if queue:
            self.change(worker, queue=(*queue, *drafts))
            return
        for draft in drafts:
            self.append(draft)

    def die(self, worker: int) -> None:
        """Kill a process. Its disk stays."""
        process = self.processes[worker]
        self.processes[worker] = Process(
            process.incarnation, self.rest.now, -1, outbox=process.outbox
        )

    def begin(self, worker: int, step: Step) -> None:
        """Begin and stop the effects that a step of a worker asks for."""
        system, process = self.system, self.processes[worker]
        tasks = list(process.tasks)
        for begun in step.begun:
            system.checks.begun(self, worker, step, begun)
            task = system.effects.task(begun, self.rest.now)
            if task.kind in ("generate", "run_tool"):
                claims = sorted((*self.rest.begun, (task.kind, task.claim)))
                self.rest = self.rest._replace(begun=tuple(claims))
            tasks.append(task)
            self.note(f"      begins {task.kind} of claim {task.claim}")
        tasks += [system.effects.report(event, self.rest.now) for event in step.reported]
        for offset in step.stopped:
            tasks = [t._replace(stop=True) if t.claim == offset else t for t in tasks]
            self.note(f"      stops the effect of claim {offset}")
        self.change(worker, tasks=tuple(sorted(tasks)))


class System:
    """The system of one variant, see the module docstring. `faults`, `jumps`: how many there may be
    on a path."""

    def __init__(self, variant: Variant, faults: int, jumps: int) -> None:
        self.variant, self.agent = variant, variant.agent
        self.checks = Checks(self)
        self.log = Log(self.checks.folded)
        self.effects = Effects(self.log, variant)
        self.outboxes = Outboxes(self.log)
        self.processes, self.rests, self.memories = Numbered(), Numbered(), Numbered()
        self._hosts: dict[tuple[int, int], Host] = {}
        self._steps: dict[tuple, Step] = {}
        self.initial = self._initial(faults, jumps)

    def _initial(self, faults: int, jumps: int) -> State:
        memory = self.memories.number(EMPTY)
        process = self.processes.number(Process(1, START_MS, memory))
        rest = self.rests.number(Rest(START_MS, faults, jumps))
        change = Change(self, State(self.log.empty, process, process, rest))
        for event in (opened(self.agent.name), message()):
            change.append(self.log.draft(event, "producer"))
        return change.state()

    # -- parts -----------------------------------------------------------------------------------

    def owner(self, worker: int, process: Process) -> str:
        """The owner that a process writes into its claims."""
        return f"{NAMES[worker]}/{process.incarnation}"

    def host(self, worker: int, process: Process) -> Host:
        """The real worker that runs as this process."""
        key = (worker, process.incarnation)
        if key not in self._hosts:
            self._hosts[key] = Host(self.log, self.agent, self.owner(worker, process))
        return self._hosts[key]

    def memory(self, process: Process) -> Memory | None:
        """The memory of a process, or None if it is dead."""
        return None if process.memory < 0 else self.memories[process.memory]

    def owned(self, process: Process) -> Owned | None:
        """What a process holds of its partition, or None."""
        return None if process.memory < 0 else self.memories[process.memory].owned

    def described(self, position: int, stamped: int) -> str:
        """A record as a line for people, with the ruling of the fold."""
        end = self.log.positions[position].end
        entry = self.log.entry(stamped, end)
        ruling, event = self.log.ruling(position, stamped), entry.event
        verdict = "" if ruling is None else f"{ruling.verdict} {ruling.code}"
        shown = {name: getattr(event, name) for name in SHOWN if hasattr(event, name)}
        fields = " ".join(f"{name}={value}" for name, value in shown.items())
        return f"      {end:3} {type(event).__name__} {fields}  {verdict}".rstrip()

    def _step(self, worker: int, process: Process, kind: str, detail: Any, now: int) -> Step:
        host = self.host(worker, process)
        key = (worker, process.incarnation, process.memory, kind, detail, now)
        step = self._steps.get(key)
        if step is None:
            memory = self.memories[process.memory]
            if kind == "round":
                step = host.round(memory, detail, now)
            elif kind == "assign":
                step = host.assigned(memory, detail, now)
            else:
                step = host.revoked(memory, now)
            step = step._replace(
                memory=self.memories.number(step.memory), refused=self.memories.number(step.refused)
            )
            self._steps[key] = step
        return step

    # -- actions ---------------------------------------------------------------------------------

    def labels(self, state: State) -> Iterator[Label]:
        """Every action that is possible in a state."""
        rest: Rest = self.rests[state.rest]
        for worker in WORKERS:
            process: Process = self.processes[state[1 + worker]]
            if process.memory < 0:
                yield ("restart", worker)
                continue
            yield from self._of_worker(worker, process, rest, state.end)
            yield from self._of_effects(worker, process, rest)
            if rest.faults:
                yield ("crash", worker)
        yield from self._of_others(state, rest)

    def _of_worker(
        self, worker: int, process: Process, rest: Rest, end: int
    ) -> Iterator[Label]:
        if self.owned(process) is None:
            if rest.owner == worker and self._may_join(process, rest):
                step = self._step(worker, process, "assign", end, rest.now)
                yield from self._fated(("assign", worker), process, step, rest)
        else:
            unread = len(process.unread)
            for count in {unread, min(unread, 1)}:
                detail = process.unread[:count]
                step = self._step(worker, process, "round", detail, rest.now)
                yield from self._fated(("round", worker, count), process, step, rest)
            if rest.owner != worker:
                yield ("revoke", worker)
        if process.queue:
            yield ("release", worker)

    def _may_join(self, process: Process, rest: Rest) -> bool:
        return not process.outbox or rest.now - process.started_at >= OUTBOX_MS

    def _fated(self, label: Label, process: Process, step: Step, rest: Rest) -> Iterator[Label]:
        """An action whose records may meet a fault."""
        yield label
        if rest.faults and step.produced:
            for count in range(1, len(step.produced)):
                yield (*label, "crash", count)
            if not process.queue:
                for fate in FATES:
                    yield (*label, fate)

    def _of_effects(self, worker: int, process: Process, rest: Rest) -> Iterator[Label]:
        for n, task in enumerate(process.tasks):
            if n and task == process.tasks[n - 1]:
                continue
            if self.effects.may_act(task, rest.now):
                yield ("act", worker, n)
            if self.variant.chunks and task.kind == "generate" and not task.did:
                yield ("stream", worker, n)
            for ending in self.effects.endings(task, rest.now, rest.acts > 0):
                if ending.is_fault and not rest.faults:
                    continue
                if ending.draft == NOTHING:
                    yield ("end", worker, n, ending)
                    continue
                if process.queue:
                    yield ("end", worker, n, ending, "kept")
                    continue
                yield ("end", worker, n, ending)
                if rest.faults > ending.is_fault:
                    for fate in ("kept", "crash", "unacknowledged"):
                        yield ("end", worker, n, ending, fate)
        if not process.queue:
            for n in range(len(process.outbox)):
                yield ("emit", worker, n)

    def _of_others(self, state: State, rest: Rest) -> Iterator[Label]:
        other = 1 - rest.owner
        owner_lives, other_lives = (
            self.processes[state[1 + worker]].memory >= 0 for worker in (rest.owner, other)
        )
        if other_lives and (rest.faults or not owner_lives):
            yield ("move", None)
        turn = self.log.positions[state.end].views.turn
        if self.variant.cancels and not rest.cancelled and turn.open:
            yield ("cancel", None)
        if self.variant.decides and not rest.decided:
            for call in turn.calls:
                if call.status == "asks":
                    yield ("decide", None, call.key, call.args_sha256, "allow")
                    yield ("decide", None, call.key, call.args_sha256, "deny")
        if rest.jumps:
            yield ("jump", None, SHORT_MS)
            yield ("jump", None, LONG_MS)

    def after(self, state: State, label: Label, notes: list[str] | None = None) -> State:
        """The state after an action. Raises Violation."""
        change = Change(self, state, notes)
        getattr(self, f"_{label[0]}")(change, *label[1:])
        return change.state()

    def _fault(self, change: Change) -> None:
        change.rest = change.rest._replace(faults=change.rest.faults - 1)

    def _taken(self, change: Change, worker: int, step: Step, fate: Any, crash_after: int) -> None:
        """Apply what a step of a worker did."""
        if fate is not None:
            self._fault(change)
        if fate == "crash":
            for draft in step.produced[:crash_after]:
                change.send(worker, (draft,))
            change.die(worker)
            return
        is_refused = fate in ("unacknowledged", "lost")
        change.change(worker, memory=step.refused if is_refused else step.memory)
        change.begin(worker, step)
        if fate == "held":
            change.change(worker, queue=step.produced)
        elif fate == "twice":
            change.send(worker, tuple(draft for draft in step.produced for _ in range(2)))
        elif fate != "lost":
            change.send(worker, step.produced)

    def _assign(self, change: Change, worker: int, fate: Any = None, count: int = 0) -> None:
        process = change.processes[worker]
        step = self._step(worker, process, "assign", change.end, change.rest.now)
        self._taken(change, worker, step, fate, count)

    def _round(
        self, change: Change, worker: int, read: int, fate: Any = None, count: int = 0
    ) -> None:
        process = change.processes[worker]
        step = self._step(worker, process, "round", process.unread[:read], change.rest.now)
        change.change(worker, unread=process.unread[read:])
        self.checks.round_ended(self, worker, process, step, change.rest)
        self._taken(change, worker, step, fate, count)

    def _revoke(self, change: Change, worker: int) -> None:
        process = change.processes[worker]
        step = self._step(worker, process, "revoke", None, change.rest.now)
        change.change(worker, memory=step.memory, unread=())

    def _release(self, change: Change, worker: int) -> None:
        first, *more = change.processes[worker].queue
        change.change(worker, queue=())
        change.append(first)
        change.change(worker, queue=tuple(more))

    def _crash(self, change: Change, worker: int) -> None:
        self._fault(change)
        change.die(worker)

    def _restart(self, change: Change, worker: int) -> None:
        process = change.processes[worker]
        memory = self.memories.number(EMPTY)
        change.change(worker, incarnation=process.incarnation + 1, memory=memory)
        change.change(worker, started_at=change.rest.now)

    def _act(self, change: Change, worker: int, n: int) -> None:
        tasks = list(change.processes[worker].tasks)
        self.checks.acts(change, tasks[n])
        tasks[n] = tasks[n]._replace(did=True)
        change.rest = change.rest._replace(acts=change.rest.acts + 1)
        change.change(worker, tasks=tuple(sorted(tasks)))

    def _stream(self, change: Change, worker: int, n: int) -> None:
        tasks = list(change.processes[worker].tasks)
        chunk = self.effects.chunk(tasks[n])
        tasks[n] = tasks[n]._replace(did=True)
        change.change(worker, tasks=tuple(sorted(tasks)))
        change.send(worker, (chunk,))

    def _end(
        self, change: Change, worker: int, n: int, ending: Ending, fate: Any = None
    ) -> None:
        process = change.processes[worker]
        if ending.is_fault:
            self._fault(change)
        if ending.draft == NOTHING:
            change.change(worker, tasks=(*process.tasks[:n], *process.tasks[n + 1 :]))
            return
        kept = self.outboxes.put(process.outbox, ending.draft)
        tasks = (*process.tasks[:n], *process.tasks[n + 1 :])
        change.change(worker, tasks=tasks, outbox=kept)
        if fate is not None and not process.queue:
            self._fault(change)
        if fate == "crash":
            change.die(worker)
        elif fate == "unacknowledged":
            change.append(ending.draft)
        elif fate is None:
            self._emit(change, worker, len(kept) - 1)

    def _emit(self, change: Change, worker: int, n: int) -> None:
        outbox = change.processes[worker].outbox
        change.append(outbox[n])
        change.change(worker, outbox=self.outboxes.done(outbox, n))

    def _move(self, change: Change, _worker: None) -> None:
        rest = change.rest
        if change.processes[rest.owner].memory >= 0:
            self._fault(change)
        change.rest = change.rest._replace(owner=1 - rest.owner)

    def _cancel(self, change: Change, _worker: None) -> None:
        change.rest = change.rest._replace(cancelled=True)
        event = ev.CancelRequested(
            cancel_id="x1", mode="now", turn=1, seen_phase=None, reason="stop", by_user=USER
        )
        change.append(self.log.draft(event, "producer"))

    def _decide(
        self, change: Change, _worker: None, call: str, args_sha256: str, decision: str
    ) -> None:
        change.rest = change.rest._replace(decided=decision)
        event = ev.ApprovalDecided(
            call=call, args_sha256=args_sha256, decision=decision, remember=False, by_user=USER
        )
        change.append(self.log.draft(event, "producer"))

    def _jump(self, change: Change, _worker: None, span: int) -> None:
        rest = change.rest
        change.rest = rest._replace(now=rest.now + span, jumps=rest.jumps - 1)

