"""Directories of temporary brokers: the system knows whether their owner lives, not a pid."""

import shutil
from pathlib import Path

from foldlog.local.kafka.temporary import TEMPORARY, temporary_directory

NO_PROCESS = 2**22 + 1  # above the largest pid of Linux: nothing has it in this pid namespace


def test_the_files_of_an_owner_in_another_pid_namespace_are_left_alone(monkeypatch):
    """The defect: a run in another container took the files of a live broker for a dead one."""
    with monkeypatch.context() as patch:
        patch.setattr("foldlog.local.kafka.temporary.os.getpid", lambda: NO_PROCESS)
        other = temporary_directory()
        directory = other.__enter__()
    assert directory.name.startswith(f"{TEMPORARY}{NO_PROCESS}-")
    with temporary_directory():
        assert directory.exists()
    other.__exit__(None, None, None)
    assert not directory.exists()


def test_the_files_of_a_dead_owner_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with temporary_directory() as directory:
        left = Path(shutil.copytree(directory, tmp_path / f"{TEMPORARY}1-left"))  # nobody locks it
        with temporary_directory():
            assert directory.exists() and not left.exists()
