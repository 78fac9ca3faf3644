"""A worker starts in a state directory only if it is alone there, or after it has waited for a
worker that is ending."""

import os
import sys
import threading

import pytest

from foldlog.processors.store.state_dir import StateDir, StateDirTaken
from foldlog.processors.worker import start_lock as start_lock_module
from foldlog.processors.worker.start_lock import exclusive_start
from foldlog.tests.kit.programs import run
from foldlog.tests.kit.waiting import PATIENCE_S, joined

KILLED = """
import os, signal, sys
from pathlib import Path
from foldlog.processors.worker.start_lock import exclusive_start
with exclusive_start(Path(sys.argv[1]), None, print, supervises=True):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_a_supervisor(path) -> None:
    """Start a supervisor in the directory, and kill it with SIGKILL."""
    ran = run([sys.executable, "-c", KILLED, path])
    assert ran.returncode == -9, ran.stderr


def test_a_start_after_a_killed_supervisor_waits_for_its_worker_and_reports_that(tmp_path):
    """The defect: for up to ten seconds, the start failed because another worker was using the
    directory."""
    kill_a_supervisor(tmp_path)
    orphan = StateDir(tmp_path)
    output, waits = [], threading.Event()

    def say(text: str) -> None:
        output.append(text)
        waits.set()

    def end() -> None:
        waits.wait(PATIENCE_S)
        orphan.close()

    thread = threading.Thread(target=end)
    thread.start()
    with exclusive_start(tmp_path, None, say, supervises=True):
        joined(thread)
    assert len(output) == 1 and "was killed; waiting at most" in output[0]


@pytest.mark.parametrize("supervises", [True, False])
def test_a_start_beside_a_live_worker_is_refused_at_once(tmp_path, supervises):
    first = StateDir(tmp_path)
    taken = f"another worker works in .*process {os.getpid()}"
    with pytest.raises(StateDirTaken, match=taken) as no:
        with exclusive_start(tmp_path, None, pytest.fail, supervises=supervises):
            pass
    assert_first_way_out_works(no.value)
    first.close()


@pytest.mark.parametrize("supervises", [True, False])
def test_a_supervisor_holds_the_directory_between_two_of_its_workers(tmp_path, supervises):
    """The defect: a second supervisor could start after a worker's death and before its spare had
    the lock."""
    with exclusive_start(tmp_path, None, pytest.fail, supervises=True):
        StateDir(tmp_path).close()  # a worker of its own starts and ends
        with pytest.raises(StateDirTaken, match=f"process {os.getpid()}.*is already running") as no:
            with exclusive_start(tmp_path, None, pytest.fail, supervises=supervises):
                pass
    assert "foldlog dev --agent" not in str(no.value), "an application is no `foldlog dev`"
    assert_first_way_out_works(no.value)


def assert_first_way_out_works(refused):
    """The defect: with a directory of its own, a worker with other agents was refused again."""
    text = str(refused)
    assert text.index("connect to it") < text.index("stop it, and start one worker with the agents")
    assert "exactly its agents, and a directory of its own in FOLDLOG_STATE_DIR" in text


def test_the_wait_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(start_lock_module, "WAIT_S", 0.0)
    kill_a_supervisor(tmp_path)
    worker, output = StateDir(tmp_path), []
    with pytest.raises(StateDirTaken):
        with exclusive_start(tmp_path, None, output.append, supervises=True):
            pass
    worker.close()


@pytest.mark.parametrize("before", ["a clean end", "a worker of its own since"])
def test_a_start_waits_only_for_the_worker_of_a_killed_supervisor(tmp_path, before):
    """The defect: a stale process id of a killed supervisor delayed every later refusal by half a
    minute."""
    if before == "a clean end":
        with exclusive_start(tmp_path, None, pytest.fail, supervises=True):
            pass
    else:
        kill_a_supervisor(tmp_path)
        with exclusive_start(tmp_path, None, pytest.fail, supervises=False):
            pass
    running = StateDir(tmp_path)
    with pytest.raises(StateDirTaken):
        with exclusive_start(tmp_path, None, pytest.fail, supervises=True):
            pass
    running.close()


def test_only_its_owner_may_read_a_state_directory(tmp_path):
    StateDir(tmp_path / "below" / "one").close()
    with exclusive_start(tmp_path / "below" / "two", None, print, supervises=True):
        pass
    modes = [(tmp_path / "below" / name).stat().st_mode for name in ("one", "two")]
    assert not any(mode & 0o077 for mode in modes)
