"""Replay of whole partitions: into a new store, in several jobs, with a progress bar."""

import io
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest

from foldlog.cli.terminal import progress
from foldlog.client.log_client import LogClient
from foldlog.log.errors import LogFatal, LogUnreachable
from foldlog.processors.store.store import open_readonly
from foldlog.reports.replay import Replay, verify
from foldlog.reports.replay_many import (
    HASH,
    INTO,
    VERIFY,
    Job,
    NotEmpty,
    _ended_at_once,
    jobs_of,
    run_jobs,
)
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.cli.harness import make_shell
from foldlog.tests.client.branching.branched import talk
from foldlog.tests.kit.played import settings_in
from foldlog.tests.kit.waiting import PATIENCE_S

NAMES = ("s1", "s2", "s3", "s4")


@pytest.fixture
def client(log, settings):
    with LogClient(settings, log) as client:
        for name in NAMES:
            talk(client, name, "one")
        client.branching().fork("s1", name="f1")
        yield client


def test_the_jobs_of_all_partitions_equal_one_fold_of_everything(log, settings, client):
    reports = []
    jobs = jobs_of(log, HASH)
    results = list(run_jobs(log, settings, jobs, lambda *far: reports.append(far)))
    whole = Replay(log, None, None, client.read_blob).run().sessions
    found = {h.session_id: h for each in results for h in each.sessions}
    assert set(found) == {*NAMES, "f1"} == set(whole)
    for name, hashed in found.items():
        folded = whole[name]
        assert all(getattr(folded, name) == value for name, value in hashed._asdict().items())
    assert reports[-1] == (sum(job.end for job in jobs),) * 2 and reports == sorted(reports)


def test_a_new_store_is_written_next_to_the_live_one_and_agrees_with_the_log(
    log, settings, client, tmp_path
):
    jobs = jobs_of(log, INTO, into=tmp_path / "fresh")
    list(run_jobs(log, settings, jobs))
    assert not settings.state_dir.exists(), "the live store is left alone"
    fresh = settings_in(tmp_path)
    object.__setattr__(fresh, "state_dir", tmp_path / "fresh")
    found = list(verify(log, fresh))
    assert len(found) == len(jobs) and not any(v.problem or v.differences for v in found)
    talk(client, "s2", "two")  # the session continues; the store still belongs to this log
    assert not any(v.problem or v.differences for v in verify(log, fresh))
    store = open_readonly(tmp_path / "fresh/store" / fresh.topic(SESSION_EVENTS) / "0")
    assert set(store.busy()) == set(store.sessions())
    store.close()


def test_a_directory_that_is_not_empty_is_refused(log, client, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "precious").write_text("keep")
    with pytest.raises(NotEmpty, match="not empty"):
        jobs_of(log, INTO, into=tmp_path / "there")


def test_verify_by_jobs_equals_verify(log, settings, client, tmp_path):
    list(run_jobs(log, settings, jobs_of(log, INTO, into=settings.state_dir)))
    results = list(run_jobs(log, settings, jobs_of(log, VERIFY)))
    assert [each.verified for each in results] == list(verify(log, settings))
    assert sum(each.verified.sessions for each in results) == 5


def test_the_error_of_a_job_in_another_process_reaches_the_caller(log, settings):
    """Errors with fields could not be read from the other process, which then counted as killed."""
    away = replace(settings, bootstrap_servers="127.0.0.1:9")
    with pytest.raises(LogUnreachable, match="no Kafka broker answers"):
        list(run_jobs(log, away, [Job(HASH, 0, 10), Job(HASH, 1, 20)], processes=2))
    assert not multiprocessing.active_children()


@pytest.fixture
def pool():
    return ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))


def test_ctrl_c_ends_the_processes_and_starts_no_further_job(pool):
    """The defect: each process went on with the next job, and the command waited for all."""
    with pytest.raises(KeyboardInterrupt), pool, _ended_at_once(pool):
        jobs = [pool.submit(time.sleep, 20) for _ in range(4)]
        raise KeyboardInterrupt
    assert not any(job.done() and not job.cancelled() and not job.exception() for job in jobs)
    assert not multiprocessing.active_children()


def test_an_error_leaves_no_process_behind():
    """The defect: two threads reaped the processes, and one of them returned while a process was
    still listed as running, about once in ten times."""
    for _ in range(10):
        pool = ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))
        with pytest.raises(ValueError), pool, _ended_at_once(pool):
            jobs = [pool.submit(time.sleep, seconds) for seconds in (0, 20, 20, 20)]
            jobs[0].result(PATIENCE_S)
            raise ValueError
        assert not multiprocessing.active_children()


def test_a_killed_process_is_an_error_that_says_what_to_do(pool):
    with pytest.raises(LogFatal, match="--jobs 1"), pool, _ended_at_once(pool):
        pool.submit(os._exit, 9).result(PATIENCE_S)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_progress_bar_is_redrawn_in_place_and_erased(monkeypatch):
    stderr = Terminal()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setattr(progress, "DRAW_S", 0)
    monkeypatch.setattr(progress, "SHOW_AFTER_S", 0)
    with progress.Bar("replay") as bar:
        bar(50, 200)
        bar(180, 200)
    first, second, *_, end = stderr.getvalue().split("\r")[1:]
    assert first.startswith("[#######...") and " 25% replay: 50 of 200 events" in first
    assert second.startswith("[####") and "90%" in second
    assert end == "" and stderr.getvalue().endswith(" \r")


def test_the_command_replays_all_into_a_directory(tmp_path, capsys):
    shell = make_shell(tmp_path, capsys)
    with LogClient(shell.settings, shell.log) as client:
        talk(client, "s1", "one")
        talk(client, "s2", "one")
    ran = shell(f"replay --into {tmp_path / 'fresh'}")
    assert ran.code == 0 and "session s2:" in ran.out and "FOLDLOG_STATE_DIR" in ran.err
    again = shell(f"replay --into {tmp_path / 'fresh'}")
    assert again.code == 1 and "not empty" in again.err
    assert shell("replay --into x --verify").code == 2
    hashes = shell("replay --json").json
    assert [row["session"] for row in hashes] == ["s1", "s2"] and "delivery" in hashes[0]["sha256"]
