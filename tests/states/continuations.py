"""Bounded liveness: from a state, without another fault, the session reaches its end, or a point
where it waits for a person.

Two kinds of continuation are checked. In the first, one worker has the partition and the other
never acts again. In the second, both workers believe that they are assigned, for ever, and each
takes the partition back as often as it may; effects are slower than that. A continuation has no
choice, so it is one path, and the paths from many states join.
"""

from typing import Any

from foldlog.processors.wake.decide import rules_of
from foldlog.processors.worker.worker import SESSION_TIMEOUT_MS
from foldlog.tests.kit.invariants import Violation, owed_without_a_person
from foldlog.tests.states.host import ROLES
from foldlog.tests.states.system import WORKERS, Label, Process, State, System

STEPS_MAX = 200  # rounds, effects and jumps of the clock
SLOW_MS = SESSION_TIMEOUT_MS + 1_000  # how long an effect takes while two workers dispute


class Continuations:
    """Checks continuations. `paths`: how many reached their end without joining another path;
    `longest`: the most steps of a path."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.longest = self.paths = 0
        self._steps: dict[tuple[State, tuple[int, ...]], int] = {}  # steps to the end
        self._nobody = system.processes.number(Process(0, 0, -1))

    def check(self, state: State) -> None:
        """Check the continuations of a state: by each worker alone, and by both that dispute."""
        system = self.system
        rest = system.rests[state.rest]._replace(faults=0, jumps=0, begun=())
        processes = [system.processes[state.a], system.processes[state.b]]
        for worker in WORKERS:
            number = system.rests.number(rest._replace(owner=worker))
            places = [state.a, state.b]
            places[1 - worker] = self._nobody
            self._walk(State(state.end, *places, number), (worker,))
        if None not in map(system.owned, processes):
            number = system.rests.number(rest._replace(owner=-1))
            self._walk(state._replace(rest=number), WORKERS)

    def _walk(self, state: State, workers: tuple[int, ...]) -> None:
        path: list[State] = []
        known = self._steps
        while (state, workers) not in known:
            path.append(state)
            if len(path) > STEPS_MAX:
                raise Violation("Liveness", f"not done after {STEPS_MAX} steps of {workers}")
            following = self._next(state, workers)
            if following is None:
                self.system.checks.settled(state.end, self.system.rests[state.rest])
                self.paths += 1
                known[path.pop(), workers] = 0
                break
            state = following
        steps = known[state, workers]
        for place in reversed(path):
            steps += 1
            known[place, workers] = steps
        self.longest = max(self.longest, steps)

    def _next(self, state: State, workers: tuple[int, ...]) -> State | None:
        """The next state of a continuation, or None at its end."""
        slow_ms = SLOW_MS if len(workers) > 1 else 0
        for worker in workers:
            label = self._action(state, worker, slow_ms)
            if label is not None:
                return self._after(state, label)
        return self._jump(state, workers, slow_ms)

    def _after(self, state: State, label: Label) -> State:
        """The state after an action. It forgets which effects have begun, so that paths join."""
        after = self.system.after(state, label)
        rest = self.system.rests[after.rest]
        if rest.begun:
            after = after._replace(rest=self.system.rests.number(rest._replace(begun=())))
        return after

    def _action(self, state: State, worker: int, slow_ms: int) -> Label | None:
        system = self.system
        process, rest = system.processes[state[1 + worker]], system.rests[state.rest]
        if process.memory < 0:
            return ("restart", worker)
        if process.queue:
            return ("release", worker)
        if process.outbox:
            return ("emit", worker, 0)
        if system.owned(process) is None:
            return ("assign", worker)
        if process.unread:
            return ("round", worker, len(process.unread))
        for n, task in enumerate(process.tasks):
            if rest.now < task.since + slow_ms:
                continue
            if not task.stop and system.effects.may_act(task, rest.now):
                return ("act", worker, n)
            return ("end", worker, n, system.effects.endings(task, rest.now, rest.acts > 0)[0])
        label = ("round", worker, 0)
        return None if system.after(state, label) == state else label

    def _jump(self, state: State, workers: tuple[int, ...], slow_ms: int) -> State | None:
        """The state at the next time at which a worker has something to do, or None if there is
        none. A call that waits for approval does not wait for its expiry here."""
        system = self.system
        rest: Any = system.rests[state.rest]
        if len(workers) > 1 and not self._is_busy(state):
            return None  # the dispute goes on for ever, but the session is done
        turn = system.log.positions[state.end].views.turn
        expiries = {call.expires_at for call in turn.calls if call.status == "asks"}
        times: list[int] = []
        for worker in workers:
            process = system.processes[state[1 + worker]]
            times += [task.since + slow_ms for task in process.tasks]
            owned = system.owned(process)
            if owned is None:
                continue
            times += [due for due in owned.timers if due not in expiries]
            if not self._holds(worker, process):
                times.append(owned.taken_at + SESSION_TIMEOUT_MS)
        times = [at for at in times if at > rest.now]
        if not times:
            return None
        return state._replace(rest=system.rests.number(rest._replace(now=min(times))))

    def _holds(self, worker: int, process: Process) -> bool:
        owned = self.system.owned(process)
        assert owned is not None
        own = self.system.owner(worker, process)
        holders = self.system.log.positions[owned.position].holders.holders
        held = [h for h in holders if h.owner == own and h.epoch >= owned.takes_from]
        return len(held) == len(ROLES)

    def _is_busy(self, state: State) -> bool:
        """Whether an effect runs, or the session can continue without a person."""
        system = self.system
        if any(system.processes[place].tasks for place in (state.a, state.b)):
            return True
        views, holders = system.log.positions[state.end][1:]
        now = system.rests[state.rest].now
        return bool(owed_without_a_person(views, holders, now, rules_of(system.agent)))
