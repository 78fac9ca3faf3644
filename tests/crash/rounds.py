"""One round: people talk, a worker is killed at a crash point, another takes over, every turn ends.

This file brings a worker to each crash point. Most points are armed in the running worker; the
points of a start are armed in the worker that takes over; some need a store or an outbox in the
state that a crash leaves. Tests and the soak play the same rounds; witnesses.py gives the verdict.
"""

import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from foldlog.processors import crash_points
from foldlog.schemas import events as ev
from foldlog.tests.crash import damage, witnesses
from foldlog.tests.crash.fleet import PATIENCE_S, Ended, WorkerHandle
from foldlog.tests.crash.scenes import SCENES, Person
from foldlog.tests.crash.script import gate_of
from foldlog.tests.crash.stage import SNAPSHOT_RECORDS, Stage

CAST = ("talk", "tools", "approve", "cancel", "steer")
KEEPERS = ("shorts", "returns", "haul", "stopped")  # scenes that compact: results, idle, busy
PUSHED = ("pushed", "tools")  # scenes for points of deliveries
WORKERS = ("sessions", "models", "tools", "background", "delivery")  # writers in a worker

# Points that are not in the code: tools that kill their worker, and kills by the test.
BESIDE: dict[str, str] = {
    **{
        f"tool {name} {when}": f"inside the tool {name}, {when} its effect"
        for name in ("charge", "put", "pay", "wire")
        for when in ("before", "after")
    },
    "outside begun": "from outside: the provider has accepted the request and sent nothing",
    "outside middle": "from outside: in the middle of a stream",
    "outside aside": "from outside: while the cheap model makes a summary",
    "outside instant": "from outside, at any instant",
}
ALL_POINTS = crash_points.POINTS | BESIDE
AT_START = ("start.", "partition.", "store.removed", "refold.", *damage.LOADED)


class Kill(NamedTuple):
    """One kill. taken_ms: how long after the kill another worker had taken the partitions;
    resumed_ms: how long after the kill that worker wrote something for a session (None: it died
    before that, or nothing was pending)."""

    at: str
    taken_ms: float | None
    resumed_ms: float | None


class Round(NamedTuple):
    """The result of a round. wrong: the violations that the witnesses found."""

    kills: list[Kill]
    wrong: list[str]


class NotReached(Exception):
    """The point was not reached the requested number of times, and no work is pending."""


class Play:
    """One round, see the module docstring. `at`: the point, as `POINT:N`; `then`: a second point at
    which to kill the worker that took over, if it is reached; `instant_s`: at the point `outside
    instant`, the worker is killed this long after the first messages."""

    def __init__(
        self,
        stage: Stage,
        handle: WorkerHandle,
        at: str = "",
        cast: tuple[str, ...] = CAST,
        *,
        then: str | None = None,
        instant_s: float = 0.5,
    ) -> None:
        self.stage, self.handle, self.at, self.then = stage, handle, at, then
        self.point, _, times = at.partition(":")
        self.times = times or "1"
        self.instant_s = instant_s
        number = len(stage.watched)
        names = [*cast, *self._extra()]
        self.people = [
            Person(stage, f"s{number + i}-{name}", SCENES[name]) for i, name in enumerate(names)
        ]
        self.ends: list[tuple[str, Ended]] = []
        self.supervised = False  # whether a worker that ends with code 1 or 3 is started again
        self.restarts = 0
        self._owner = ""
        self._revive = False

    def _extra(self) -> list[str]:
        match self.point.split():
            case ["tool", "wire", _]:
                return ["wire"]
            case ["outside", ("begun" | "middle") as scene]:
                return [scene]
            case ["outside", "aside"]:
                return ["patient"]
        return []

    def run(self) -> Round:
        """Play the round to its end. Raises TimeoutError that describes the sessions with pending
        work."""
        self.settle()
        self._kill_at_point()
        if self.then is not None:
            self.handle.arm(self.then)
            self._revive = True
        wrong = self.rest()
        return Round(self.kills(), wrong)

    def settle(self) -> None:
        """Ensure that a worker is running, with no crash point armed."""
        if self.handle.active is None:
            before = self.stage.owner()
            self.handle.start()
            self.await_taken(before)
        self._owner = self.stage.owner()
        self.stage.ledger.cancel_kill()  # an order of an earlier round may still be there
        self.handle.arm("")

    def rest(self) -> list[str]:
        """Wait until everybody has an answer. Returns the violations that the witnesses find."""
        self.until("everybody has an answer and nothing is pending", self.all_at_rest)
        watched = {person.session_id: person.watched for person in self.people}
        self.until("all facts are sent", lambda: self.stage.facts.has_all(watched))
        wrong = witnesses.violations(self.stage, self.people)
        wrong += self.stage.facts.violations(watched)
        wrong += witnesses.the_store_is_the_fold(self.stage, self.handle.worker_id, self.people)
        return wrong

    def kills(self) -> list[Kill]:
        """Every kill so far."""
        return [self._recovery(at, ended) for at, ended in self.ends]

    # -- reaching the point ----------------------------------------------------------------------

    def _kill_at_point(self) -> None:
        match self.point.split():
            case ["tool", *place]:
                self.stage.ledger.order_kill(" ".join(place))
                self.begin()
                self._die()
            case ["outside", "instant"]:
                self.begin()
                self._from_outside(time.monotonic() + self.instant_s)
            case ["outside", _]:
                self._at_gate()
            case [("start.outbox" | "start.emitted") as point]:
                self._kept_outcomes(point)
            case ["partition.revoked"]:
                self.handle.arm(self.at)
                self.begin()
                self.until("something streams", self.streams)
                self.handle.signal(signal.SIGTERM)
                self.until("the worker ends", lambda: self.ends)
                self._take_over()
            case ["snapshot.checkpoint" | "snapshot.files" | "snapshot.stored"]:
                self.handle.arm(self.at)
                self.begin()
                self.until("something streams", lambda: self.streams() or self.ends)
                self.stage.write_fillers(SNAPSHOT_RECORDS + 1)  # so that one is due
                self.until(f"{self.at} is reached", lambda: self.ends)
                self._take_over()
            case [point] if point.startswith(AT_START):
                self._at_start(point)
            case [_]:
                self.handle.arm(self.at)
                self.begin()
                self._die()

    def begin(self) -> None:
        """Let everybody send their first message."""
        for person in self.people:
            person.begin()

    def _die(self) -> None:
        """Follow the log until the armed worker is dead, and let another take over."""
        known = len(self.ends)
        self.until(f"{self.at} is reached", lambda: len(self.ends) > known or self.all_at_rest())
        if len(self.ends) == known:
            raise NotReached(self.at)
        self._take_over()

    def _take_over(self, arm: str | None = None) -> None:
        self.handle.start(arm)
        if arm is None:
            self.await_taken(self._owner)

    def _from_outside(self, when: float) -> None:
        self.until("the moment has come", lambda: time.monotonic() >= when)
        self.ends.append((self.point, self.handle.kill()))
        self._take_over()

    def _at_gate(self) -> None:
        """Kill the worker while the provider waits in the middle of its answer, then let the
        provider continue."""
        self.begin()
        session = self.people[-1].session_id
        gate = gate_of(session) if self.point.endswith("aside") else session
        journal = self.stage.server.journal
        self.until("the provider waits", lambda: journal.count("waiting", gate=gate))
        if self.point.endswith("middle"):
            watched = self.stage.watch(session)
            self.until("a chunk came", lambda: watched.counted(ev.GenChunk))
        self.ends.append((self.point, self.handle.kill()))
        self.stage.server.open(session)
        self._take_over()

    def _at_start(self, point: str) -> None:
        """Kill the worker while an answer streams, then kill the next worker at the point of its
        start."""
        self.begin()
        self.until("something streams", self.streams)
        self.ends.append(("outside instant", self.handle.kill()))
        damage.so_that(point, self.stage, self.handle.worker_id)
        self._take_over(arm=self.at)
        self._die()

    def _kept_outcomes(self, point: str) -> None:
        """Leave an outcome in the outbox, and kill the next worker while it writes the outcome to
        the log."""
        at, self.at = self.at, "tools.kept:1" if self.times == "1" else "models.kept:1"
        self.handle.arm(self.at)
        self.begin()
        known = len(self.ends)
        self.until("an outcome is kept", lambda: len(self.ends) > known)
        self.at = at
        self._take_over(arm=f"{point}:1")
        self._die()

    # -- following -------------------------------------------------------------------------------

    def until(self, what: str, found: Callable[[], object]) -> None:
        """Follow the log, let people react, and notice deaths, until `found()` is true."""
        end = time.monotonic() + PATIENCE_S
        while not found():
            self.stage.pump()
            for person in self.people:
                person.react()
            self._notice_death()
            failed = self.stage.server.journal.entries("failed")
            assert not failed, f"the script is wrong: {failed}"
            if time.monotonic() > end:
                raise TimeoutError(f"{self.at}: not within {PATIENCE_S:g} s: {what}\n{self._why()}")

    def _notice_death(self) -> None:
        ended = self.handle.ended()
        if ended is None:
            return
        if ended.code in (1, 3) and self.supervised:
            self.restarts += 1
            self.handle.start()
            return
        at = str(self.then) if self._revive else self.at
        self.ends.append((at.partition(":")[0], ended))
        if ended.code != -signal.SIGKILL:
            log = self.handle.log.read_text("utf-8", "replace").splitlines()
            raise AssertionError("\n".join([f"a worker ended with {ended.code}:", *log[-40:]]))
        if self._revive:
            self.handle.start()

    def await_taken(self, before: str) -> None:
        """Wait until a worker other than `before` holds all partitions for all roles."""
        self.until("the partitions are taken", lambda: self.stage.owner() not in ("", before))

    def streams(self) -> bool:
        """Whether any answer is being streamed or has been streamed."""
        return any(person.watched.counted(ev.GenChunk) for person in self.people)

    def all_at_rest(self) -> bool:
        """Whether nothing is pending and the running worker's store contains every event."""
        if not all(person.is_done() for person in self.people):
            return False
        if self.handle.active is None:
            return False
        return witnesses.stores_have_reached(self.stage, self.handle.worker_id)

    def _why(self) -> str:
        waiting = [person.session_id for person in self.people if not person.is_done()]
        accounts = "\n".join(map(self.stage.account, waiting))
        return f"alive: {self.handle.active is not None}, not done: {waiting}\n{accounts}"

    def _recovery(self, at: str, ended: Ended) -> Kill:
        died_ms = ended.at * 1000
        deaths = [other.at * 1000 for _, other in self.ends if other.at > ended.at]
        until = min(deaths, default=float("inf"))
        taken = [t for t in self.stage.taken_at.values() if died_ms <= t < until]
        if not taken:
            return Kill(at, None, None)
        wrote = [
            ruled.entry.at
            for person in self.people
            for ruled in person.watched.events
            if ruled.entry.writer in WORKERS and min(taken) <= ruled.entry.at < until
        ]
        resumed = min(wrote) - died_ms if wrote else None
        return Kill(at, min(taken) - died_ms, resumed)
