"""fold and replay: the CPU time that real processes need to fold a log, divided by the CPU time of
a reader that is built from stock parts only.

fold: a `foldlog worker` process with an empty store reads a log from its first offset until it is
ready: it decodes, folds, writes its store and looks up what is pending. replay: `foldlog replay`
folds the same log in one process and prints the hash of every view. The baseline, stock_reader.py,
consumes and decodes every record into a dict.

The measured figure is the CPU time of the whole process with all threads. The CPU time of its start
is subtracted; that is the time that the same process takes on an empty log. The baseline counts
from its first batch. The wall times, likewise without the start, are in the note.
"""

import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NamedTuple

from foldlog.bench.history import Session
from foldlog.bench.measure import Installation, Ratio, cpu_s, spread_of
from foldlog.cli.worker_info import is_ready, worker_info
from foldlog.log import partition_for
from foldlog.schemas.codec import encode, headers_for, shapes
from foldlog.schemas.topics import SESSION_EVENTS

SESSIONS, TURNS = 200, 12  # about 100,000 events
STARTS = 3  # processes that are started on the empty log
PATIENCE_S = 300.0
POLL_S = 0.05
STOCK = Path(__file__).with_name("stock_reader.py")


class Spent(NamedTuple):
    """The seconds that a process took to read the log."""

    cpu_s: float
    wall_s: float

    def without(self, start: "Spent") -> "Spent":
        """The time without the start of the process, at least a hundredth of a second. `start`: the
        time that the process takes on an empty log."""
        return Spent(max(0.01, self.cpu_s - start.cpu_s), max(0.01, self.wall_s - start.wall_s))


def write_log(
    here: Installation, sessions: int, turns: int, name: str = "bench"
) -> int:
    """Produce sessions whose turns are interleaved. Returns the number of records.

    The log may have records, for example of the workers that were started on the empty log, but
    nobody else may write meanwhile: a decision names the offset of its basis, and the fold ignores
    a decision with a wrong one.
    """
    producer, partitions = here.log.producer(), here.settings.partitions
    offsets = {p: count(end) for p, end in here.log.end_offsets(SESSION_EVENTS).items()}
    names = [f"{name}-{n}" for n in range(sessions)]
    grown = [Session(name, offsets[partition_for(name, partitions)]) for name in names]
    records = 0
    for turn in range(turns + 1):
        for session in grown:
            name = session.views.session_id
            for writer, event in session.turn() if turn else session.opened():
                producer.append(SESSION_EVENTS, name, encode(event), headers_for(event, writer))
                records += 1
        producer.flush(30)
    producer.close()
    return records


def fold(here: Installation, runs: int) -> Ratio:
    """CPU time of a worker that folds the whole log, divided by that of the stock reader."""
    return _measured("fold", fold_once, here, runs, "at least 0.45, aim 0.7")


def replay(here: Installation, runs: int) -> Ratio:
    """CPU time of `foldlog replay`, divided by that of the stock reader."""
    return _measured("replay", _replay, here, runs, "at least 0.6, aim 1")


def _measured(
    name: str, ours: Callable[[Installation], Spent], here: Installation, runs: int, aim: str
) -> Ratio:
    starts = [ours(here) for _ in range(STARTS)]
    start = Spent(*map(statistics.median, zip(*starts, strict=True)))
    events = write_log(here, SESSIONS, TURNS)
    pairs = [(_stock(here), ours(here).without(start)) for _ in range(runs)]
    cpu = [base.cpu_s / mine.cpu_s for base, mine in pairs]
    wall = [base.wall_s / mine.wall_s for base, mine in pairs]
    base = statistics.median(events / one.cpu_s for one, _ in pairs)
    mine = statistics.median(events / one.cpu_s for _, one in pairs)
    note = (
        f"{events:,} events; of wall time {statistics.median(wall):.3f} ({min(wall):.3f} to "
        f"{max(wall):.3f}); start {start.cpu_s:.2f} s of CPU, not counted"
    )
    ratio, spread = statistics.median(cpu), spread_of(cpu)
    return Ratio(name, mine, base, "events/CPU s", ratio, runs, aim, note, spread=spread)


def _stock(here: Installation) -> Spent:
    schemas = here.home / "schemas.json"
    schemas.write_text(json.dumps({head[2:].hex(): schema for head, schema in shapes().items()}))
    ends = here.log.end_offsets(SESSION_EVENTS)
    topic = here.settings.topic(SESSION_EVENTS)
    command = [sys.executable, STOCK, here.settings.bootstrap_servers, topic, schemas]
    places = [str(ends[partition]) for partition in sorted(ends)]
    ran = subprocess.run([*map(str, command), *places], capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    assert found["records"] == sum(ends.values()), found
    return Spent(found["cpu_s"], found["wall_s"])


def _replay(here: Installation) -> Spent:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "foldlog.cli", "replay", "--jobs", "1", "--json"]
    ran = subprocess.run(command, env=here.env(), cwd=here.home, check=True, capture_output=True)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    for row in map(json.loads, ran.stdout.splitlines()):
        assert set(row["rulings"]) == {"accepted"}, f"ignored events measure nothing: {row}"
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(cpu_s, ended - began)


def fold_once(here: Installation) -> Spent:
    """The time from the start of a worker without a store until the worker is ready."""
    shutil.rmtree(here.settings.state_dir / "store", ignore_errors=True)
    # Of the run before. With them, the worker would fold next to nothing.
    shutil.rmtree(here.settings.blobs_dir / "snapshots", ignore_errors=True)
    (here.settings.state_dir / "worker.json").unlink(missing_ok=True)
    began = time.perf_counter()
    command = [sys.executable, "-m", "foldlog.cli", "worker"]
    given = here.env() | {"ANTHROPIC_API_KEY": "bench", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    with open(here.home / "worker.log", "ab") as log:
        process = subprocess.Popen(command, env=given, cwd=here.home, stdout=log, stderr=log)
    try:
        while not is_ready(here.settings.state_dir):
            assert process.poll() is None, (here.home / "worker.log").read_text()[-2000:]
            assert time.perf_counter() - began < PATIENCE_S, "the worker did not become ready"
            time.sleep(POLL_S)
        spent = Spent(cpu_s(process.pid), time.perf_counter() - began)
        status = worker_info(here.settings.state_dir).status
        assert status is not None, "the worker does not answer"
        assert not status["rulings"], f"ignored events measure nothing: {status['rulings']}"
        return spent
    finally:
        process.terminate()
        process.wait()
