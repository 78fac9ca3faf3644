"""The real supervisor: a killed worker is replaced at once, an ended one is not, none is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from foldlog.local.kafka import temporary_broker
from foldlog.schemas import events as ev
from foldlog.tests.crash import witnesses
from foldlog.tests.crash.fleet import PATIENCE_S, Hand, await_that
from foldlog.tests.crash.rig import stage_on
from foldlog.tests.crash.rounds import Play

pytestmark = [pytest.mark.broker, pytest.mark.crash]

SUPERVISE = (
    "import sys; from foldlog.processors.worker import supervise; "
    "sys.exit(supervise.run(sys.argv[1:], lambda text: print(text, flush=True)))"
)


@contextmanager
def supervised(hand: Hand) -> Iterator[subprocess.Popen]:
    """A supervisor of workers of this hand, which is gone with the block."""
    command = [sys.executable, "-c", SUPERVISE, *hand.command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        assert process.stdout is not None
        process.stdout.close()
        await_that("no process is left", lambda: not hand.processes())


def _follow(play: Play, what: str, found: Callable[[], object]) -> None:
    def looked() -> object:
        for person in play.people:
            person.react()
        return found()

    play.stage.follow_until(what, looked)


def _at_rest(play: Play) -> Callable[[], bool]:
    return lambda: all(person.is_done() for person in play.people)


def test_S2_9_a_spare_takes_over_and_the_supervisor_ends_all_of_it(stage):
    hand = stage.hand()
    with supervised(hand) as supervisor:
        play = Play(stage, hand, cast=("tools", "cancel", "steer"))
        stage.follow_until("the partitions are taken", stage.owner)
        before = stage.owner()
        play.begin()
        _follow(play, "something streams", play.streams)
        first = hand.noted()["pid"]
        os.kill(first, signal.SIGKILL)
        _follow(play, "another has taken over", lambda: stage.owner() not in ("", before))
        _follow(play, "everybody has an answer", _at_rest(play))
        assert witnesses.violations(stage, play.people) == []
        # A worker that took over from a killed one ends cleanly, within what the supervisor grants.
        supervisor.terminate()
        assert supervisor.wait(PATIENCE_S) == 0
        assert hand.processes() == []
        assert hand.noted() == {}, "a clean end leaves no note"


def test_S2_9_workers_end_with_a_killed_supervisor(stage):
    hand = stage.hand()
    with supervised(hand) as supervisor:
        stage.follow_until("the partitions are taken", stage.owner)
        assert len(hand.processes()) == 2, "a worker and its spare"
        supervisor.kill()
        await_that("both end too", lambda: not hand.processes())


def test_S0_2_a_supervised_worker_outwaits_a_broker_that_is_gone(broker_cache_dir, tmp_path):
    with (
        temporary_broker(broker_cache_dir) as mortal,
        stage_on(mortal.bootstrap_servers, tmp_path) as stage,
    ):
        hand = stage.hand()
        with supervised(hand) as supervisor:
            play = Play(stage, hand, cast=("slow",))
            stage.follow_until("the partitions are taken", stage.owner)
            (person,) = play.people
            person.begin()
            _follow(play, "the tool runs", lambda: person.watched.counted(ev.ToolStarted))
            mortal.kill()
            os.kill(hand.noted()["pid"], signal.SIGKILL)
            await_that("a worker finds no broker", lambda: hand.said("LogUnreachable: no Kafka"))
            mortal.up()
            stage.ledger.let_go(person.session_id)
            _follow(play, "everybody has an answer", _at_rest(play))
            assert supervisor.poll() is None, "it was not given up"
            assert witnesses.violations(stage, play.people) == []
