"""Replays the whole topic, one partition per job, in several processes if that is faster.

Only the CPU limits the speed of folding, and partitions are independent of each other. A job folds
one partition and hashes every view, compares the views with a worker's store, or writes them to a
new store next to the live one. Jobs run in separate processes if the log is on a broker and has
enough events, because a process takes about a second to start. If a job fails or the caller stops,
the processes end at once; a replay changes nothing that is in use.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ..client.follow import read_before
from ..log import open_log
from ..log.door import Log
from ..log.errors import LogCut, LogFatal, Refused
from ..log.settings import Settings
from ..processors.store.partition_cache import checksum_of
from ..processors.store.store import Belongs, Cursor, fold_version, new_store
from ..schemas.topics import SESSION_EVENTS
from .replay import Replay, Verified, read_blobs, store_directory, verify_partition

HASH, VERIFY, INTO = "hash", "verify", "into"
PARALLEL_MIN = 100_000
"""A log with fewer events is folded in one process; folding this many events takes a second."""

POLL_S = 0.2

Progress = Callable[[int, int], None]
"""progress(events read, events in total)"""


class Job(NamedTuple):
    """A job for one partition.

    `what`: HASH, VERIFY or INTO.
    `end`: the offset to stop before.
    `state_dir`: the directory in which an INTO job writes the new store.
    """

    what: str
    partition: int
    end: int
    state_dir: Path | None = None


class Hashed(NamedTuple):
    """A folded session with the same fields as Folded, but with hashes instead of views."""

    session_id: str
    partition: int
    first: int
    next: int
    rulings: dict[str, int]
    hashes: dict[str, str]


class JobResult(NamedTuple):
    """The result of a partition's job. `verified`: the result of a VERIFY job."""

    partition: int
    sessions: tuple[Hashed, ...] = ()
    verified: Verified | None = None


class NotEmpty(Refused):
    """The directory for a new store is not empty."""


def jobs_of(
    log: Log, what: str, ends: Mapping[int, int] | None = None, into: Path | None = None
) -> list[Job]:
    """A job for each partition that has events. Raises NotEmpty, LogUnreachable."""
    if into is not None and into.exists() and any(into.iterdir()):
        raise NotEmpty(
            f"{into} is not empty. Nothing was written: a replay writes a new store and deletes "
            "nothing. Name a directory that does not exist yet."
        )
    log_ends = log.end_offsets(SESSION_EVENTS)
    upto = {p: min((ends or {}).get(p, end), end) for p, end in log_ends.items()}
    return [Job(what, p, end, into) for p, end in sorted(upto.items()) if end > 0]


def _offset_by(progress: Progress, before: int, total: int) -> Callable[[int], None]:
    return lambda read: progress(before + read, total)


def run_jobs(
    log: Log,
    settings: Settings,
    jobs: list[Job],
    progress: Progress = lambda _read, _there: None,
    *,
    processes: int | None = None,
) -> Iterator[JobResult]:
    """Run the jobs, and yield the results in the order of the partitions.

    processes: how many jobs run at once, by default one per processor, or one for a small log.
    Raises the error of the first job that fails.
    """
    total = sum(job.end for job in jobs)
    if processes is None:
        is_parallel = settings.bootstrap_servers is not None and total >= PARALLEL_MIN
        processes = (os.cpu_count() or 1) if is_parallel else 1
    processes = min(processes, len(jobs))
    if processes > 1:
        yield from _in_processes(settings, jobs, progress, total, processes)
        return
    before = 0
    for job in jobs:
        yield run_job(log, settings, job, _offset_by(progress, before, total))
        before += job.end
        progress(before, total)


def _in_processes(
    settings: Settings, jobs: list[Job], progress: Progress, total: int, processes: int
) -> Iterator[JobResult]:
    context = multiprocessing.get_context("spawn")  # not fork: the log's client has threads
    read = context.Array("Q", max(job.partition for job in jobs) + 1, lock=False)
    with (
        ProcessPoolExecutor(processes, context, _start_process, (settings, read)) as pool,
        _ended_at_once(pool),
    ):
        # The longest job first, because the last one to end decides how long all take.
        longest_first = sorted(jobs, key=lambda job: -job.end)
        running = {job.partition: pool.submit(_run_in_process, job) for job in longest_first}
        left = set(running.values())
        while left:
            ended, left = wait(left, POLL_S, FIRST_COMPLETED)
            for future in ended:
                future.result()
            progress(sum(read), total)
        yield from (running[job.partition].result() for job in jobs)


@contextmanager
def _ended_at_once(pool: ProcessPoolExecutor) -> Iterator[None]:
    """If the block raises, end the processes of the pool, which would first finish all jobs."""
    others = set(multiprocessing.active_children())
    try:
        yield
    except BaseException as error:
        own = set(multiprocessing.active_children()) - others
        for process in own:
            process.terminate()
        # Only the pool's own thread may reap the processes. If two threads join one process, the
        # second may return while the process is still listed as running.
        pool.shutdown(cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise LogFatal(
                "a process that folded a partition was killed, perhaps because the machine has too "
                "little memory. Nothing that is in use was changed. Replay with --jobs 1."
            ) from error
        raise


_process: dict[str, Any] = {}


def _start_process(settings: Settings, read: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the caller, which ends this process
    _process.update(settings=settings, read=read, log=open_log(settings))


def _run_in_process(job: Job) -> JobResult:
    def report(read: int) -> None:
        _process["read"][job.partition] = read

    result = run_job(_process["log"], _process["settings"], job, report)
    report(job.end)
    return result


def run_job(log: Log, settings: Settings, job: Job, progress: Callable[[int], None]) -> JobResult:
    """Run one job. progress(offset) is called now and then."""
    read = read_blobs(settings)
    if job.what == VERIFY:
        verified = verify_partition(log, settings, job.partition, progress=progress)
        return JobResult(job.partition, verified=verified)
    replay = Replay(log, None, {job.partition: job.end}, read, partition=job.partition)
    replay.run(progress)
    if job.what == INTO:
        assert job.state_dir is not None
        _write(log, settings, job, replay)
    hashed = [
        Hashed(name, f.partition, f.first, f.next, f.rulings, f.hashes)
        for name, f in sorted(replay.sessions.items())
    ]
    return JobResult(job.partition, tuple(hashed))


def _write(log: Log, settings: Settings, job: Job, replay: Replay) -> None:
    """Write the store that a worker would have at the job's end; any worker can continue from it.
    """
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
            lambda _views: True,  # pending work is checked when the partition is assigned
            replay.holders_of(job.partition),
            Cursor(job.end, _checksum(log, job.partition, job.end - 1)),
        )
    finally:
        store.close()


def _checksum(log: Log, partition: int, offset: int) -> int:
    """The checksum of the last folded record, by which a store recognizes its log."""
    records = read_before(log, SESSION_EVENTS, partition, offset + 1, start=offset)
    return next(map(checksum_of, records), 0)


