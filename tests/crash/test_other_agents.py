"""Two workers of one group with different agents: the second is rejected, or reports the difference
during a rolling update.

The defect: the second worker joined silently. Sessions whose agent it lacked hung in its
partitions, and were shown as busy.
"""

import json
import subprocess

import pytest

from foldlog.cli.__main__ import main
from foldlog.cli.edge import Edge
from foldlog.client.show import fold_everything
from foldlog.client.status import situation_of
from foldlog.processors.fold.projections.partition import worker_id
from foldlog.schemas import events as ev
from foldlog.tests.crash.agents import HELPER, KEEPER
from foldlog.tests.crash.fleet import PATIENCE_S, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.crash]


class PartialWorker:
    """A separate process with the command of a handle's worker, which serves only some of the
    agents."""

    def __init__(self, handle, *agents: str, rolling: bool = False) -> None:
        command = [part for part in handle.command if part not in ("--log", str(handle.log))]
        more = ["--agents", *agents, *(["--rolling-update"] if rolling else [])]
        self.process = subprocess.Popen([*command, *more], stderr=subprocess.PIPE, text=True)

    def end(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def start_worker():
    started: list[PartialWorker] = []

    def start(*args, **more):
        started.append(PartialWorker(*args, **more))
        return started[-1]

    yield start
    for one in started:
        one.end()


def statuses(stage) -> dict[str, str]:
    everything = fold_everything(stage.log)
    return {
        name: situation_of(views, everything.holders[everything.places[name]]).status
        for name, views in everything.sessions.items()
    }


def test_A6_a_worker_with_other_agents_is_rejected_and_no_session_is_shown_busy(
    stage, start_worker, capsys
):
    start_worker(stage.handle("w1"), HELPER)
    w1 = worker_id(stage.follow_until("w1 holds every partition", stage.owner))
    rejected = start_worker(stage.handle("w2"), KEEPER)
    for number in range(3):
        stage.sessions.open(f"s{number}", agent=KEEPER, user="ana")
        stage.sessions.say(f"s{number}", "hi", user="ana")
    assert set(statuses(stage).values()) == {"unserved"}

    def foldlog(*args: str) -> str:
        assert main(args, Edge(stage.settings)) in (0, 1)
        output = capsys.readouterr()
        return output.out + ("" if "--json" in args else output.err)

    listed = [json.loads(row) for row in foldlog("sessions", "--json").splitlines()]
    assert {row["status"] for row in listed} == {"unserved"}
    lacks = f"no worker serves agent {KEEPER} here: worker {w1} has the session's partition"
    assert lacks in foldlog("show", "s1")
    assert lacks in foldlog("send", "s1", "again", "--user", "ana")
    assert lacks in foldlog("send", "s1", "more", "--user", "ana", "--wait", "--timeout", "0.1")
    found = [json.loads(row) for row in foldlog("doctor", "--json").splitlines()]
    (problem,) = [f for f in found if f["check"] == "agents"]
    assert f"3 sessions need agent {KEEPER}" in problem["text"]
    assert problem["level"] == "problem"
    _, errors = rejected.process.communicate(timeout=PATIENCE_S)
    assert rejected.process.returncode == 2, "a supervisor must not start it again"
    assert f"worker {w1} (agent {HELPER} is only there, agent {KEEPER} is only here)" in errors
    assert worker_id(stage.owner()) == w1, "the rejected one took nothing"
    stage.sessions.cancel("s0", turn=1, cancel_id="c1", user="ana")
    stage.sessions.terminate("s1", user="ana")
    stage.follow_until("an aborted turn ends without its agent", lambda: all(
        stage.watch(name).counted(ev.TurnEnded) for name in ("s0", "s1")
    ))
    assert statuses(stage) == {"s0": "idle", "s1": "terminated", "s2": "unserved"}


def test_A6_a_rolling_update_joins_and_doctor_reports_the_difference(stage, start_worker, capsys):
    start_worker(stage.handle("w1"), HELPER)
    w1 = worker_id(stage.follow_until("w1 holds every partition", stage.owner))
    start_worker(stage.handle("w2"), HELPER, KEEPER, rolling=True)

    def owners() -> set[str]:
        stage.pump()
        return {worker_id(h.owner) for view in stage.holders.values() for h in view.holders}

    wait_until("w2 holds its share", lambda: len(owners()) == 2)
    (w2,) = owners() - {w1}
    assert main(("doctor", "--json"), Edge(stage.settings)) in (0, 1)
    found = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    (differ,) = [f for f in found if f["check"] == "agents"]
    first, second = sorted((w1, w2))
    assert f"workers {first} and {second} serve different agents" in differ["text"]
    assert f"agent {KEEPER} is only in {w2}" in differ["text"]
