"""Breadth-first search of a system: every state within the bounds, each once.

Because states are found in the order of their distance, the schedule that leads to the first
violation is a shortest one.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from foldlog.tests.kit.invariants import Violation
from foldlog.tests.states.continuations import Continuations
from foldlog.tests.states.system import NAMES, Label, State, System

CONTINUE: Label = ("continue without a fault", None)


class Found(NamedTuple):
    """The result of a search. `complete`: whether every state was searched; `schedule`: the lines
    of the schedule that leads to the violation."""

    states: int
    transitions: int
    depth: int
    complete: bool
    seconds: float
    records: int
    positions: int
    continued: int
    longest: int
    violation: Violation | None = None
    schedule: tuple[str, ...] = ()


class Search:
    """One search. `states_max`, `seconds`, `depth_max`: where it ends before it is complete."""

    def __init__(
        self,
        system: System,
        *,
        depth_max: int = 10**9,
        seconds: float = 10**9,
        states_max: int = 10**9,
    ) -> None:
        self.system = system
        self.depth_max, self.seconds, self.states_max = depth_max, seconds, states_max
        self._states: list[State] = [system.initial]
        self._parents: list[int] = [-1]
        self._labels: list[Label] = [()]
        self._known: dict[State, int] = {system.initial: 0}
        self._continuations = Continuations(system)

    def run(self) -> Found:
        """Search. Returns at the first violation."""
        began = time.process_time()
        place, depth, level_ends, transitions = 0, 0, 1, 0
        system, states, known = self.system, self._states, self._known
        continuations = self._continuations
        failed: Violation | None = None
        schedule: tuple[str, ...] = ()
        label: Label = ()
        try:
            while place < len(states):
                if place == level_ends:
                    depth, level_ends = depth + 1, len(states)
                if depth >= self.depth_max or len(states) > self.states_max:
                    break
                if not place & 255 and time.process_time() - began > self.seconds:
                    break
                state = states[place]
                label = CONTINUE
                continuations.check(state)
                for label in system.labels(state):
                    transitions += 1
                    after = system.after(state, label)
                    if after not in known:
                        known[after] = len(states)
                        states.append(after)
                        self._parents.append(place)
                        self._labels.append(label)
                place += 1
        except Violation as violation:
            failed, schedule = violation, tuple(self._schedule(place, label))
        ends = (position.end for position in system.log.positions.values)
        return Found(
            len(states), transitions, depth, place == len(states), time.process_time() - began,
            max(ends), len(system.log.positions), continuations.paths, continuations.longest,
            failed, schedule,
        )

    def _schedule(self, place: int, last: Label) -> Iterator[str]:
        path = [place]
        while self._parents[path[-1]] >= 0:
            path.append(self._parents[path[-1]])
        path.reverse()
        labels = [self._labels[n] for n in path[1:]]
        state = self._states[0]
        number = 0
        for number, label in enumerate(labels, 1):
            notes: list[str] = []
            state = self.system.after(state, label, notes)
            yield f"{number:3} {described(label)}"
            yield from notes
        yield f"{number + 1:3} {described(last)}"
        if last != CONTINUE:
            notes = []
            with suppress(Violation):
                self.system.after(state, last, notes)
            yield from notes


def described(label: Label) -> str:
    """An action in words."""
    name, worker, *more = label
    words = [getattr(one, "label", one) for one in more]
    who = "" if worker is None else f"{NAMES[worker]} "
    return who + " ".join(map(str, (name, *words)))
