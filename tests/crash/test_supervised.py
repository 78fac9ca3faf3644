"""The real supervisor restarts a killed worker, does not restart one that ended, and leaves no
process."""

import os
import signal
from collections.abc import Callable

import pytest

from foldlog.local.kafka import temporary_broker
from foldlog.schemas import events as ev
from foldlog.tests.crash import witnesses
from foldlog.tests.crash.fleet import PATIENCE_S, wait_until
from foldlog.tests.crash.rig import stage_on, supervised
from foldlog.tests.crash.rounds import Play

pytestmark = [pytest.mark.broker, pytest.mark.crash, pytest.mark.spread]


def _follow(play: Play, what: str, found: Callable[[], object]) -> None:
    def reacted() -> object:
        for person in play.people:
            person.react()
        return found()

    play.stage.follow_until(what, reacted)


def _at_rest(play: Play) -> Callable[[], bool]:
    return lambda: all(person.is_done() for person in play.people)


def test_S2_9_a_spare_takes_over_and_the_supervisor_ends_every_process(stage):
    handle = stage.handle()
    with supervised(handle) as supervisor:
        play = Play(stage, handle, cast=("tools", "cancel", "steer"))
        stage.follow_until("the partitions are taken", stage.owner)
        before = stage.owner()
        play.begin()
        _follow(play, "something streams", play.streams)
        first = handle.info()["pid"]
        os.kill(first, signal.SIGKILL)
        _follow(play, "another has taken over", lambda: stage.owner() not in ("", before))
        _follow(play, "everybody has an answer", _at_rest(play))
        assert witnesses.violations(stage, play.people) == []
        # A worker that took over from a killed one ends cleanly, within the supervisor's grace.
        supervisor.terminate()
        assert supervisor.wait(PATIENCE_S) == 0
        assert handle.processes() == []
        assert handle.info() == {}, "a clean end leaves no note"


def test_S2_9_workers_end_with_a_killed_supervisor(stage):
    handle = stage.handle()
    with supervised(handle) as supervisor:
        stage.follow_until("the partitions are taken", stage.owner)
        assert len(handle.processes()) == 2, "a worker and its spare"
        supervisor.kill()
        wait_until("both end too", lambda: not handle.processes())


def test_S0_2_a_supervised_worker_waits_for_a_killed_broker(broker_cache_dir, tmp_path):
    with (
        temporary_broker(broker_cache_dir) as mortal,
        stage_on(mortal.bootstrap_servers, tmp_path) as stage,
    ):
        handle = stage.handle()
        with supervised(handle) as supervisor:
            play = Play(stage, handle, cast=("slow",))
            stage.follow_until("the partitions are taken", stage.owner)
            (person,) = play.people
            person.begin()
            _follow(play, "the tool runs", lambda: person.watched.counted(ev.ToolStarted))
            mortal.kill()
            os.kill(handle.info()["pid"], signal.SIGKILL)
            unreachable = "LogUnreachable: no Kafka"
            wait_until("a worker finds no broker", lambda: handle.has_logged(unreachable))
            mortal.up()
            stage.ledger.release(person.session_id)
            _follow(play, "everybody has an answer", _at_rest(play))
            assert supervisor.poll() is None, "the supervisor did not give up"
            assert witnesses.violations(stage, play.people) == []
