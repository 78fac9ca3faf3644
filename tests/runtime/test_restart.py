"""A worker that comes back is whole again, Faust's own agents included."""

import json
import time
import urllib.request

import pytest

from foldlog.log import Settings, open_log
from foldlog.schemas.topics import DEAD_LETTERS
from foldlog.tests.cli.test_on_a_broker import WAIT_S, Machine

pytestmark = pytest.mark.broker


def letters_seen(machine: Machine) -> int:
    """How many dead letters the worker that runs has seen; -1 while none answers."""
    try:
        web = json.loads((machine.home / "worker" / "worker.json").read_text())["web"]
        with urllib.request.urlopen(f"{web}/status", timeout=5) as answer:
            return json.load(answer)["dead_letters"]
    except OSError:
        return -1


def test_dead_letters_are_noticed_by_a_worker_that_was_killed_and_came_back(broker, tmp_path):
    """Faust gave the new one the assignment of the old, found another port in it, and was lost."""
    machine = Machine(broker.bootstrap_servers, tmp_path)
    machine("topics", "apply")
    log = open_log(Settings.load(machine.env, tmp_path / "foldlog.toml", {}))
    producer = log.producer()
    for end in ("kill", "terminate"):
        producer.append(DEAD_LETTERS, "s", b"?")
        assert producer.flush(WAIT_S) == 0
        worker = machine.start("worker")
        try:
            until = time.monotonic() + WAIT_S
            while letters_seen(machine) < 1:
                assert time.monotonic() < until, "no dead letter was seen"
                time.sleep(0.1)
        finally:
            getattr(worker, end)()
            _, err = worker.communicate(timeout=WAIT_S)
        assert "Traceback" not in err, err
    log.close()
