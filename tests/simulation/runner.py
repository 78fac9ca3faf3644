"""Runs seeds and reports their coverage; for a violation, it prints the history that led to it."""

import time
from collections import Counter
from hashlib import sha256
from typing import NamedTuple

from foldlog.schemas.codec import entry_of
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.invariants import Violation
from foldlog.tests.simulation import scenarios
from foldlog.tests.simulation.invariants import ALL
from foldlog.tests.simulation.scenarios import Scenario
from foldlog.tests.simulation.world import World

TAIL = 45  # records and notes shown of a failed schedule
EVENT_CHARS = 260


class Outcome(NamedTuple):
    """The result of one schedule. `violation`: None if every invariant held."""

    world: World
    violation: Violation | None


def run(seed: int, scenario: Scenario | None = None, invariants=ALL) -> Outcome:
    """Run one schedule."""
    world = World(seed, scenario or scenarios.of_seed(seed), invariants)
    try:
        world.run()
    except Violation as violation:
        return Outcome(world, violation)
    except Exception as bug:
        violation = Violation("NoException", f"{type(bug).__name__}: {bug}")
        violation.__cause__ = bug
        return Outcome(world, violation)
    return Outcome(world, None)


def history_sha(world: World) -> str:
    """A hash of the whole log of a schedule. It is the same for the same seed."""
    log_hash = sha256()
    for partition in world.log.topic(SESSION_EVENTS).partitions:
        for record in partition.records:
            log_hash.update(repr(record[1:]).encode())
    return log_hash.hexdigest()


def tail(world: World, last: int = TAIL) -> list[str]:
    """The end of the history: records with their rulings, and notes on faults and effects."""
    begin = 1_700_000_000_000
    lines = [(at, f"        {text}") for at, text in world.notes]
    for number, partition in enumerate(world.log.topic(SESSION_EVENTS).partitions):
        for record in partition.records:
            entry = entry_of(record)
            seen = world.witness.seen.get((number, record.offset))
            ruling = f"{seen.ruling.verdict} {seen.ruling.code}" if seen else ""
            who = "" if entry.session_id == PARTITION_KEY else entry.session_id[:8]
            text = f"{number}/{record.offset:<4} {who:8} {ruling:22} {entry.event}"
            lines.append((record.timestamp_ms, text[:EVENT_CHARS]))
    lines.sort(key=lambda line: line[0])
    return [f"{(at - begin) / 1000:10.3f} {text}" for at, text in lines[-last:]]


class Search:
    """Runs many seeds, and collects their coverage."""

    def __init__(self) -> None:
        self.stats: Counter[str] = Counter()
        self.by_scenario: Counter[str] = Counter()
        self.seeds = self.steps = 0
        self.began = time.monotonic()

    def one(self, seed: int, scenario: Scenario | None = None) -> Outcome:
        """Run a seed and add its counts."""
        outcome = run(seed, scenario)
        self.seeds += 1
        self.steps += outcome.world.steps
        self.stats.update(outcome.world.stats)
        self.by_scenario[outcome.world.scenario.name] += 1
        return outcome

    def report(self) -> list[str]:
        """The coverage, as lines of text."""
        seconds = time.monotonic() - self.began
        rate = self.seeds / seconds if seconds else 0.0
        lines = [
            f"{self.seeds} seeds, {self.steps} steps, {self.stats['records']} records, "
            f"{self.stats['requests']} requests, {seconds:.1f} s, {rate:.1f} seeds/s"
        ]
        for title, counts in (
            ("scenarios", self.by_scenario),
            ("WAKE rows discharged", self._of("row ")),
            ("law 9 checked", self._of("law9 ")),
            ("rulings", self._of("ruling ")),
            ("commands", self._of("command ")),
            ("faults", self._of("fault ")),
            ("answers resumed", self._of("resumed ")),
        ):
            lines.append(f"{title}:")
            lines += [f"  {count:8} {name}" for name, count in sorted(counts.items())]
        return lines

    def _of(self, prefix: str) -> dict[str, int]:
        return {
            name.removeprefix(prefix): count
            for name, count in self.stats.items()
            if name.startswith(prefix)
        }
