"""The poll loop: what ends it, and what the process then says to whoever started it."""

import pytest

from foldlog.log.errors import AccessDenied, Fenced, LogFatal
from foldlog.processors.agent import Agent
from foldlog.processors.worker import supervise
from foldlog.processors.worker.host import exit_code
from foldlog.processors.worker.loop import Loop, Mailbox
from foldlog.tests.laws.manual_worker import ManualWorker

AGENT = Agent(name="a", model="m")


def test_a_fatal_producer_ends_a_worker_that_has_nothing_to_write():
    """Outcomes of effects found the producer dead, and the worker polled on as if all was well."""
    rig, mail = ManualWorker(AGENT), Mailbox()
    outcomes = rig.log.producer(on_fatal=mail.fail)
    loop = Loop(rig.log, rig.worker, "g", mail)
    reader = loop.reader()
    for _ in range(3):
        loop.round(reader)
    outcomes.die(LogFatal("the cluster forbids it"))
    with pytest.raises(LogFatal, match="forbids"):
        loop.round(reader)


def test_a_fenced_worker_ends_with_the_code_that_its_supervisor_does_not_try_again():
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
