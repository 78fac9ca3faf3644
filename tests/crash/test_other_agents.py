"""Two workers of one group with different agents: refused, or, while rolling, shown for what it is.

Before, the second one joined in silence, and sessions hung in the partitions of whoever lacked
their agent, shown as busy.
"""

import json
import subprocess

import pytest

from foldlog.cli.__main__ import main
from foldlog.cli.edge import Edge
from foldlog.consumers.show import fold_everything, status_of
from foldlog.processors.fold.projections.partition import worker_id
from foldlog.schemas import events as ev
from foldlog.tests.crash.agents import HELPER, KEEPER
from foldlog.tests.crash.fleet import PATIENCE_S, await_that

pytestmark = [pytest.mark.broker, pytest.mark.crash]


class Some:
    """A hand's worker that serves only some of the agents, started as a process of its own."""

    def __init__(self, hand, *agents: str, rolling: bool = False) -> None:
        command = [part for part in hand.command if part not in ("--log", str(hand.log))]
        more = ["--agents", *agents, *(["--rolling-update"] if rolling else [])]
        self.process = subprocess.Popen([*command, *more], stderr=subprocess.PIPE, text=True)

    def end(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def some():
    started: list[Some] = []

    def start(*args, **more):
        started.append(Some(*args, **more))
        return started[-1]

    yield start
    for one in started:
        one.end()


def statuses(stage) -> dict[str, str]:
    everything = fold_everything(stage.log)
    return {
        name: status_of(views, everything.holders[everything.places[name]])
        for name, views in everything.sessions.items()
    }


def test_A6_a_worker_with_other_agents_is_refused_and_no_session_is_shown_busy(
    stage, some, capsys
):
    some(stage.hand("w1"), HELPER)
    w1 = worker_id(stage.follow_until("w1 holds all", stage.owner))
    refused = some(stage.hand("w2"), KEEPER)
    for number in range(3):
        stage.sessions.open(f"s{number}", agent=KEEPER, user="ana")
        stage.sessions.say(f"s{number}", "hi", user="ana")
    assert set(statuses(stage).values()) == {"unserved"}

    def foldlog(*args: str) -> str:
        assert main(args, Edge(stage.settings)) in (0, 1)
        said = capsys.readouterr()
        return said.out + said.err

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
    _, said = refused.process.communicate(timeout=PATIENCE_S)
    assert refused.process.returncode == 2, "no supervisor tries it again"
    assert f"worker {w1} (agent {HELPER} is only there, agent {KEEPER} is only here)" in said
    assert worker_id(stage.owner()) == w1, "the refused one took nothing"
    stage.sessions.cancel("s0", turn=1, cancel_id="c1", user="ana")
    stage.sessions.terminate("s1", user="ana")
    stage.follow_until("an aborted turn ends without its agent", lambda: all(
        stage.watch(name).counted(ev.TurnEnded) for name in ("s0", "s1")
    ))
    assert statuses(stage) == {"s0": "idle", "s1": "terminated", "s2": "unserved"}


def test_A6_a_rolling_update_joins_and_doctor_says_who_differs(stage, some, capsys):
    some(stage.hand("w1"), HELPER)
    w1 = worker_id(stage.follow_until("w1 holds all", stage.owner))
    some(stage.hand("w2"), HELPER, KEEPER, rolling=True)

    def owners() -> set[str]:
        stage.pump()
        return {worker_id(h.owner) for view in stage.holders.values() for h in view.holders}

    await_that("w2 has its share", lambda: len(owners()) == 2)
    (w2,) = owners() - {w1}
    assert main(("doctor", "--json"), Edge(stage.settings)) in (0, 1)
    found = [json.loads(row) for row in capsys.readouterr().out.splitlines()]
    (differ,) = [f for f in found if f["check"] == "agents"]
    first, second = sorted((w1, w2))
    said = f"workers {first} and {second} serve different agents: agent {KEEPER} is only in {w2}"
    assert said in differ["text"]
