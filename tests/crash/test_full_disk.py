"""A disk that is full for a while: the supervisor starts workers until there is space."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from foldlog.tests.cli.test_on_a_broker import Machine, approve_until_answered
from foldlog.tests.kit.programs import line_of, output_of, run
from foldlog.tests.kit.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.crash]


@pytest.fixture
def small_disk(tmp_path):
    """The directory of a file system of 64 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    made = run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", place])
    if made.returncode:
        pytest.skip(f"this user may not mount a file system: {made.stderr.strip()}")
    yield place
    assert run(["umount", "-l", place]).returncode == 0


def fill(path: Path) -> None:
    """Write a file until the disk has no space."""
    with open(path, "wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(65_536))
            except OSError:
                return


def worker_pid(state: Path) -> int:
    """The process id of the running worker, or 0."""
    try:
        return json.loads((state / "worker.json").read_text())["pid"]
    except (OSError, ValueError):
        return 0


def seen(process: subprocess.Popen, text: str) -> str:
    """Read stderr up to the line with a text."""
    lines = ""
    while text not in lines:
        line = line_of(process.stderr, text)
        assert line, f"it ended:\n{lines}"
        lines += line
    return lines


def test_S2_11_a_supervised_worker_continues_when_a_full_disk_has_space(
    broker, tmp_path, small_disk
):
    """The defect: the supervisor gave up after three starts, and nobody noticed."""
    machine, filler = Machine(broker.bootstrap_servers, tmp_path), small_disk / "filler"
    state = small_disk / "state"
    machine.env["FOLDLOG_STATE_DIR"] = str(state)
    machine.env["FOLDLOG_PARTITIONS"] = "1"
    machine("topics", "apply")
    process = machine.start("worker", "--supervise")
    try:
        first = until("the worker runs", lambda: worker_pid(state))
        fill(filler)
        os.kill(first, signal.SIGKILL)
        lines = seen(process, "the disk is full; the worker is restarted")
        assert "Traceback" not in lines
        seen(process, "No space left on device")  # a second worker has found the same
        assert process.poll() is None
        filler.unlink()
        sent = json.loads(machine("send", "s1", "what is this?", "--json"))
        approve_until_answered(machine, sent["message_id"])
    finally:
        process.terminate()
        machine.close()
        _, err = output_of(process)
    assert process.returncode == 0 and "gave up" not in err, err
