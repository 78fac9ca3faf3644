"""stream_cost, streams_per_worker: many answers that stream at the same time.

Real processes: a model server that only streams (stream_server.py), a broker, one supervised worker
with its spare, and for stream_cost a gateway with one viewer of each session. stream_cost counts
the CPU time of all of these but the model server while all answers stream. Its baseline is a
process that only iterates the SDK's streams (sdk_loop.py) of the same server, right before.
streams_per_worker searches for the most answers that stream at the same time, while new ones begin
and others end. It reads the log. It has one search: its spread is from the most streams that fit to
the fewest that do not.

All processes may use all cores: the model server, the broker and the bench itself take CPU time
from foldlog on a small machine. So both notes state the CPU time of each process, and how many
streams the cores of this machine could carry with all of them.
"""

import http.client
import json
import math
import os
import re
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from foldlog.bench.live import worker
from foldlog.bench.measure import Installation, Missing, Plot, Ratio, cpu_s, p99, spread_of
from foldlog.bench.viewers import gateway
from foldlog.cli.worker_info import worker_info
from foldlog.local.kafka import Broker
from foldlog.log.settings import SLOTS_MAX
from foldlog.producers.sessions import Sessions
from foldlog.schemas.codec import CHUNK
from foldlog.schemas.topics import SESSION_EVENTS

PER_SECOND = 50  # deltas of one stream
STREAMS = 100  # of stream_cost
COST_DELTAS = 3_000  # 60 s: they must all begin, and stream through the window
WINDOW_S = 3.0
LOAD_DELTAS = 500  # of one answer of streams_per_worker: 10 s
STEP_WINDOW_S = 6.0
STEPS_MAX = 5
GRID = 50  # streams_per_worker is a multiple of it
STREAMS_MIN = 300
FIRST_MS_MAX, LAG_MS_MAX = 500, 250
RATE_MIN = 0.95  # of the deltas that a step should have; with less, the model server was too slow
PATIENCE_S = 60.0
SENT = re.compile(rb"@(\d+) ")
SCRIPTS = Path(__file__).parent
OURS = ("worker", "supervisor and spare", "gateway", "broker")


class Server:
    """The model server's process."""

    def __init__(self, process: subprocess.Popen, port: int) -> None:
        self.pid, self._port = process.pid, port
        self.url = f"http://127.0.0.1:{port}"

    def report(self, method: str = "GET") -> dict:
        """The deltas sent so far, the streams that run, and the longest delay of a round."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        try:
            connection.request(method, "/")
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def finish(self) -> None:
        """End every stream, and wait until none runs."""
        self.report("DELETE")
        self.await_active(0)

    def await_active(self, streams: int) -> None:
        """Wait until exactly this number of streams runs."""
        _await(lambda: self.report()["active"] == streams, f"{streams} streams")


def _await(is_done: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_done():
        if time.monotonic() > until:
            raise Missing(f"no {what} within {PATIENCE_S:.0f} s: the machine is too busy")
        time.sleep(0.1)


@contextmanager
def stream_server(deltas: int) -> Iterator[Server]:
    """A model server whose answers have this number of deltas."""
    command = [sys.executable, SCRIPTS / "stream_server.py", str(deltas), str(PER_SECOND)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Server(process, int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def _foldlog(here: Installation, server: Server) -> Iterator[dict[str, list[int]]]:
    """The pids of foldlog's processes: the worker, its supervisor with a spare, the broker. They
    run until the block ends."""
    slots = {"FOLDLOG_MODEL_SLOTS": str(SLOTS_MAX)}
    with worker(here, server.url, **slots) as supervisor, _sessions(here) as sessions:
        _warm_up(here, sessions)
        of_worker = worker_info(here.settings.state_dir).pid
        assert of_worker is not None
        kept = [supervisor.pid, *(pid for pid in _children(supervisor.pid) if pid != of_worker)]
        assert len(kept) == 2, "the supervisor has one spare"
        yield {
            "worker": [of_worker], "supervisor and spare": kept, "broker": [_broker_pid(here)]
        }
        assert supervisor.poll() is None, (here.home / "worker.log").read_text()[-2000:]


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def _broker_pid(here: Installation) -> int:
    pid = Broker(dir=here.broker_dir, cache_dir=here.settings.cache_dir).status().pid
    assert pid is not None
    return pid


class Cpu:
    """The CPU time that processes use from now on."""

    def __init__(self, pids: dict[str, list[int]]) -> None:
        self._pids = pids
        self._before = self._total()

    def _total(self) -> dict[str, float]:
        return {name: sum(map(cpu_s, pids)) for name, pids in self._pids.items()}

    def seconds(self) -> dict[str, float]:
        """The CPU seconds so far, by process."""
        return {name: total - self._before[name] for name, total in self._total().items()}


def _arithmetic(us: dict[str, float]) -> str:
    """The CPU time per delta by process, and what it means for this machine."""
    cores = len(os.sched_getaffinity(0))
    parts = ", ".join(f"{name} {each:.0f}" for name, each in us.items())
    carried = cores * 1e6 / (PER_SECOND * sum(us.values()))
    return (
        f"us of CPU per delta: {parts}. All processes share {cores} cores, which at "
        f"{PER_SECOND} x {sum(us.values()):.0f} us a second and stream are all in use at "
        f"{carried:.0f} streams"
    )


class Cost(NamedTuple):
    """Microseconds of CPU time per delta, by process."""

    us: dict[str, float]
    lags_ms: list[float]

    @property
    def ours(self) -> float:
        """Of all processes but the model server and the viewers."""
        return sum(self.us[name] for name in OURS)


def stream_cost(here: Installation, runs: int) -> Ratio:
    """CPU time per delta from the provider's socket through the log to one viewer, over a bare loop
    that iterates the SDK's stream."""
    numbers = count()
    with stream_server(COST_DELTAS) as server, _foldlog(here, server) as ours:
        with gateway(here) as running, _sessions(here) as sessions:
            pids = ours | {
                "gateway": [running.process.pid], "model server": [server.pid],
                "viewers": [os.getpid()],
            }
            pairs = []
            for _ in range(runs):
                base = _sdk_cost(server)
                names = [f"streaming-{next(numbers)}" for _ in range(STREAMS)]
                with ExitStack() as stack:
                    viewers = []
                    for name in names:
                        sessions.open(name, agent="default")
                        _await(partial(running.knows, name), f"session {name}")
                        viewers.append(stack.enter_context(running.watch(name)))
                    for name in names:
                        sessions.say(name, "hello", channel="bench")
                    pairs.append((base, _viewed_cost(server, viewers, pids)))
                server.finish()
    bases = [base for base, _ in pairs]
    ratios = [mine.ours / base for base, mine in pairs]
    parts = {name: statistics.median(mine.us[name] for _, mine in pairs) for name in pids}
    lags_ms = [lag for _, mine in pairs for lag in mine.lags_ms]
    note = (
        f"{STREAMS} streams, {PER_SECOND} deltas a second each; sent to viewed p50 "
        f"{statistics.median(lags_ms):.0f} ms, p99 {p99(lags_ms):.0f} ms; counted are "
        f"{', '.join(OURS)}; {_arithmetic(parts)}"
    )
    mine_us, base = statistics.median(mine.ours for _, mine in pairs), statistics.median(bases)
    ratio, aim = statistics.median(ratios), "at most 1.5, aim 0.7"
    return Ratio(
        "stream_cost", mine_us, base, "us of CPU", ratio, runs, aim, note,
        spread=spread_of(ratios),
    )


@contextmanager
def _sessions(here: Installation) -> Iterator[Sessions]:
    sessions = Sessions(here.log, here.settings)
    try:
        yield sessions
    finally:
        sessions.close()


def _warm_up(here: Installation, sessions: Sessions) -> None:
    """Wait until the worker answers."""
    reader = here.log.reader(SESSION_EVENTS, here.log.end_offsets(SESSION_EVENTS))
    try:
        sessions.open("warm-up", agent="default")
        sessions.say("warm-up", "hello", channel="bench")
        ended = ("t", b"TURN_ENDED")
        _await(lambda: any(ended in r.headers for r in reader.poll(0.1)), "answer of the worker")
    finally:
        reader.close()


def _sdk_cost(server: Server) -> float:
    """Microseconds of CPU time per delta of a process that iterates the SDK's streams."""
    command = [sys.executable, SCRIPTS / "sdk_loop.py", server.url, str(STREAMS)]
    with subprocess.Popen(command) as process:
        try:
            server.await_active(STREAMS)
            before, deltas = cpu_s(process.pid), server.report()["deltas"]
            time.sleep(WINDOW_S)
            spent, report = cpu_s(process.pid) - before, server.report()
            assert report["active"] == STREAMS, report
            return spent / (report["deltas"] - deltas) * 1e6
        finally:
            process.kill()
            process.wait()
            server.await_active(0)


def _viewed_cost(
    server: Server, viewers: Sequence[socket.socket], pids: dict[str, list[int]]
) -> Cost:
    """The CPU time of the processes per delta that the viewers received in the window."""
    with selectors.DefaultSelector() as selector:
        waiting = set(viewers)
        for viewer in waiting:
            selector.register(viewer, selectors.EVENT_READ)
        until = time.monotonic() + PATIENCE_S
        while waiting:
            if time.monotonic() > until:
                raise Missing(f"{len(waiting)} of {STREAMS} answers did not begin")
            waiting -= {viewer for viewer, data in _received(selector) if SENT.search(data)}
        cpu, deltas, lags_ms, until = Cpu(pids), 0, [], time.monotonic() + WINDOW_S
        while time.monotonic() < until:
            for _, data in _received(selector):
                deltas += data.count(b"@")
                lags_ms += _lags_ms(data)
        spent, report = cpu.seconds(), server.report()
    assert report["active"] == STREAMS, f"an answer ended in the window: {report}"
    return Cost({name: seconds / deltas * 1e6 for name, seconds in spent.items()}, lags_ms)


def _received(selector: selectors.BaseSelector) -> Iterator[tuple[socket.socket, bytes]]:
    for key, _ in selector.select(0.1):
        assert isinstance(key.fileobj, socket.socket)
        data = key.fileobj.recv(1 << 20)
        assert data, "the gateway closed a viewer's connection"
        yield key.fileobj, data


def _lags_ms(data: bytes) -> list[float]:
    """How long ago the deltas in `data` were sent."""
    now = time.monotonic_ns() / 1e6
    return [now - int(sent) for sent in SENT.findall(data)]


class Step(NamedTuple):
    """What a number of streams led to. first_ms: p99 from a message to the first text of its answer
    in the log. lag_ms: p99 from sending the oldest delta of a chunk to reading the chunk. us: CPU
    time per delta by process. sent: the share of the deltas that the model server sent in time."""

    streams: int
    first_ms: float
    lag_ms: float
    us: dict[str, float]
    sent: float

    @property
    def fits(self) -> bool:
        """Whether the worker kept up, and the model server as well."""
        return self.first_ms < FIRST_MS_MAX and self.lag_ms < LAG_MS_MAX and self.sent >= RATE_MIN

    @property
    def cores(self) -> float:
        """The cores that the worker used."""
        return self.us["worker"] * PER_SECOND * self.streams * self.sent / 1e6

    def __str__(self) -> str:
        slow = "" if self.sent >= RATE_MIN else f", only {self.sent:.0%} of the deltas sent"
        return (
            f"{self.streams}: first {self.first_ms:.0f} ms, lag {self.lag_ms:.0f} ms, worker "
            f"{self.cores:.0%} of a core{slow}"
        )


def next_streams(steps: Sequence[Step]) -> int | None:
    """The number of streams to try after these steps: twice as many while they fit, then the middle
    between what fits and what does not. None at the end of the search."""
    fits = max((step.streams for step in steps if step.fits), default=0)
    too_many = min((step.streams for step in steps if not step.fits), default=None)
    if len(steps) >= STEPS_MAX or (too_many is not None and too_many - fits <= GRID):
        return None
    if too_many is None:
        return 2 * fits or STREAMS_MIN
    return (fits + too_many) // 2 // GRID * GRID


def streams_per_worker(here: Installation, runs: int) -> Ratio:
    """The most streams of one worker with which chunks are in the log in time."""
    steps: list[Step] = []
    with stream_server(LOAD_DELTAS) as server, _foldlog(here, server) as ours:
        pids = ours | {
            "model server": [server.pid],
            "the bench, which sends the messages and reads the log": [os.getpid()],
        }
        with _sessions(here) as sessions, _Load(here, sessions) as load:
            while (streams := next_streams(steps)) is not None:
                steps.append(load.step(streams, server, pids))
    steps.sort()
    best = max((step for step in steps if step.fits), default=steps[0])
    found = best.streams if best.fits else 0
    too_many = min((step.streams for step in steps if not step.fits), default=found)
    aim = f"at least 1 ({STREAMS_MIN} streams), aim 2"
    note = (
        f"p99 of {STEP_WINDOW_S:.0f} s each; {'; '.join(map(str, steps))}; with {best.streams} "
        f"streams {_arithmetic(best.us)}"
    )
    cores = [(float(step.streams), step.cores) for step in steps]
    return Ratio(
        "streams_per_worker", found, STREAMS_MIN, "streams", found / STREAMS_MIN, 1, aim, note,
        Plot("streams", "cores used by the worker", {"worker": cores}),
        spread_of((found / STREAMS_MIN, too_many / STREAMS_MIN)),
    )


class _Load:
    """Messages to new sessions at a steady rate, and what the log then shows."""

    def __init__(self, here: Installation, sessions: Sessions) -> None:
        self._sessions = sessions
        self._reader = here.log.reader(SESSION_EVENTS, here.log.end_offsets(SESSION_EVENTS))
        self._streams = 0
        self._said: dict[str, float] = {}
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._say)

    def __enter__(self) -> "_Load":
        return self

    def __exit__(self, *_error: object) -> None:
        self._halt.set()
        if self._thread.is_alive():
            self._thread.join()
        self._reader.close()

    def _say(self) -> None:
        due = time.monotonic()
        for number in count():
            due += LOAD_DELTAS / PER_SECOND / self._streams
            if self._halt.wait(max(0.0, due - time.monotonic())):
                return
            name = f"load-{number}"
            self._sessions.open(name, agent="default")
            self._said[name] = time.monotonic()
            self._sessions.say(name, "hello", channel="bench")

    def step(self, streams: int, server: Server, pids: dict[str, list[int]]) -> Step:
        """Change the rate of messages, wait until the answers of the old rate have ended, measure.
        """
        self._streams = streams
        if not self._thread.is_alive():
            self._thread.start()
        self._read(LOAD_DELTAS / PER_SECOND)
        cpu, before, began = Cpu(pids), server.report()["deltas"], time.monotonic()
        first_ms, lags_ms = self._read(STEP_WINDOW_S)
        ended = time.monotonic()
        deltas, spent = server.report()["deltas"] - before, cpu.seconds()
        us = {name: seconds / deltas * 1e6 for name, seconds in spent.items()}
        sent = deltas / (ended - began) / PER_SECOND / streams
        said = {n: at for n, at in self._said.items() if began < at < ended - FIRST_MS_MAX / 1000}
        firsts = [first_ms.get(name, math.inf) for name in said]
        return Step(streams, p99(firsts), p99(lags_ms), us, sent)

    def _read(self, seconds: float) -> tuple[dict[str, float], list[float]]:
        """Read the log for a while. Returns ms to the first chunk by session, and chunks' lags."""
        first_ms: dict[str, float] = {}
        lags_ms: list[float] = []
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for record in self._reader.poll(min(left, 0.1)):
                if not record.headers or record.headers[0] != CHUNK:
                    continue
                name = (record.key or b"").decode()
                if name in self._said and name not in first_ms:
                    first_ms[name] = (time.monotonic() - self._said[name]) * 1000
                lags_ms += _lags_ms(record.value or b"")[:1]
        return first_ms, lags_ms
