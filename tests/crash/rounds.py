"""One round: people talk, a worker is killed at a point, another goes on, all comes to rest.

It owns how each point is brought about: most are armed in the running worker, those of a start in
the process that takes over, some need a store or an outbox to be as a crash leaves them. Tests and
the soak play the same rounds. It must not judge: witnesses.py does.
"""

import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from foldlog.processors import crash_points
from foldlog.schemas import events as ev
from foldlog.tests.crash import damage, witnesses
from foldlog.tests.crash.fleet import PATIENCE_S, Ended, Hand
from foldlog.tests.crash.scenes import SCENES, Person
from foldlog.tests.crash.script import gate_of
from foldlog.tests.crash.stage import Stage

CAST = ("talk", "tools", "approve", "cancel", "steer")
KEEPERS = ("shorts", "returns", "haul", "stopped")  # whose sessions compact: results, idle, busy
PUSHED = ("pushed", "tools")  # for deliveries
WORKERS = ("sessions", "models", "tools", "background", "delivery")  # writers of what a worker owes

# Points beside those in the code: tools that kill their worker, and kills from outside.
BESIDE: dict[str, str] = {
    **{
        f"tool {name} {when}": f"inside the tool {name}, {when} its effect"
        for name in ("charge", "put", "pay", "wire")
        for when in ("before", "after")
    },
    "outside begun": "from outside: the provider has accepted the request and said nothing",
    "outside middle": "from outside: in the middle of a stream",
    "outside aside": "from outside: while the cheap model makes a summary",
    "outside instant": "from outside, at any instant",
}
ALL_POINTS = crash_points.POINTS | BESIDE
AT_START = ("start.", "partition.", "store.removed", "refold.")


class Kill(NamedTuple):
    """One kill. Times in ms after it: until another worker had taken the partitions, and until
    that wrote something for a session (None: it died before, or nothing was owed)."""

    at: str
    taken_ms: float | None
    resumed_ms: float | None


class Round(NamedTuple):
    """What became of a round. wrong: what the witnesses found."""

    kills: list[Kill]
    wrong: list[str]


class NotReached(Exception):
    """The point was not reached the asked number of times; everybody has come to rest."""


class Play:
    """See the module. `at` is `POINT:N`; `then`: a point to be killed at once more, in the worker
    that took over (if it comes there); `instant_s`: for kills at any instant."""

    def __init__(
        self,
        stage: Stage,
        hand: Hand,
        at: str = "",
        cast: tuple[str, ...] = CAST,
        *,
        then: str | None = None,
        instant_s: float = 0.5,
    ) -> None:
        self.stage, self.hand, self.at, self.then = stage, hand, at, then
        self.point, _, times = at.partition(":")
        self.times = times or "1"
        self.instant_s = instant_s
        number = len(stage.watched)
        names = [*cast, *self._extra()]
        self.people = [
            Person(stage, f"s{number + i}-{name}", SCENES[name]) for i, name in enumerate(names)
        ]
        self.ends: list[tuple[str, Ended]] = []
        self.supervised = False  # whether a worker that must be started again is, once it has ended
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
        """Play it to the end. Raises TimeoutError with the account of those who are not quiet."""
        self.settle()
        self._bring()
        if self.then is not None:
            self.hand.arm(self.then)
            self._revive = True
        wrong = self.rest()
        return Round(self.kills(), wrong)

    def settle(self) -> None:
        """See that a worker runs which nothing is armed in."""
        if self.hand.active is None:
            before = self.stage.owner()
            self.hand.start()
            self.await_taken(before)
        self._owner = self.stage.owner()
        self.stage.ledger.let_live()  # what an earlier round asked for may never have come
        self.hand.arm("")

    def rest(self) -> list[str]:
        """Wait until everybody has an answer, and ask the witnesses what is wrong."""
        self.until("everybody has an answer and owes nothing", self.all_rest)
        wrong = witnesses.violations(self.stage, self.people)
        wrong += witnesses.the_store_is_the_fold(self.stage, self.hand.worker_id, self.people)
        return wrong

    def kills(self) -> list[Kill]:
        """Every kill so far."""
        return [self._recovery(at, ended) for at, ended in self.ends]

    # -- bringing it about -----------------------------------------------------------------------

    def _bring(self) -> None:
        match self.point.split():
            case ["tool", *place]:
                self.stage.ledger.tell_to_die(" ".join(place))
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
                self.hand.arm(self.at)
                self.begin()
                self.until("something streams", self.streams)
                self.hand.signal(signal.SIGTERM)
                self.until("the worker ends", lambda: self.ends)
                self._go_on()
            case [point] if point.startswith(AT_START):
                self._at_start(point)
            case [_]:
                self.hand.arm(self.at)
                self.begin()
                self._die()

    def begin(self) -> None:
        """Let everybody say their first message."""
        for person in self.people:
            person.begin()

    def _die(self) -> None:
        """Follow until the armed worker is dead, and let another take over."""
        known = len(self.ends)
        self.until(f"{self.at} is reached", lambda: len(self.ends) > known or self.all_rest())
        if len(self.ends) == known:
            raise NotReached(self.at)
        self._go_on()

    def _go_on(self, arm: str | None = None) -> None:
        self.hand.start(arm)
        if arm is None:
            self.await_taken(self._owner)

    def _from_outside(self, when: float) -> None:
        self.until("the moment has come", lambda: time.monotonic() >= when)
        self.ends.append((self.point, self.hand.kill()))
        self._go_on()

    def _at_gate(self) -> None:
        """Kill when the provider waits in the middle of its answer, then let it go on."""
        self.begin()
        session = self.people[-1].session_id
        gate = gate_of(session) if self.point.endswith("aside") else session
        journal = self.stage.server.journal
        self.until("the provider waits", lambda: journal.count("waiting", gate=gate))
        if self.point.endswith("middle"):
            watched = self.stage.watch(session)
            self.until("a chunk came", lambda: watched.counted(ev.GenChunk))
        self.ends.append((self.point, self.hand.kill()))
        self.stage.server.open(session)
        self._go_on()

    def _at_start(self, point: str) -> None:
        """Kill anyhow in the middle, then the next worker at the point of its start."""
        self.begin()
        self.until("something streams", self.streams)
        self.ends.append(("outside instant", self.hand.kill()))
        damage.so_that(point, self.stage, self.hand.worker_id)
        self._go_on(arm=self.at)
        self._die()

    def _kept_outcomes(self, point: str) -> None:
        """Leave an outcome in the outbox; the next worker dies as it writes it to the log."""
        at, self.at = self.at, "tools.kept:1" if self.times == "1" else "models.kept:1"
        self.hand.arm(self.at)
        self.begin()
        known = len(self.ends)
        self.until("an outcome is kept", lambda: len(self.ends) > known)
        self.at = at
        self._go_on(arm=f"{point}:1")
        self._die()

    # -- following -------------------------------------------------------------------------------

    def until(self, what: str, found: Callable[[], object]) -> None:
        """Follow the log, react as people do and notice deaths, until `found()`."""
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
        gone = self.hand.ended()
        if gone is None:
            return
        if gone.code == 1 and self.supervised:
            self.restarts += 1
            self.hand.start()
            return
        at = str(self.then) if self._revive else self.at
        self.ends.append((at.partition(":")[0], gone))
        if gone.code != -signal.SIGKILL:
            raise AssertionError(f"a worker ended with {gone.code}; see {self.hand.log}")
        if self._revive:
            self.hand.start()

    def await_taken(self, before: str) -> None:
        """Wait until a worker other than `before` holds all partitions for all roles."""
        self.until("the partitions are taken", lambda: self.stage.owner() not in ("", before))

    def streams(self) -> bool:
        """Whether anybody is being answered, or was."""
        return any(person.watched.counted(ev.GenChunk) for person in self.people)

    def all_rest(self) -> bool:
        """Whether nobody waits for anything and the running worker's store has all of it."""
        if not all(person.is_done() for person in self.people):
            return False
        if self.hand.active is None:
            return False
        return witnesses.stores_have_reached(self.stage, self.hand.worker_id)

    def _why(self) -> str:
        undone = [person.session_id for person in self.people if not person.is_done()]
        lives = self.hand.active is not None
        accounts = "\n".join(map(self.stage.account, undone))
        return f"alive: {lives}, not done: {undone}\n{accounts}"

    def _recovery(self, at: str, ended: Ended) -> Kill:
        died_ms = ended.at * 1000
        deaths = [other.at * 1000 for _, other in self.ends if other.at > ended.at]
        until = min(deaths, default=float("inf"))
        taken = [t for t in self.stage.taken_at.values() if died_ms <= t < until]
        if not taken:
            return Kill(at, None, None)
        wrote = [
            happened.entry.at
            for person in self.people
            for happened in person.watched.events
            if happened.entry.writer in WORKERS and min(taken) <= happened.entry.at < until
        ]
        resumed = min(wrote) - died_ms if wrote else None
        return Kill(at, min(taken) - died_ms, resumed)
