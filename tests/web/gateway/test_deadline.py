"""The deadline of a write, and of a viewer's pause."""

import asyncio

from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.web.gateway.deadline import Deadline

SECONDS = 0.02


def test_something_that_does_not_end_in_time_expires_once():
    async def play():
        expired = asyncio.Queue()
        deadline = Deadline(SECONDS, lambda: expired.put_nowait("late"))
        for _ in range(2):
            deadline.begin()
            await asyncio.wait_for(expired.get(), PATIENCE_S)
        return expired.empty()

    assert asyncio.run(play())


def test_the_time_is_that_of_the_newest_use():
    """The first use ends in time. Its timer must not end the second use, which began later."""

    async def play():
        now, expired = 100.0, asyncio.Event()
        asyncio.get_running_loop().time = lambda: now
        deadline = Deadline(SECONDS, expired.set)
        deadline.begin()
        now += SECONDS / 2
        deadline.end()
        deadline.begin()
        seen = []
        for _ in range(2):
            now += SECONDS * 0.6
            for _ in range(3):  # rounds of the loop, which calls what is due
                await asyncio.sleep(0)
            seen.append(expired.is_set())
        return seen

    assert asyncio.run(play()) == [False, True]


def test_what_ended_or_was_closed_does_not_expire():
    async def play():
        late = []
        ended = Deadline(SECONDS, lambda: late.append("ended"))
        closed = Deadline(SECONDS, lambda: late.append("closed"))
        for one in (ended, closed):
            one.begin()
        ended.end()
        closed.close()
        other = asyncio.Event()
        control = Deadline(SECONDS, other.set)  # its timer is later than theirs
        control.begin()
        await asyncio.wait_for(other.wait(), PATIENCE_S)
        return late

    assert asyncio.run(play()) == []
