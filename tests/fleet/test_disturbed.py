"""A member that loses its directory, its disk, its time or its progress ends or continues; either
way, the fleet still equals a fold of its facts.

The tests share one fleet, and disturb its member `a`. The rows are compared once, at the end.
"""

import resource
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from foldlog.fleet.member import FAILED, PAUSED
from foldlog.tests.fleet.members import PARTITIONS, Member, fleet
from foldlog.tests.fleet.story import Story
from foldlog.tests.kit.programs import ended
from foldlog.tests.kit.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.crash, pytest.mark.timeout(240)]
LEFT_BYTES = 4 << 10
"""How much longer than what the member has printed a file may get on a disk that refuses."""
FENCE_S, SESSION_S = 2.0, 40.0
LONG_SESSION = f"""
import asyncio, os
from aiokafka.consumer.fetcher import Fetcher
from foldlog.log import extras
extras.is_installed = lambda _: True  # the lazy module that is imported next has no spec
from foldlog.fleet import member
member.FENCE_S, member.SESSION_S = {FENCE_S}, {SESSION_S}
seek_to = Fetcher.seek_to
def in_its_own_loop(fetcher, *place):
    if asyncio.get_running_loop() is not fetcher._loop:
        os._exit(9)  # Faust would continue after an exception
    seek_to(fetcher, *place)
Fetcher.seek_to = in_its_own_loop
"""
LATE = """
import asyncio, sys
from foldlog.fleet import book, consumer, tables
Recovery, Consumer, Book = tables.FleetRecovery, consumer.FleetConsumer, book.Book
read, restore, revoke, revoked = Recovery._read, Recovery._restore, Book.revoke, None
leave, over = Consumer.on_partitions_revoked, None
async def late_read(self, *what, to_the_end):
    global revoked, over
    await read(self, *what, to_the_end=to_the_end)
    if to_the_end and revoked is None:
        revoked, over = asyncio.Event(), asyncio.Event()
        print("first restore", file=sys.stderr, flush=True)
        await revoked.wait()
def announced_revoke(self):
    revoke(self)
    if revoked:
        revoked.set()
async def noted_restore(self, generation):
    try:
        await restore(self, generation)
    finally:
        over.set()
async def slow_leave(self, partitions):
    await leave(self, partitions)
    if over:
        await over.wait()
Recovery._read, Recovery._restore = late_read, noted_restore
Book.revoke, Consumer.on_partitions_revoked = announced_revoke, slow_leave
"""
STUCK = """
import asyncio
from foldlog.log import extras
extras.is_installed = lambda _: True
from foldlog.fleet import member
async def never(*_):
    await asyncio.Event().wait()
member.FleetApp._take, member.STUCK_S = never, 3.0
"""


@pytest.fixture(scope="module")
def story(broker, tmp_path_factory) -> Iterator[Story]:
    with fleet(broker.bootstrap_servers, tmp_path_factory.mktemp("disturbed")) as here:
        story = Story(here)
        member = here.member("b")
        member.start(plant=LONG_SESSION + LATE)
        until("b restores", lambda: "first restore" in member.said(), show=here.report)
        story.running("a", "b")
        yield story
        story.running("a", "b")
        story.demand_equal()


def demand_end(member: Member, code: int, *words: str) -> None:
    """A member ends by itself with this code and one sentence, which has these words."""
    assert ended(member.process) == code, member.said()
    last = member.said().splitlines()[-1]
    assert all(word in last for word in words), member.said()
    assert "Traceback" not in member.said()


def test_a_restore_that_ends_during_a_rebalance_does_not_count(story: Story) -> None:
    """The first restore of `b` ends after `a` has joined. Otherwise, `b` would fold and commit
    facts of partitions that are no longer its own."""
    members = story.running("a", "b")
    read = [sorted(map(int, member.status()["partitions"])) for member in members]
    assert sorted(read[0] + read[1]) == list(range(PARTITIONS)), read


def test_a_member_paused_within_its_session_continues(story: Story) -> None:
    """Its last heartbeat is too old to write; the next one is confirmed."""
    _, member = story.running("a", "b")
    assert member.process is not None
    story.more(600)
    until("it works", lambda: member.status().get("pending_rows"), show=story.here.report)
    member.process.send_signal(signal.SIGSTOP)
    over = time.monotonic() + 2 * FENCE_S
    until("its heartbeat is too old", lambda: time.monotonic() > over)
    member.process.send_signal(signal.SIGCONT)
    story.here.await_folded()
    assert member.process.poll() is None, member.said()


@pytest.mark.parametrize("is_busy", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_member_paused_past_its_session_ends(story: Story, is_busy: bool) -> None:
    member, other = story.running("a", "b")
    assert member.process is not None
    lost = set(member.owned())
    if is_busy:
        story.more(1200)
        until("it works", lambda: member.status().get("pending_rows"), show=story.here.report)
    member.process.send_signal(signal.SIGSTOP)
    until("the other one has all partitions", lambda: lost <= set(other.owned()),
          show=story.here.report)
    member.process.send_signal(signal.SIGCONT)
    demand_end(member, PAUSED, "paused")


def test_a_disk_that_refuses_ends_a_member(story: Story) -> None:
    member, _ = story.running("a", "b")
    assert member.process is not None
    limit = member.stderr.stat().st_size + LEFT_BYTES
    resource.prlimit(member.process.pid, resource.RLIMIT_FSIZE, (limit, limit))
    story.more(600)
    demand_end(member, FAILED, "File too large")


@pytest.mark.full
def test_a_member_that_makes_no_progress_ends(story: Story) -> None:
    """Its fold of a fact never returns, while its heartbeats continue."""
    member = story.here.member("a")
    member.kill()
    member.start(plant=STUCK)
    until("it has a share", lambda: member.status().get("partitions"), show=story.here.report)
    story.more()
    demand_end(member, FAILED, "no progress within 3 s")


def test_a_member_whose_directory_is_deleted_ends(story: Story) -> None:
    """It would otherwise continue without a lock, and no program would find it. The next one
    restores its tables with a clock that is an hour ahead, folds, and writes rows."""
    member, _ = story.running("a", "b")
    story.more()
    shutil.rmtree(member.directory)
    story.more()
    demand_end(member, FAILED, "was deleted")
    member.process = None
    member.start(shift_s=3_600)
    story.more()
    story.here.await_folded()


@pytest.mark.full
def test_a_directory_that_cannot_be_written_is_one_sentence(story: Story, tmp_path: Path) -> None:
    """Not even root may write in this file system."""
    member = Member(story.here.settings, "d", Path("/sys/fleet"))
    member.stderr = tmp_path / "stderr"
    member.start()
    assert ended(member.process) == 2
    assert member.said().count("\n") == 1 and "FOLDLOG_FLEET_DIR" in member.said()
