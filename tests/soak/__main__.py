"""`make soak` kills workers with SIGKILL at random crash points, over and over, on a real broker.

python -m foldlog.tests.soak --kills 200 [--seed S] [--only ROUND] [--brokers 3] [--outages N]

The soak plays the rounds of the crash tests (tests/crash/rounds.py). It draws points, numbers,
people and second kills from the seed. Every witness checks every round, and each installation is
folded again from offset 0. In some rounds, a worker is stopped instead of killed and resumes as a
zombie, or the broker is killed and the worker must continue. The soak prints for each point: kills,
recoveries, median recovery, violations. It counts stopped workers separately, because a stop is not
a kill. The exit code is 1 after a violation. A round depends only on the seed and its own number:
`--only` repeats one round.

With `--brokers 3`, the log is replicated, and in each round one of three brokers is killed, paused,
emptied or restarted instead of a worker (tests/crash/broker_faults.py); `--kills` counts these
rounds.

With `--outages N`, the broker is killed and paused in turn, N times in all and for 1 to 12 s, under
a supervised worker that streams three answers and a gateway with viewers (tests/crash/outages.py).
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

from foldlog.local.kafka import Broker, temporary_broker, temporary_cluster
from foldlog.log import Settings
from foldlog.tests.crash import outages
from foldlog.tests.crash.broker_faults import FAULTS, ThreeBrokers
from foldlog.tests.crash.fleet import WorkerHandle
from foldlog.tests.crash.rig import replay_differs, stage_on
from foldlog.tests.crash.rounds import ALL_POINTS, KEEPERS, Kill, NotReached, Play
from foldlog.tests.crash.scenes import SCENES
from foldlog.tests.crash.stage import PARTITIONS, Stage
from foldlog.tests.crash.zombies import STOPS, stopped_behind

STAGE_ROUNDS = 20  # then the log is verified from offset 0, and a new installation begins
ZOMBIE_ROUNDS = 25  # every so many rounds a worker is stopped instead of killed
BROKER_ROUNDS = 10  # every so many rounds the broker is killed
BROKER = "the broker"
WRONG_MAX = 5  # rounds with violations, after which the run ends
SECOND_KILL = 0.3  # share of the rounds in which the worker that took over is killed as well
INSTANT_S_MAX = 2.0  # about the duration of a conversation
OUTAGE_S_MIN, OUTAGE_S_MAX = 1.0, 12.0
TIMES_MAX = 6  # a kill strikes when a point is passed for the first to sixth time
# Points that are passed once in a process, or once for each partition or role.
ONCE = ("start.locked", "start.emitted")
PER_PARTITION = (
    *("partition.opened", "partition.revoked", "store.removed", "refold.begun"),
    *("snapshot.checkpoint", "snapshot.files", "snapshot.stored"),
)
# Scenes that need an action from outside.
OUTSIDE = ("outlast", "begun", "middle", "slow", "held", "wire", "left", "full")
PEOPLE = [name for name in SCENES if name not in OUTSIDE]
SECOND = (
    *("poll.records", "fold.done", "store.written", "models.chunk", "models.kept", "tools.sent"),
    *("background.begin", "background.kept", "background.made"),
)


class Plan(NamedTuple):
    """What happens in one round."""

    at: str
    then: str | None
    cast: tuple[str, ...]
    instant_s: float


def plan_of(seed: int, number: int) -> Plan:
    """The plan of a round, which depends only on the seed and the round's number."""
    turn, place = divmod(number, len(ALL_POINTS))
    deck = list(ALL_POINTS)  # each point once before any comes again
    random.Random(f"{seed}/deck {turn}").shuffle(deck)
    point = deck[place]
    draw = random.Random(f"{seed}/{number}")
    most = TIMES_MAX
    if point in ONCE or point.startswith(("tool ", "outside", "refold.written")):
        most = 1
    elif point in PER_PARTITION:
        most = PARTITIONS
    elif point == "start.outbox":
        most = 2
    at = f"{point}:{draw.randint(1, most)}"
    second = draw.random() < SECOND_KILL
    then = f"{draw.choice(SECOND)}:{draw.randint(1, TIMES_MAX)}" if second else None
    cast = draw.sample(PEOPLE, draw.randint(3, 6))
    if "tools" not in cast:
        cast.append("tools")  # this scene passes every point except those of background work
    if point.startswith("background."):
        cast += [draw.choice(KEEPERS), "shorts"]
    if point.startswith("tool pay"):
        cast.append("approve")
    return Plan(at, then, tuple(cast), draw.uniform(0, INSTANT_S_MAX))


class Tally:
    """The counts of the rounds so far."""

    def __init__(self) -> None:
        self.kills: defaultdict[str, list[Kill]] = defaultdict(list)
        self.wrong: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.stopped: Counter[str] = Counter()
        self.restarts = 0

    @property
    def count(self) -> int:
        """The number of kills so far."""
        return sum(map(len, self.kills.values()))

    def table(self) -> str:
        """A table with a line for each point, and a line for the sum."""
        lines = [_LINE.format("point", "kills", "back", "taken ms", "resumed ms", "violations")]
        for name in (*ALL_POINTS, BROKER):
            lines.append(self._line(name, self.kills[name], self.wrong[name]))
        everything = [kill for kills in self.kills.values() for kill in kills]
        lines.append(self._line("all", everything, self.wrong.total()))
        missed = ", ".join(f"{name} {n}" for name, n in self.missed.items()) or "none"
        lines.append(f"armed, but not reached before everything was at rest: {missed}")
        lines.append(f"workers restarted after the broker was killed: {self.restarts}")
        lines += [
            f"{_stop(at)}: {self.stopped[at]} made zombies, {self.wrong[_stop(at)]} violations"
            for at in STOPS
        ]
        return "\n".join(lines)

    def _line(self, name: str, kills: list[Kill], wrong: int) -> str:
        taken = [kill.taken_ms for kill in kills if kill.taken_ms is not None]
        resumed = [kill.resumed_ms for kill in kills if kill.resumed_ms is not None]
        middle = [f"{median(times):.0f}" if times else "-" for times in (taken, resumed)]
        return _LINE.format(name, len(kills), len(taken), *middle, wrong)


def _stop(point: str) -> str:
    return f"stop {point}"


_LINE = "{:22}{:>7}{:>7}{:>10}{:>12}{:>12}"


class Soak:
    """Plays rounds, see the module docstring."""

    def __init__(self, broker: Broker, directory: Path, seed: int) -> None:
        self.broker, self.directory, self.seed = broker, directory, seed
        self.tally = Tally()
        self._stages = 0
        self._stack = ExitStack()
        self._stage: Stage | None = None
        self._handle: WorkerHandle | None = None
        self._played = 0

    def round(self, number: int) -> None:
        """Play one round, and count its kills and violations."""
        if number % ZOMBIE_ROUNDS == ZOMBIE_ROUNDS - 1:
            self._zombie(number)
            return
        plan = plan_of(self.seed, number)
        stage, handle = self._at_hand()
        broker = number % BROKER_ROUNDS == BROKER_ROUNDS - 1
        at = "" if broker else plan.at  # a second fault could leave a session at a gate
        play = Play(stage, handle, at, plan.cast, then=plan.then, instant_s=plan.instant_s)
        began = time.monotonic()
        wrong: list[str] = []
        try:
            if broker:
                play.point = BROKER
                wrong = self._without_broker(play)
            else:
                wrong = play.run().wrong
        except NotReached:
            self.tally.missed[play.point] += 1
        except (AssertionError, TimeoutError) as error:
            wrong = [f"{type(error).__name__}: {error}"]
        for kill in play.kills():
            self.tally.kills[kill.at].append(kill)
        self._played += 1
        if not wrong and self._played == STAGE_ROUNDS:
            wrong = self._refolded(stage, handle)
        name = BROKER if broker else " then ".join(filter(None, (plan.at, plan.then)))
        took = time.monotonic() - began
        print(f"{number:4} {name}: {took:.1f} s, {self.tally.count} kills", flush=True)
        if wrong:
            self._report(number, play.point, stage, wrong)
        if wrong or self._played == STAGE_ROUNDS:
            self.close()

    def _without_broker(self, play: Play) -> list[str]:
        """Kill the broker in the middle of conversations. The worker must continue by itself.

        The worker may also exit, because its client may fence itself. It is then restarted, as by a
        supervisor.
        """
        play.settle()
        play.supervised = True
        play.begin()
        instant = time.monotonic() + play.instant_s
        play.until("the instant of the kill", lambda: time.monotonic() >= instant)
        self.broker.kill()
        self.tally.kills[BROKER].append(Kill(BROKER, None, None))
        self.broker.up()
        wrong = play.rest()
        self.tally.restarts += play.restarts
        return wrong

    def _zombie(self, number: int) -> None:
        """Stop a worker after one of its own records, in a separate installation."""
        draw = random.Random(f"{self.seed}/{number}")
        point = draw.choice(STOPS)
        with ExitStack() as stack:
            stage = stack.enter_context(
                stage_on(self.broker.bootstrap_servers, self._new_directory())
            )
            try:
                # The cast makes only one such claim, so a second record of the role may never come.
                nth = 1 if point in ("tools.wrote", "background.wrote") else draw.randint(1, 2)
                wrong = stopped_behind(stage, f"{point}:{nth}")
            except (AssertionError, TimeoutError) as error:
                wrong = [f"{type(error).__name__}: {error}"]
            print(f"{number:4} {_stop(point)}", flush=True)
            self.tally.stopped[point] += 1
            if wrong:
                self._report(number, _stop(point), stage, wrong)

    def _new_directory(self) -> Path:
        self._stages += 1
        made = self.directory / f"stage{self._stages}"
        made.mkdir()
        return made

    def _at_hand(self) -> tuple[Stage, WorkerHandle]:
        if self._stage is None or self._handle is None:
            self._played = 0
            directory = self._new_directory()
            self._stage = self._stack.enter_context(
                stage_on(self.broker.bootstrap_servers, directory)
            )
            self._handle = self._stage.handle()
        return self._stage, self._handle

    def _refolded(self, stage: Stage, handle: WorkerHandle) -> list[str]:
        stuck = [f"stuck: {name}: {why}" for name, why in handle.stuck().items()]
        return [f"refold: {why}" for why in replay_differs(stage)] + stuck

    def _report(self, number: int, name: str, stage: Stage, wrong: list[str]) -> None:
        self.tally.wrong[name] += 1
        print(f"VIOLATION in round {number} ({name}), in {stage.directory}")
        print(*wrong[:20], sep="\n")
        print(f"to repeat: python -m foldlog.tests.soak --seed {self.seed} --only {number}")

    def close(self) -> None:
        """End the workers of the installation."""
        self._stage = self._handle = None
        self._stack.close()


def _three_brokers(
    cache: Path, directory: Path, seed: int, rounds: int, only: int | None
) -> int:
    """Play rounds with a fault of one of three brokers. Returns the exit code."""
    counts: Counter[str] = Counter()
    wrong_rounds = 0
    three: ThreeBrokers | None = None
    with temporary_cluster(cache) as cluster, ExitStack() as stack:
        for number in range(rounds) if only is None else [only]:
            if three is None:
                made = directory / f"stage{number}"
                made.mkdir()
                three = ThreeBrokers(cluster, made)
                stack.callback(three.close)
            draw = random.Random(f"{seed}/{number}")
            fault = draw.choice(list(FAULTS))
            cast = tuple(draw.sample(PEOPLE, draw.randint(2, 5)))
            began = time.monotonic()
            try:
                wrong = three.round(fault, cast)
            except (AssertionError, TimeoutError) as error:
                wrong = [f"{type(error).__name__}: {error}"]
            counts[fault] += 1
            took, acked = time.monotonic() - began, sum(three.numbers.counts())
            print(f"{number:4} {fault}: {took:.1f} s, {acked} numbers acknowledged", flush=True)
            if wrong:
                wrong_rounds += 1
                cluster.up()  # the fault may have left a broker down
                print(f"VIOLATION in round {number} ({fault}), in {three.stage.directory}")
                print(*wrong[:20], sep="\n")
                print("to repeat: python -m foldlog.tests.soak --brokers 3 "
                      f"--seed {seed} --only {number}")
            if wrong or number % STAGE_ROUNDS == STAGE_ROUNDS - 1:
                stack.pop_all().close()
                three = None
            if wrong_rounds >= WRONG_MAX:
                break
    print(", ".join(f"{fault} {count}" for fault, count in counts.items()))
    print(f"{wrong_rounds} violations in {counts.total()} rounds; seed {seed}")
    return 1 if wrong_rounds else 0


def _outages(cache: Path, directory: Path, seed: int, rounds: int, only: int | None) -> int:
    """Play outages of the broker. Returns the exit code."""
    wrong_rounds = ended = aborts = played = 0
    here: outages.Outages | None = None
    with temporary_broker(cache) as broker, ExitStack() as stack:
        for number in range(rounds) if only is None else [only]:
            if here is None:
                made = directory / f"stage{number}"
                made.mkdir()
                here = outages.Outages(broker, made)
                stack.callback(here.close)
            fault = list(outages.FAULTS)[number % len(outages.FAULTS)]
            length_s = random.Random(f"{seed}/{number}").uniform(OUTAGE_S_MIN, OUTAGE_S_MAX)
            began = time.monotonic()
            last = number % STAGE_ROUNDS == STAGE_ROUNDS - 1
            try:
                wrong = here.round(fault, length_s) + (here.at_rest() if last else [])
            except (AssertionError, TimeoutError) as error:
                wrong = [f"{type(error).__name__}: {error}"]
            played += 1
            took = time.monotonic() - began
            print(f"{number:4} {fault} for {length_s:.1f} s: {took:.1f} s", flush=True)
            if wrong:
                wrong_rounds += 1
                broker.up()  # the fault may have left it down
                print(f"VIOLATION in round {number} ({fault}), in {here.stage.directory}")
                print(*wrong[:20], sep="\n")
                print("to repeat: python -m foldlog.tests.soak --outages 1 "
                      f"--seed {seed} --only {number}")
            if wrong or last or number == rounds - 1:
                ended, aborts = ended + here.ended, aborts + here.aborts
                stack.pop_all().close()
                here = None
            if wrong_rounds >= WRONG_MAX:
                break
    print(f"workers that ended: {ended}; admin clients that died: {aborts}")
    print(f"{wrong_rounds} violations in {played} outages; seed {seed}")
    return 1 if wrong_rounds else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="foldlog.tests.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many (default %(default)s)")
    parser.add_argument("--seed", type=int, help="of the plans (default: drawn, and printed)")
    parser.add_argument("--only", type=int, metavar="ROUND", help="play this round alone")
    parser.add_argument("--outages", type=int, metavar="N", help="see above")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="see above")
    options = parser.parse_args()
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    directory = Path(tempfile.mkdtemp(prefix="foldlog-soak-"))
    print(f"seed {seed}, {options.kills} kills; logs of the workers: {directory}")
    cache = Settings.load({}, None, {}).cache_dir
    if options.outages is not None:
        return _outages(cache, directory, seed, options.outages, options.only)
    if options.brokers == 3:
        return _three_brokers(cache, directory, seed, options.kills, options.only)
    with temporary_broker(cache) as broker:
        soak = Soak(broker, directory, seed)
        number = 0 if options.only is None else options.only
        try:
            while True:
                soak.round(number)
                number += 1
                enough = soak.tally.count >= options.kills or soak.tally.wrong.total() >= WRONG_MAX
                if enough or options.only is not None:
                    break
        finally:
            soak.close()
    print(soak.tally.table())
    print(f"{soak.tally.wrong.total()} violations in {number} rounds; seed {seed}")
    return 1 if soak.tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
