"""Bounded liveness: from a state, without another fault, a live worker brings the session to its
end, or to a point where it waits for a person.

The continuation has no choice: one worker runs alone, with the partition; the other never acts
again. So it is a path, and the paths from many states join.
"""

from typing import Any

from foldlog.processors.worker.worker import SESSION_TIMEOUT_MS
from foldlog.tests.simulation.invariant import Violation
from foldlog.tests.states.system import WORKERS, Change, Label, State, System

STEPS_MAX = 120  # records, effects and jumps of the clock; the longest path needs a third


class Alone:
    """Checks continuations. `paths`: how many there were that joined no other path before their
    end; `longest`: the most steps of a path."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.longest = self.paths = 0
        self._steps: dict[State, int] = {}  # steps to the end
        self._nobody = system.processes.number(system.processes[system.initial.a]._replace(memory=-1))

    def check(self, state: State) -> None:
        """Check the continuations of a state, by each worker alone."""
        for worker in WORKERS:
            self._walk(self._only(state, worker), worker)

    def _only(self, state: State, worker: int) -> State:
        rest = self.system.rests[state.rest]
        rest = rest._replace(owner=worker, faults=0, jumps=0, begun=())
        places = [state.a, state.b]
        places[1 - worker] = self._nobody
        return State(state.end, *places, self.system.rests.number(rest))

    def _walk(self, state: State, worker: int) -> None:
        path: list[State] = []
        known = self._steps
        while state not in known:
            path.append(state)
            if len(path) > STEPS_MAX:
                raise Violation("Liveness", f"worker {worker} alone is not done after {STEPS_MAX}")
            following = self.step(state, (worker,))
            if following is None:
                rest = self.system.rests[state.rest]
                self.system.checks.settled(state.end, rest)
                known[state] = 0
                path.pop()
                self.paths += 1
                break
            state = following
        steps = known[state]
        for place in reversed(path):
            steps += 1
            known[place] = steps
        self.longest = max(self.longest, steps)

    def step(self, state: State, workers: tuple[int, ...]) -> State | None:
        """The next state of a continuation, or None at its end."""
        for worker in workers:
            label = self._action(state, worker)
            if label is not None:
                return self._after(state, label)
        return self._jump(state, workers)

    def _after(self, state: State, label: Label) -> State:
        after = self.system.after(state, label)
        rest = self.system.rests[after.rest]
        if rest.begun:
            after = after._replace(rest=self.system.rests.number(rest._replace(begun=())))
        return after

    def _action(self, state: State, worker: int) -> Label | None:
        system = self.system
        process, rest = system.processes[state[1 + worker]], system.rests[state.rest]
        if process.memory < 0:
            return ("restart", worker)
        if process.queue:
            return ("release", worker)
        if process.outbox:
            return ("emit", worker, 0)
        owned = system.owned(process)
        if owned is None:
            return ("assign", worker)
        if process.unread:
            return ("round", worker, len(process.unread))
        for n, task in enumerate(process.tasks):
            if not task.stop and system.effects.may_act(task, rest.now):
                return ("act", worker, n)
            endings = system.effects.endings(task, rest.now, rest.acts > 0)
            assert endings, task
            return ("end", worker, n, endings[0])
        label = ("round", worker, 0)
        return None if system.after(state, label) == state else label

    def _jump(self, state: State, workers: tuple[int, ...]) -> State | None:
        """The state at the next time at which a worker has something to do, or None if there is
        none. A call that waits for approval does not wait for its expiry here."""
        system = self.system
        rest: Any = system.rests[state.rest]
        turn = system.log.positions[state.end].views.turn
        expiries = {call.expires_at for call in turn.calls if call.status == "asks"}
        times: list[int] = []
        for worker in workers:
            owned = system.owned(system.processes[state[1 + worker]])
            if owned is None:
                continue
            times += [due for due in owned.timers if due not in expiries]
            holders = system.log.positions[owned.position].holders
            own = system.owner(worker, system.processes[state[1 + worker]])
            holds = [h for h in holders.holders if h.owner == own and h.epoch >= owned.takes_from]
            if len(holds) < 3:
                times.append(owned.taken_at + SESSION_TIMEOUT_MS)
        times = [at for at in times if at > rest.now]
        if not times:
            return None
        return state._replace(rest=system.rests.number(rest._replace(now=min(times))))


__all__ = ["Alone", "Change"]
