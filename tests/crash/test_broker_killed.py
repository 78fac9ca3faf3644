"""kill -9 of the broker under a worker that works: nothing is lost, and the worker goes on."""

import shutil
from pathlib import Path

import pytest

from foldlog.processors.worker.outbox import Outbox
from foldlog.schemas import events as ev
from foldlog.tests.crash import witnesses
from foldlog.tests.crash.fleet import await_that
from foldlog.tests.crash.rig import replay_differs, stage_on
from foldlog.tests.crash.rounds import CAST, Play

pytestmark = [pytest.mark.broker, pytest.mark.crash]


@pytest.fixture(scope="module")
def mortal(broker_cache_dir):
    """A broker of this module's own, and a stage on it: several tests kill it in turn."""
    from foldlog.local.kafka import temporary_broker

    with temporary_broker(broker_cache_dir) as made:
        yield made


@pytest.fixture
def stage(mortal, tmp_path):
    with stage_on(mortal.bootstrap_servers, tmp_path) as made:
        yield made


def test_S0_2_a_broker_killed_in_the_middle_of_streams_loses_nothing(mortal, stage):
    hand = stage.hand()
    hand.start()
    play = Play(stage, hand, cast=(*CAST, "middle"))
    play.await_taken("")
    pid = hand.pid
    play.begin()
    gate = play.people[-1].session_id
    streams = stage.watch(gate).counted
    play.until("the gated answer streams", lambda: len(streams(ev.GenChunk)) >= 2)
    mortal.kill()
    stage.server.open(gate)
    stage.server.wait_count("answered", canary=gate)  # while nobody can write that down
    mortal.up()
    play.until("everybody has an answer and owes nothing", play.all_rest)
    assert hand.pid == pid, "the worker went on without a restart"
    assert witnesses.violations(stage, play.people) == []
    assert replay_differs(stage) == []
    (attempt,) = {(e.turn, e.step, e.attempt) for e in streams(ev.GenComplete)}
    assert attempt == (1, 1, 1), "the answer that came meanwhile was not asked for again"


def _kept_in(outbox: Path, copy: Path) -> list[type]:
    """What a running worker's outbox waits to write."""
    shutil.copy(outbox, copy)
    opened = Outbox(copy)
    try:
        return [type(pending.event) for pending in opened.pending()]
    finally:
        opened.close()


def test_S2_8_an_outcome_of_a_broker_outage_is_no_doubt_even_if_its_worker_dies(
    mortal, stage, tmp_path
):
    hand = stage.hand()
    hand.start()
    play = Play(stage, hand, cast=("slow",))
    (person,) = play.people
    play.await_taken("")
    person.begin()
    ran = lambda: stage.ledger.lines("slow_charge", session=person.session_id)  # noqa: E731
    play.until("the tool has had its effect", ran)
    mortal.kill()
    stage.ledger.let_go(person.session_id)
    outbox = stage.settings_of("w1").state_dir / "outbox"
    kept = await_that("the outcome is kept", lambda: _kept_in(outbox, tmp_path / "copy"))
    assert kept == [ev.ToolResult]
    hand.kill()
    mortal.up()
    hand.start()
    play.until("everybody has an answer and owes nothing", play.all_rest)
    assert person.watched.counted(ev.ToolFailedUncertain) == []
    assert person.watched.counted(ev.HumanNeeded) == []
    assert len(ran()) == 1
    assert witnesses.violations(stage, [person]) == []
