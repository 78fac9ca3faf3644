"""Replaying the whole topic: partition by partition, several at once where that is faster.

Folding is work for a processor and partitions have nothing in common, so each is a job of its own:
fold it and hash every view, compare it with a worker's store, or write it as a fresh store beside
the live one. Jobs run in processes of their own where the log is on a broker and there is enough to
fold; a process takes about a second to begin. This file must not know how anything is shown.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

from ..log import open_log
from ..log.door import Log
from ..log.errors import LogCut, Refused
from ..log.settings import Settings
from ..processors.store.partition_cache import checksum_of
from ..processors.store.store import Belongs, Cursor, fold_version, new_store
from ..schemas.topics import SESSION_EVENTS
from .replay import Replay, Verified, read_blobs, store_directory, verify_partition

HASH, VERIFY, INTO = "hash", "verify", "into"
APART_MIN = 100_000
"""Events to fold below which one process does it all: a second's worth of folding."""

LOOK_S = 0.2

Tell = Callable[[int, int], None]
"""tell(events read, events there)."""


class Job(NamedTuple):
    """What to do with one partition. `end`: the next offset up to which. `state_dir`: of INTO."""

    what: str
    partition: int
    end: int
    state_dir: Path | None = None


class Hashed(NamedTuple):
    """A session as it was folded; the fields are those of Folded, with hashes for views."""

    session_id: str
    partition: int
    first: int
    next: int
    rulings: dict[str, int]
    hashes: dict[str, str]


class Done(NamedTuple):
    """A partition after its job. `verified`: of VERIFY."""

    partition: int
    sessions: tuple[Hashed, ...] = ()
    verified: Verified | None = None


class NotEmpty(Refused):
    """A fresh store is not made where something lies."""


def jobs_of(
    log: Log, what: str, ends: Mapping[int, int] | None = None, into: Path | None = None
) -> list[Job]:
    """A job for each partition that has events. Raises NotEmpty, LogUnreachable."""
    if into is not None and into.exists() and any(into.iterdir()):
        raise NotEmpty(
            f"{into} is not empty: a replay writes a fresh store and deletes nothing. Name a "
            "directory that is not there yet."
        )
    there = log.end_offsets(SESSION_EVENTS)
    upto = {p: min((ends or {}).get(p, end), end) for p, end in there.items()}
    return [Job(what, p, end, into) for p, end in sorted(upto.items()) if end > 0]


def _behind(tell: Tell, before: int, there: int) -> Callable[[int], None]:
    return lambda read: tell(before + read, there)


def run_jobs(
    log: Log,
    settings: Settings,
    jobs: list[Job],
    tell: Tell = lambda _read, _there: None,
    *,
    processes: int | None = None,
) -> Iterator[Done]:
    """Do the jobs; the results in the order of the partitions.

    processes: how many at once; by default as many as there are processors, or one for little.
    """
    there = sum(job.end for job in jobs)
    if processes is None:
        apart = settings.bootstrap_servers is not None and there >= APART_MIN
        processes = min(len(jobs), os.cpu_count() or 1) if apart else 1
    if processes > 1:
        yield from _apart(settings, jobs, tell, there, processes)
        return
    before = 0
    for job in jobs:
        yield do(log, settings, job, _behind(tell, before, there))
        before += job.end
        tell(before, there)


def _apart(
    settings: Settings, jobs: list[Job], tell: Tell, there: int, processes: int
) -> Iterator[Done]:
    context = multiprocessing.get_context("spawn")  # the log's client has threads: no fork
    read = context.Array("Q", max(job.partition for job in jobs) + 1, lock=False)
    with ProcessPoolExecutor(processes, context, _begin, (settings, read)) as pool:
        running = [pool.submit(_do_apart, job) for job in jobs]
        left = set(running)
        while left:
            _, left = wait(left, LOOK_S, FIRST_COMPLETED)
            tell(sum(read), there)
        yield from (future.result() for future in running)


_mine: dict[str, Any] = {}


def _begin(settings: Settings, read: Any) -> None:
    _mine.update(settings=settings, read=read, log=open_log(settings))


def _do_apart(job: Job) -> Done:
    def told(read: int) -> None:
        _mine["read"][job.partition] = read

    done = do(_mine["log"], _mine["settings"], job, told)
    told(job.end)
    return done


def do(log: Log, settings: Settings, job: Job, tell: Callable[[int], None]) -> Done:
    """Do one job. tell(offset): how far it has come."""
    read = read_blobs(settings)
    if job.what == VERIFY:
        return Done(job.partition, (), verify_partition(log, settings, job.partition, tell=tell))
    replay = Replay(log, None, {job.partition: job.end}, read, partition=job.partition)
    told_at = 0.0
    for step in replay.steps():
        if time.monotonic() - told_at > LOOK_S:
            told_at = time.monotonic()
            tell(step.entry.offset)
    if job.what == INTO:
        assert job.state_dir is not None
        _write(log, settings, job, replay)
    hashed = [
        Hashed(name, f.partition, f.first, f.next, f.rulings, f.hashes)
        for name, f in sorted(replay.sessions.items())
    ]
    return Done(job.partition, tuple(hashed))


def _write(log: Log, settings: Settings, job: Job, replay: Replay) -> None:
    """A store as a worker would have it at that offset; any worker can go on from it."""
    first = log.first_offsets(SESSION_EVENTS)[job.partition]
    if first > 0:
        raise LogCut(str(job.partition), 0, first)
    belongs = Belongs(log.identity(), log.topic_id(SESSION_EVENTS), fold_version())
    directory = store_directory(settings, job.partition, job.state_dir)
    store = new_store(directory, belongs, job.end)
    try:
        store.write(
            {name: folded.views for name, folded in replay.sessions.items()},
            {},
            lambda _views: True,  # what they owe is looked at once, when they are assigned
            replay.holders_of(job.partition),
            Cursor(job.end, _checksum(log, job.partition, job.end - 1)),
        )
    finally:
        store.close()


def _checksum(log: Log, partition: int, offset: int) -> int:
    """Of the last record folded, as a store keeps it to know its log again."""
    reader = log.reader(SESSION_EVENTS, {partition: offset})
    try:
        for _ in range(100):
            for record in reader.poll(LOOK_S):
                return checksum_of(record)
    finally:
        reader.close()
    return 0


__all__ = ["HASH", "INTO", "VERIFY", "Done", "Hashed", "Job", "NotEmpty", "jobs_of", "run_jobs"]
