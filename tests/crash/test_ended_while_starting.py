"""A worker that gets SIGTERM during its start ends at once and cleanly."""

import os
import signal

import pytest

from foldlog.local.kafka import temporary_broker
from foldlog.tests.crash.fleet import wait_until
from foldlog.tests.crash.rig import stage_on

pytestmark = [pytest.mark.broker, pytest.mark.crash]

POINTS = ("start.locked", "start.emitted", "partition.opened", "partition.held")


def test_S2_9_a_worker_can_be_ended_during_its_start_without_a_broker(
    broker_cache_dir, tmp_path
):
    """The defect: a worker handled SIGTERM only once its start was complete; by then, its
    supervisor had killed it."""
    with (
        temporary_broker(broker_cache_dir) as mortal,
        stage_on(mortal.bootstrap_servers, tmp_path) as stage,
    ):
        broker_pid = mortal.status().pid
        assert broker_pid is not None
        handle = stage.handle()
        for point in POINTS:
            handle.start(arm=f"{point}:1 stop")
            at = wait_until(f"it stops at {point}", lambda: handle.ended() or handle.is_stopped())
            assert at is True, (point, at, handle.log.read_text()[-3000:])
            os.kill(broker_pid, signal.SIGSTOP)
            try:
                handle.signal(signal.SIGTERM)
                handle.signal(signal.SIGCONT)
                ended = handle.await_end()
            finally:
                os.kill(broker_pid, signal.SIGCONT)
            assert (point, ended.code) == (point, 0)
            assert handle.info() == {}, "a clean end leaves no note"
