"""A broker is killed with SIGKILL under a busy worker: nothing is lost, and the worker
continues."""

import shutil
from pathlib import Path

import pytest

from foldlog.processors.worker.outbox import Outbox
from foldlog.schemas import events as ev
from foldlog.tests.crash import witnesses
from foldlog.tests.crash.fleet import wait_until
from foldlog.tests.crash.rig import replay_differs, stage_on
from foldlog.tests.crash.rounds import CAST, Play

pytestmark = [pytest.mark.broker, pytest.mark.crash, pytest.mark.spread]


@pytest.fixture(scope="module")
def mortal(broker_cache_dir):
    """A broker for this module only. Several tests kill it, one after the other."""
    from foldlog.local.kafka import temporary_broker

    with temporary_broker(broker_cache_dir) as made:
        yield made


@pytest.fixture
def stage(mortal, tmp_path):
    with stage_on(mortal.bootstrap_servers, tmp_path) as made:
        yield made


def test_S0_2_a_broker_killed_in_the_middle_of_streams_loses_nothing(mortal, stage):
    handle = stage.handle()
    handle.start()
    play = Play(stage, handle, cast=(*CAST, "middle"))
    play.supervised = True
    play.await_taken("")
    pid = handle.pid
    play.begin()
    gate = play.people[-1].session_id
    streams = stage.watch(gate).counted
    play.until("the gated answer streams", lambda: len(streams(ev.GenChunk)) >= 2)
    mortal.kill()
    stage.server.open(gate)
    stage.server.wait_count("answered", canary=gate)  # while the log is down
    mortal.up()
    play.until("everybody has an answer and nothing is pending", play.all_at_rest)
    # On a busy machine the broker may start later than the group's session timeout of 6 s.
    evicted = handle.has_logged("the group evicted this member")
    assert handle.pid == pid or evicted, f"it was restarted:\n{handle.log_tail()}"
    assert witnesses.violations(stage, play.people) == []
    assert replay_differs(stage) == []
    (attempt,) = {(e.turn, e.step, e.attempt) for e in streams(ev.GenComplete)}
    assert attempt == (1, 1, 1), "the answer received during the outage was not requested again"


def _kept_in(outbox: Path, copy: Path) -> list[type]:
    """The types of the events that are pending in a running worker's outbox."""
    shutil.copy(outbox, copy)
    opened = Outbox(copy)
    try:
        return [type(pending.event) for pending in opened.pending()]
    finally:
        opened.close()


def test_S2_8_an_outcome_survives_a_broker_outage_and_the_death_of_its_worker(
    mortal, stage, tmp_path
):
    handle = stage.handle()
    handle.start()
    play = Play(stage, handle, cast=("slow",))
    (person,) = play.people
    play.await_taken("")
    person.begin()
    ran = lambda: stage.ledger.lines("slow_charge", session=person.session_id)  # noqa: E731
    play.until("the tool has had its effect", ran)
    mortal.kill()
    stage.ledger.release(person.session_id)
    outbox = stage.settings_of("w1").state_dir / "outbox"
    kept = wait_until("the outcome is kept", lambda: _kept_in(outbox, tmp_path / "copy"))
    assert kept == [ev.ToolResult]
    handle.kill()
    mortal.up()
    handle.start()
    play.until("everybody has an answer and nothing is pending", play.all_at_rest)
    assert person.watched.counted(ev.ToolFailedUncertain) == []
    assert person.watched.counted(ev.HumanNeeded) == []
    assert len(ran()) == 1
    assert witnesses.violations(stage, [person]) == []
