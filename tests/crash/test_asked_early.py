"""A reconciler is asked as soon as the death of its call's owner is proven.

The claims of these tests have an hour, so nothing but an early question can end a call before the
test's patience ends.
"""

import signal

import pytest

from foldlog.schemas import events as ev
from foldlog.tests.crash.agents import Ledger
from foldlog.tests.crash.bank_worker import BANK, bank_workers
from foldlog.tests.crash.zombies import shared
from foldlog.tests.kit import stopped_process

pytestmark = [pytest.mark.broker, pytest.mark.crash]


@pytest.fixture
def bank(stage):
    """The directory of the bank, which has seen every payment until `seen` is deleted."""
    (stage.directory / "seen").touch()
    return stage.directory


def pays(stage, workers, session_id: str):
    """The worker that runs the tool of a new session."""
    stage.sessions.open(session_id, agent=BANK)
    stage.sessions.say(session_id, f"session:{session_id} scene:wire message:m1")
    ledger = Ledger(stage.directory)
    (line,) = stage.follow_until("the tool runs", lambda: ledger.lines("wire", session=session_id))
    return workers[line["pid"]]


def result(stage, session_id: str) -> tuple[str, str]:
    """The result of the session's call, once its turn has ended."""
    watched = stage.watch(session_id)
    stage.follow_until("the turn ends", lambda: watched.counted(ev.TurnEnded))
    (found,) = watched.counted(ev.ToolResult)
    return found.outcome, found.via


def test_T6_a_worker_that_restarts_after_kill_9_asks_at_once(stage, bank):
    """The defect: it asked after the deadline and the margin, by default 145 s later."""
    with bank_workers(stage, "w1") as workers:
        worker = pays(stage, workers, "s1")
        worker.kill()
        worker.start()
        assert result(stage, "s1") == ("ok", "reconciler")
    assert len(Ledger(bank).lines("wire")) == 1


def test_T6_another_worker_on_the_host_asks_once_the_lock_is_free(stage, bank):
    with bank_workers(stage, "w1", "w2") as workers:
        stage.follow_until("each holds its share", lambda: shared(stage, 2))
        pays(stage, workers, "s1").kill()
        assert result(stage, "s1") == ("ok", "reconciler")
    assert len(Ledger(bank).lines("wire")) == 1


def test_T6_an_early_no_is_not_final(stage, bank):
    (bank / "seen").unlink()
    with bank_workers(stage, "w1") as workers:
        worker = pays(stage, workers, "s1")
        worker.kill()
        worker.start()
        stage.follow_until("the bank was asked", lambda: Ledger(bank).lines("asked"))
        (bank / "seen").touch()
        assert result(stage, "s1") == ("ok", "reconciler")
    assert [line["seen"] for line in Ledger(bank).lines("asked")] == [False, True]


def test_T6_nobody_is_asked_about_a_paused_worker_and_its_call_is_not_repeated(stage, bank):
    """The pause is longer than the session timeout: the other worker has taken the partitions and
    answers in another session."""
    with bank_workers(stage, "w1", "w2") as workers:
        stage.follow_until("each holds its share", lambda: shared(stage, 2))
        paused = pays(stage, workers, "s1")
        (other,) = (worker for worker in workers.values() if worker is not paused)
        stopped_process.stop(paused.process.pid)
        stage.follow_until("the other holds every partition", stage.owner)
        Ledger(bank).release("s2")
        assert pays(stage, workers, "s2") is other
        assert result(stage, "s2") == ("ok", "tool")
        paused.process.send_signal(signal.SIGCONT)
        Ledger(bank).release("s1")
        assert result(stage, "s1") == ("ok", "tool")
    assert Ledger(bank).lines("asked") == []
    assert len(Ledger(bank).lines("wire", session="s1")) == 1
