"""A worker id identifies one state directory, at one path, on one machine since one boot."""

import shutil

from foldlog.processors.store.state_dir import StateDir, worker_id_of


def ids(*directories: StateDir) -> list[str]:
    names = [directory.worker_id for directory in directories]
    for directory in directories:
        directory.close()
    return names


def test_a_restart_is_the_same_worker_and_a_copy_of_its_directory_is_another(tmp_path):
    """The defect: a worker in the copy took the claims of the first worker for claims of its own
    past, and ran them again."""
    (first,) = ids(StateDir(tmp_path / "one"))
    assert first == worker_id_of(tmp_path / "one") == ids(StateDir(tmp_path / "one"))[0]
    shutil.copytree(tmp_path / "one", tmp_path / "copied")  # like `cp -a`, of a stopped worker
    (tmp_path / "copied").rename(tmp_path / "two")
    assert ids(StateDir(tmp_path / "two")) != [first]


def test_a_copy_of_the_directory_of_a_running_worker_is_another_worker(tmp_path):
    running = StateDir(tmp_path / "one", "shop-1")
    running.note({"pid": 1, "web": "http://127.0.0.1:1"})
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    copy = StateDir(tmp_path / "two", "shop-1")
    first, second = ids(running, copy)
    assert first != second
    assert {first.rpartition(".")[0], second.rpartition(".")[0]} == {"shop-1"}


def test_a_clone_of_the_disk_on_another_machine_is_another_worker(tmp_path):
    """Only the machine is different, even the inodes are equal; to the worker, a reboot looks the
    same as a clone."""
    StateDir(tmp_path).close()
    here, there = worker_id_of(tmp_path), worker_id_of(tmp_path, machine="another boot")
    assert here != there and worker_id_of(tmp_path) == here
    assert worker_id_of(tmp_path / "unused") is None
