"""The deadline of a write, and of a viewer's pause."""

import asyncio

from foldlog.consumers.gateway.deadline import Deadline

SECONDS = 0.02


def test_something_that_does_not_end_in_time_expires_once():
    async def play():
        expired = asyncio.Queue()
        deadline = Deadline(SECONDS, lambda: expired.put_nowait("late"))
        deadline.begin()
        await expired.get()
        deadline.begin()
        await expired.get()
        return expired.empty()

    assert asyncio.run(play())


def test_the_time_is_that_of_the_newest_use():
    """The first use ends in time. Its timer must not end the second use, which began later."""

    async def play():
        loop, expired = asyncio.get_running_loop(), asyncio.Event()
        deadline = Deadline(SECONDS, expired.set)
        deadline.begin()
        await asyncio.sleep(SECONDS / 2)
        deadline.end()
        began = loop.time()
        deadline.begin()
        await expired.wait()
        return loop.time() - began

    assert asyncio.run(play()) >= SECONDS


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
        await other.wait()
        return late

    assert asyncio.run(play()) == []
