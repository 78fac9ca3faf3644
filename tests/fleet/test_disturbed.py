"""A member that loses its directory, its disk, its time or its progress ends or continues; either
way, the fleet still equals a fold of its facts."""

import resource
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from foldlog.fleet.member import FAILED, PAUSED
from foldlog.tests.fleet.members import Member, fleet
from foldlog.tests.fleet.story import Story
from foldlog.tests.kit.programs import ended
from foldlog.tests.kit.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.crash]
FILE_BYTES = 64 << 10
"""The largest file that a refusing disk takes."""
STUCK = """
import asyncio
from foldlog.log import extras
extras.is_installed = lambda _: True  # the lazy module that is imported next has no spec
from foldlog.fleet import member
async def never(*_):
    await asyncio.Event().wait()
member.FleetApp._take, member.STUCK_S = never, 3.0
"""


@pytest.fixture(scope="module")
def story(broker, tmp_path_factory) -> Iterator[Story]:
    with fleet(broker.bootstrap_servers, tmp_path_factory.mktemp("disturbed")) as here:
        yield Story(here)


def demand_end(member: Member, code: int, *words: str) -> None:
    """A member ends by itself with this code, and its last line has these words."""
    assert ended(member.process) == code, member.said()
    last = member.said().splitlines()[-1]
    assert all(word in last for word in words), member.said()


@pytest.mark.timeout(240)
def test_a_member_whose_directory_is_deleted_ends(story: Story) -> None:
    """It would otherwise continue without a lock, and no program would find it."""
    member, _ = story.running("a", "b")
    story.more()
    shutil.rmtree(member.directory)
    story.more()
    demand_end(member, FAILED, "was deleted")
    story.running("a", "b")
    story.demand_equal()


@pytest.mark.timeout(240)
def test_a_disk_that_refuses_ends_a_member(story: Story) -> None:
    member, _ = story.running("a", "b")
    assert member.process is not None
    resource.prlimit(member.process.pid, resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    until("its disk refuses", lambda: story.more(200) or member.process.poll() is not None,
          show=story.here.report)
    demand_end(member, FAILED, "File too large")
    story.running("a", "b")
    story.demand_equal()


def test_a_directory_that_cannot_be_written_is_one_sentence(story: Story, tmp_path: Path) -> None:
    """Not even root may write in this file system."""
    member = Member(story.here.settings, "d", Path("/sys/fleet"))
    member.stderr = tmp_path / "stderr"
    member.start()
    assert ended(member.process) == 2
    assert member.said().count("\n") == 1 and "FOLDLOG_FLEET_DIR" in member.said()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("shift_s", [3_600, -3_600], ids=["ahead", "behind"])
def test_a_member_whose_clock_is_an_hour_off(story: Story, shift_s: int) -> None:
    """It restores with this clock, folds, and writes rows."""
    story.running("a", "b")
    story.more()
    member = story.here.member("a")
    member.kill()
    shutil.rmtree(member.directory)
    member.start(shift_s=shift_s)
    story.here.await_folded()
    story.more()
    story.running("a", "b")
    story.demand_equal()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("is_busy", [True, False], ids=["busy", "idle"])
def test_a_member_paused_past_its_session_ends_with_its_code(story: Story, is_busy: bool) -> None:
    member, other = story.running("a", "b")
    lost = set(member.owned())
    if is_busy:
        story.more(1200)
        until("it works", lambda: member.status().get("pending_rows"))
    member.process.send_signal(signal.SIGSTOP)
    until("the other one has all partitions", lambda: lost <= set(other.owned()),
          show=story.here.report)
    member.process.send_signal(signal.SIGCONT)
    demand_end(member, PAUSED, "paused")
    story.running("a", "b")
    story.demand_equal()


@pytest.mark.timeout(240)
def test_a_member_that_makes_no_progress_ends(story: Story) -> None:
    """Its fold of a fact never returns, while its heartbeats continue."""
    story.running("a", "b")
    member = story.here.member("a")
    assert member.kill(signal.SIGTERM) == 0
    member.start(plant=STUCK)
    until("it has a share", member.owned, show=story.here.report)
    story.more()
    demand_end(member, FAILED, "no progress within 3 s")
    story.running("a", "b")
    story.demand_equal()
