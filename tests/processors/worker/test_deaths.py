"""Law 6: if the death of an owner is proven, its claims end before their deadline; no death is
guessed."""

import os
import signal
import subprocess
import sys

import pytest

from foldlog.processors.agent import Agent
from foldlog.processors.fold.projections.partition import Holder, PartitionView
from foldlog.processors.store.partition_cache import PartitionCache
from foldlog.processors.store.state_dir import StateDir
from foldlog.processors.store.store import DictBackend, Store
from foldlog.processors.tools.tool import tool
from foldlog.processors.worker.deaths import Registry
from foldlog.schemas import events as ev
from foldlog.tests.kit.manual_worker import ROLES, ManualWorker, answered, call, message, opened
from foldlog.tests.kit.programs import line_of, output_of

HOLD_LOCK = """
import sys
from pathlib import Path
from foldlog.processors.store.state_dir import StateDir
state = StateDir(Path(sys.argv[1]))
print(state.worker_id, flush=True)
sys.stdin.read()
"""


@tool(effect="pure")
def look() -> str:
    """Reads."""
    return "seen"


AGENT = Agent(name="a", model="m", tools=(look,))


def took_over(dead: bool | None) -> ManualWorker:
    """A worker that took a partition in which another worker runs a tool."""
    before = ManualWorker(AGENT, roles=("sessions", "models"))
    before.write("producer", opened("a"))
    before.write("producer", message())
    before.assign()
    before.settle()
    before.write("models", answered(call("look")))
    before.settle()
    rig = ManualWorker(
        AGENT, "2", log=before.log, is_dead=lambda owner: dead if owner == "other/1" else None
    )
    for role in ROLES:
        epoch = rig.write(role, ev.PartitionTaken(role=role, owner="other/1"), key="#partition")
    start = {"turn": 1, "step": 1, "index": 0, "attempt": 1, "owner": "other/1", "epoch": epoch}
    rig.write("tools", ev.ToolStarted(**start, start_by=rig.ms + 9, deadline=rig.ms + 120_000))
    rig.assign()
    for _ in range(3):
        rig.worker.tick()
        rig.settle()
        rig.ms += 1_000
    return rig


def test_law6_the_claims_of_a_dead_worker_are_taken_over_at_once():
    """The defect: the takeover waited for the deadline, which is 145 s for a tool with the default
    timeout."""
    rig = took_over(dead=True)
    assert [gone.owner for gone in rig.events(ev.OwnerGone)] == ["other/1"], "once"
    assert [start.owner for start in rig.events(ev.ToolStarted)] == ["other/1", "w/2"]


@pytest.mark.parametrize("dead", [False, None])
def test_law6_the_claims_of_a_live_or_unknown_worker_keep_their_deadline(dead):
    rig = took_over(dead)
    assert rig.events(ev.OwnerGone) == []
    assert len(rig.events(ev.ToolStarted)) == 1


def test_a_lock_is_checked_once_for_all_partitions_and_never_the_own_one():
    """The defect: a restarted worker checked its own lock twice a second for each partition, for
    ever."""
    checked: list[str] = []
    rig = ManualWorker(AGENT, "2", is_dead=checked.append)  # returns None: unknown
    deaths = rig.worker.deaths
    before = PartitionView((Holder("models", "other/1", 1), Holder("sessions", "w/1", 0)))
    owned = {number: PartitionCache(number, Store(DictBackend())) for number in (0, 1, 2)}
    for one in owned.values():
        deaths.watch(one, before)
    deaths.check(owned, rig.ms)
    assert checked == ["other/1"]


def test_a_paused_worker_is_alive_a_killed_one_dead_and_a_copy_unknown(tmp_path):
    registry, home = Registry(tmp_path / "run"), tmp_path / "w"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(home)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        name = line_of(process.stdout, "the worker's name").strip()
        owner = f"{name}/1"
        assert registry.is_dead(owner) is None, "its directory is not registered"
        registry.register(name, home)
        os.kill(process.pid, signal.SIGSTOP)
        assert registry.is_dead(owner) is False
    finally:
        process.kill()
        output_of(process)
    assert registry.is_dead(owner) is True
    registry.register("w-of.another", home)
    assert registry.is_dead("w-of.another/1") is None, "the directory has another worker id now"
    StateDir(home).close()
