"""takeover: seconds until a worker on an empty disk makes its first decision, by length of the log.

A log is folded once, so that snapshots exist. Then, again and again: the state directory is
deleted, a message is sent, a `foldlog worker` process is started, and the time from its start to
the LLM_CALLED of that message is taken. Before each start the consumer group has no members, as if
the machine of the last worker had died long ago. The events are in one partition, nine tenths of
them chunks.
"""

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import NamedTuple

from foldlog.bench.history import Session
from foldlog.bench.measure import PARTITIONS, Installation, Plot, Ratio, cpu_s, spread_of
from foldlog.log import open_log, partition_for
from foldlog.processors.worker.same_agents import GROUP
from foldlog.producers.sessions import Sessions
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode, entry_of, headers_for
from foldlog.schemas.topics import SESSION_EVENTS, topics

SHORT, LONG = 10_000, 1_000_000  # events
TURNS = 20  # of a session
CHUNK_CHARS = 4  # of a slow provider: each token is a chunk
SNAPSHOT_RECORDS = 5_000  # so that the short log has a snapshot, too
PATIENCE_S = 600.0
POLL_S = 0.05
FLUSH_EVERY = 20_000  # records


def takeover(here: Installation, runs: int) -> Ratio:
    """Seconds to the first decision on a long log, divided by the seconds on a short log."""
    logs = [_Log(here, f"{events}-", events) for events in (SHORT, LONG)]
    try:
        short_refold, refold = (log.first_decision(snapshots=False) for log in logs)
        for log in logs:
            log.make_snapshot()
        pairs = [(logs[0].first_decision(), logs[1].first_decision()) for _ in range(runs)]
    finally:
        for log in logs:
            log.close()
    base = statistics.median(other.wall_s for other, _ in pairs)
    ours = statistics.median(mine.wall_s for _, mine in pairs)
    ratios = [mine.wall_s / other.wall_s for other, mine in pairs]
    cpu_s = statistics.median(mine.cpu_s for _, mine in pairs)
    cpu_ratio = statistics.median(mine.cpu_s / other.cpu_s for other, mine in pairs)
    note = (
        f"{logs[1].events:,} events after {logs[0].events:,}; "
        f"{min(mine.wall_s for _, mine in pairs):.2f} s at best; CPU time {cpu_s:.2f} s, ratio "
        f"{cpu_ratio:.2f}; without snapshots {refold.wall_s:.1f} s, {refold.cpu_s:.1f} s of CPU "
        "time"
    )
    aim = "at most 1.5, ours at most 3 s, aim 1 s"
    few, many = (float(log.events) for log in logs)
    lines = {
        "with snapshots": [(few, base), (many, ours)],
        "without snapshots": [(few, short_refold.wall_s), (many, refold.wall_s)],
    }
    plot = Plot("events in the partition", "s to the first decision", lines)
    ratio, spread = statistics.median(ratios), spread_of(ratios)
    return Ratio("takeover", ours, base, "s", ratio, runs, aim, note, plot, spread)


class _Spent(NamedTuple):
    """The wall time and the CPU time of a worker, in seconds."""

    wall_s: float
    cpu_s: float


class _Log:
    """A separate installation on the bench's broker: its own topics and its own home directory."""

    def __init__(self, here: Installation, prefix: str, events: int) -> None:
        home = here.home / prefix
        home.mkdir()
        self.settings = replace(
            here.settings, topic_prefix=prefix, home=home, state_dir=home / "worker",
            blobs_dir=home / "blobs",
        )
        self._log = open_log(self.settings)
        self._log.apply_topics(topics(PARTITIONS)).demand()
        self._env = here.env() | {
            "FOLDLOG_HOME": str(home),
            "FOLDLOG_TOPIC_PREFIX": prefix,
            "ANTHROPIC_API_KEY": "bench",
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
        }
        self._sessions = Sessions(self._log, self.settings)
        self._names = (
            name for n in count() if not partition_for(name := f"bench-{n}", PARTITIONS)
        )
        self.events = self._write(events)

    def close(self) -> None:
        self._sessions.close()
        self._log.close()

    def _write(self, events: int) -> int:
        """Write sessions to partition 0 until it has at least this many records. Returns the number
        of records."""
        producer, offsets, written = self._log.producer(), count(), 0
        while written < events:
            name = next(self._names)
            session = Session(name, offsets, CHUNK_CHARS)
            for turn in range(TURNS + 1):
                for writer, event in session.turn() if turn else session.opened():
                    headers = headers_for(event, writer)
                    producer.append(SESSION_EVENTS, name, encode(event), headers)
                    written += 1
                    if written % FLUSH_EVERY == 0:
                        producer.flush(PATIENCE_S)
        producer.close()
        return written

    def make_snapshot(self) -> None:
        """Let a worker fold the log, and wait until the worker has made a snapshot near the end of
        the log."""
        shutil.rmtree(self.settings.state_dir, ignore_errors=True)
        with self._worker(FOLDLOG_SNAPSHOT_RECORDS=str(SNAPSHOT_RECORDS)):
            until = time.monotonic() + PATIENCE_S
            while self._snapshot_offset() < self.events - SNAPSHOT_RECORDS:
                assert time.monotonic() < until, "no snapshot was made"
                time.sleep(POLL_S)

    def _snapshot_offset(self) -> int:
        found = (self.settings.blobs_dir / "snapshots" / "manifests").glob("*/0/*.json")
        return max((int(path.name.partition("-")[0]) for path in found), default=0)

    def first_decision(self, *, snapshots: bool = True) -> _Spent:
        """The time from the start of a worker without a store to its first decision."""
        self._await_empty_group()
        shutil.rmtree(self.settings.state_dir, ignore_errors=True)
        reader = self._log.reader(SESSION_EVENTS, self._log.end_offsets(SESSION_EVENTS))
        try:
            name = next(self._names)
            self._sessions.open(name, agent="default")
            self._sessions.say(name, "hello", channel="bench")
            began = time.perf_counter()
            records = "0" if not snapshots else str(LONG * 10)  # it makes none of its own
            with self._worker(FOLDLOG_SNAPSHOT_RECORDS=records) as pid:
                while True:
                    assert time.perf_counter() - began < PATIENCE_S, "no decision"
                    for record in reader.poll(POLL_S):
                        entry = entry_of(record)
                        if entry.session_id == name and isinstance(entry.event, ev.LlmCalled):
                            return _Spent(time.perf_counter() - began, cpu_s(pid))
        finally:
            reader.close()

    def _await_empty_group(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while self._log.members(GROUP):
            assert time.monotonic() < until, "the group keeps a member"
            time.sleep(POLL_S)

    @contextmanager
    def _worker(self, **env: str) -> Iterator[int]:
        command = [sys.executable, "-m", "foldlog.cli", "worker"]
        with open(self.settings.home / "worker.log", "ab") as log:
            process = subprocess.Popen(
                command, env={**os.environ, **self._env, **env}, cwd=self.settings.home,
                stdout=log, stderr=log,
            )
        try:
            yield process.pid
            assert process.poll() is None, (self.settings.home / "worker.log").read_text()[-2000:]
        finally:
            process.kill()
            process.wait()
