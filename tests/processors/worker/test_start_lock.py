"""Who may start in a state directory: nobody beside another, but after one that is ending."""

import os
import subprocess
import sys
import threading

import pytest

from foldlog.processors.store.state_dir import StateDir, StateDirTaken
from foldlog.processors.worker import start_lock as sole_module
from foldlog.processors.worker.start_lock import exclusive_start

KILLED = """
import os, signal, sys
from pathlib import Path
from foldlog.processors.worker.start_lock import exclusive_start
with exclusive_start(Path(sys.argv[1]), None, print, supervises=True):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_a_supervisor(path) -> None:
    """One that has begun to supervise there dies of kill -9."""
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False).returncode == -9


def test_who_starts_after_a_killed_supervisor_waits_for_its_worker_and_says_so(tmp_path):
    """It was told that another worker works there, up to ten seconds long, and gave up."""
    kill_a_supervisor(tmp_path)
    orphan = StateDir(tmp_path)
    said, waits = [], threading.Event()

    def say(text: str) -> None:
        said.append(text)
        waits.set()

    def end() -> None:
        waits.wait()
        orphan.close()

    thread = threading.Thread(target=end)
    thread.start()
    with exclusive_start(tmp_path, None, say, supervises=True):
        thread.join()
    assert len(said) == 1 and "was killed; waiting at most" in said[0]


@pytest.mark.parametrize("supervises", [True, False])
def test_a_worker_that_is_not_ending_is_named_at_once(tmp_path, supervises):
    first = StateDir(tmp_path)
    with pytest.raises(StateDirTaken, match=f"another worker works in .*process {os.getpid()}"):
        with exclusive_start(tmp_path, None, pytest.fail, supervises=supervises):
            pass
    first.close()


@pytest.mark.parametrize("supervises", [True, False])
def test_a_supervisor_keeps_the_place_while_no_worker_of_its_own_lives(tmp_path, supervises):
    """Between a worker's death and its spare's lock, a second supervisor could come in."""
    with exclusive_start(tmp_path, None, pytest.fail, supervises=True):
        StateDir(tmp_path).close()  # its worker comes, and goes
        with pytest.raises(StateDirTaken, match=f"process {os.getpid()}.*is already running"):
            with exclusive_start(tmp_path, None, pytest.fail, supervises=supervises):
                pass


def test_waiting_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(sole_module, "WAIT_S", 0.0)
    kill_a_supervisor(tmp_path)
    stuck, said = StateDir(tmp_path), []
    with pytest.raises(StateDirTaken):
        with exclusive_start(tmp_path, None, said.append, supervises=True):
            pass
    stuck.close()


@pytest.mark.parametrize("before", ["a clean end", "a worker of its own since"])
def test_what_is_no_orphan_is_not_waited_for(tmp_path, before):
    """The name of a supervisor long dead made every later mistake wait half a minute."""
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


def test_what_a_worker_keeps_is_its_owners_alone(tmp_path):
    StateDir(tmp_path / "below" / "one").close()
    with exclusive_start(tmp_path / "below" / "two", None, print, supervises=True):
        pass
    modes = [(tmp_path / "below" / name).stat().st_mode for name in ("one", "two")]
    assert not any(mode & 0o077 for mode in modes)
