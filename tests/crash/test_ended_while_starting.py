"""A worker that is told to end while it starts does, at once and cleanly, whatever it waits for."""

import os
import signal

import pytest

from foldlog.local.kafka import temporary_broker
from foldlog.tests.crash.fleet import await_that
from foldlog.tests.crash.rig import stage_on

pytestmark = [pytest.mark.broker, pytest.mark.crash]

POINTS = ("start.locked", "start.emitted", "partition.opened", "partition.held")


def test_S2_9_a_worker_ends_at_any_moment_of_its_start_though_no_broker_answers(
    broker_cache_dir, tmp_path
):
    """It ended when its start had ended, after the supervisor had killed it."""
    with (
        temporary_broker(broker_cache_dir) as mortal,
        stage_on(mortal.bootstrap_servers, tmp_path) as stage,
    ):
        broker_pid = mortal.status().pid
        assert broker_pid is not None
        hand = stage.hand()
        for point in POINTS:
            hand.start(arm=f"{point}:1 stop")
            await_that(f"it stands at {point}", hand.is_stopped)
            os.kill(broker_pid, signal.SIGSTOP)
            try:
                hand.signal(signal.SIGTERM)
                hand.signal(signal.SIGCONT)
                ended = hand.await_end()
            finally:
                os.kill(broker_pid, signal.SIGCONT)
            assert (point, ended.code) == (point, 0)
            assert hand.noted() == {}, "a clean end leaves no note"
