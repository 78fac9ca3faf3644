"""The errors that end the poll loop, and the exit code of the process."""

import pytest

from foldlog.log.errors import AccessDenied, Fenced, LogFatal
from foldlog.processors.agent import Agent
from foldlog.processors.worker import supervise
from foldlog.processors.worker.host import exit_code
from foldlog.processors.worker.loop import Loop, Mailbox
from foldlog.tests.laws.manual_worker import ManualWorker

AGENT = Agent(name="a", model="m")


def test_a_fatal_producer_ends_a_worker_that_has_nothing_to_write():
    """The defect: the outcomes of effects failed on the dead producer, but the worker continued to
    poll."""
    rig, mail = ManualWorker(AGENT), Mailbox()
    outcomes = rig.log.producer(on_fatal=mail.fail)
    loop = Loop(rig.log, rig.worker, "g", mail)
    reader = loop.reader()
    for _ in range(3):
        loop.round(reader)
    outcomes.die(LogFatal("the cluster forbids it"))
    with pytest.raises(LogFatal, match="forbids"):
        loop.round(reader)


def test_a_fenced_worker_ends_with_the_exit_code_that_is_not_retried():
    rig = ManualWorker(AGENT)
    loop = Loop(rig.log, rig.worker, "g", Mailbox())
    reader = loop.reader()
    loop.round(reader)
    other = ManualWorker(AGENT, "2", rig.log)
    newer = Loop(rig.log, other.worker, "g", Mailbox())
    newer.round(newer.reader())
    with pytest.raises(Fenced) as fenced:
        loop.round(reader)
    assert exit_code([fenced.value]) == supervise.MISUSE
    assert exit_code([LogFatal("x")]) == 1
    assert exit_code([AccessDenied("a right was taken away")]) == supervise.LOG_UNREACHABLE
    assert exit_code([]) == 0
