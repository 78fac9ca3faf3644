"""Outages of one broker under a supervised worker that streams answers and a gateway with viewers.

In an outage the broker is killed with SIGKILL and started again, or paused, for some seconds.
No process may end, and each answer must be whole: in the log, in the stores and for every viewer.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from foldlog.local.kafka import Broker
from foldlog.schemas import events as ev
from foldlog.tests.crash import witnesses
from foldlog.tests.crash.rig import replay_differs, stage_on, supervised
from foldlog.tests.crash.scenes import SCENES, Person
from foldlog.tests.crash.stage import Stage
from foldlog.tests.kit import stopped_process
from foldlog.tests.kit.programs import end, line_of
from foldlog.tests.kit.waiting import joined
from foldlog.tests.web.gateway.screen import Screen

STREAMS, VIEWERS = 3, 2  # answers in an outage; viewers of each
BEGUN = 2  # chunks of each answer before the outage
ABORTED = "its client ended by signal"  # what a worker logs when its admin client died


def killed(broker: Broker, wait: Callable[[], None]) -> None:
    """The broker is killed, and starts again after a wait."""
    broker.kill()
    wait()
    broker.up()


def paused(broker: Broker, wait: Callable[[], None]) -> None:
    """The broker is paused: connections stay open, and nobody answers."""
    pid = broker.pid
    assert pid is not None
    stopped_process.stop(pid)
    try:
        wait()
    finally:
        os.kill(pid, signal.SIGCONT)


FAULTS: Mapping[str, Callable[[Broker, Callable[[], None]], None]] = {
    "killed": killed, "paused": paused,
}


class Viewers:
    """Viewers of some sessions, on a thread of their own until every answer has ended."""

    def __init__(self, url: str, sessions: list[str]) -> None:
        self.screens = [Screen(session) for session in sessions for _ in range(VIEWERS)]
        self._failed: list[Exception] = []
        self._thread = threading.Thread(target=self._run, args=(url,), daemon=True)
        self._thread.start()

    def _run(self, url: str) -> None:
        async def watch() -> None:
            await asyncio.gather(*(screen.watch(url) for screen in self.screens))

        try:
            asyncio.run(watch())
        except Exception as error:
            self._failed.append(error)

    def have_begun(self) -> bool:
        """Whether every viewer sees text."""
        return bool(self._failed) or all(
            screen.streams or screen.lines[1:] for screen in self.screens
        )

    def wrong(self, answers: Mapping[str, str]) -> Iterator[str]:
        """Wait until the viewers have left. Yields what they saw instead of the answers."""
        joined(self._thread)
        yield from (f"a viewer failed: {error!r}" for error in self._failed)
        for screen in self.screens:
            seen = [text for _, text in screen.lines if text not in ("message", "ended")]
            if seen != [answers[screen.session]]:
                yield f"a viewer of {screen.session} saw {seen}, not {answers[screen.session]!r}"
            if screen.cuts:
                yield f"the gateway cut a viewer of {screen.session} {screen.cuts} times"


class Outages:
    """One installation on a broker. `close` ends its worker and its gateway."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self._stack = ExitStack()
        self.stage = self._stack.enter_context(stage_on(broker.bootstrap_servers, directory))
        self.handle = self.stage.handle()
        self._supervisor = self._stack.enter_context(supervised(self.handle))
        self._gateway = self._stack.enter_context(gateway(self.stage))
        line = line_of(self._gateway.stdout, "the address of the gateway")
        self._url = line.split()[-1].rstrip("/")
        self.stage.follow_until("the partitions are taken", self.stage.owner)
        self.ended = 0
        """How many workers ended."""

    @property
    def aborts(self) -> int:
        """How often the worker's admin client died."""
        return self.handle.log.read_text("utf-8", "replace").count(ABORTED)

    def round(self, fault: str, length_s: float) -> list[str]:
        """Play one outage in the middle of answers. Returns the violations."""
        number = len(self.stage.watched)
        people = [
            Person(self.stage, f"s{number + n}-outlast", SCENES["outlast"]) for n in range(STREAMS)
        ]
        processes = sorted(self.handle.processes())
        for person in people:
            person.begin()
        viewers = Viewers(self._url, [person.session_id for person in people])
        self._follow("all answers stream", lambda: all(map(_streams, people)))
        self._follow("all viewers see text", viewers.have_begun)
        FAULTS[fault](self.broker, lambda: self._wait(length_s))
        self._follow("everybody has an answer", lambda: all(p.is_done() for p in people))
        wrong = witnesses.violations(self.stage, people, witnesses.WITHOUT_CHANNELS)
        answers = {p.session_id: "".join(p.watched.settled.values()) for p in people}
        wrong += viewers.wrong(answers)
        if self._supervisor.poll() is not None:
            wrong.append(f"the supervisor ended with {self._supervisor.returncode}")
        if self._gateway.poll() is not None:
            wrong.append(f"the gateway ended with {self._gateway.returncode}")
        if sorted(self.handle.processes()) != processes:
            self.ended += 1
            wrong.append(f"a worker ended: {self.last_words()}")
        return wrong

    def last_words(self) -> str:
        """The last lines of the worker's log that are not of the level INFO."""
        lines = self.handle.log.read_text("utf-8", "replace").splitlines()
        ends = [line for line in lines if "is ending" in line or "LogFatal" in line]
        return "\n".join(ends[-3:] or lines[-10:])

    def at_rest(self) -> list[str]:
        """The differences between the worker's stores and a new fold of the log."""
        reached = lambda: witnesses.stores_have_reached(self.stage, "w1")  # noqa: E731
        self._follow("the stores are complete", reached)
        return replay_differs(self.stage)

    def _follow(self, what: str, found: Callable[[], bool]) -> None:
        self.stage.follow_until(what, found)

    def _wait(self, length_s: float) -> None:
        end = time.monotonic() + length_s
        self._follow("the outage is over", lambda: time.monotonic() >= end)

    def close(self) -> None:
        """End the worker and the gateway."""
        self._stack.close()


def _streams(person: Person) -> bool:
    return len(person.watched.counted(ev.GenChunk)) >= BEGUN


@contextmanager
def gateway(stage: Stage) -> "Iterator[subprocess.Popen[str]]":
    """The gateway of a stage, on a free port."""
    env = {
        **os.environ,
        "FOLDLOG_HOME": str(stage.directory),
        "FOLDLOG_TOPIC_PREFIX": stage.prefix,
        "FOLDLOG_PARTITIONS": str(stage.settings.partitions),
        "FOLDLOG_USER": stage.settings.user,
        "KAFKA_BOOTSTRAP_SERVERS": str(stage.settings.bootstrap_servers),
    }
    command = [sys.executable, "-m", "foldlog.cli", "gateway", "--port", "0"]
    with open(stage.directory / "gateway.log", "wb") as errors:
        running = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        yield running
    finally:
        end(running)
        assert running.stdout is not None
        running.stdout.close()
