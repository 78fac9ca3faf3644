"""What a member has done: which fact is next, what may be committed, when it may write."""

import asyncio

import pytest

from foldlog.fleet.book import Book, TooLate
from foldlog.tests.kit.waiting import PATIENCE_S


class Clock:
    """A clock that the test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_member_may_write_for_a_while_after_a_heartbeat_was_sent() -> None:
    clock = Clock()
    book = Book(5.0, clock)
    clock.now += 4
    book.beat(clock.now)
    clock.now += 4.9
    book.demand_time()
    book.beat(clock.now - 8)  # the response to an older heartbeat
    clock.now += 0.2
    with pytest.raises(TooLate):
        book.demand_time()

    async def waits() -> None:
        write = asyncio.ensure_future(book.wait_for_time())
        await asyncio.sleep(0)
        assert not write.done()
        book.beat(clock.now)
        await asyncio.wait_for(write, PATIENCE_S)

    asyncio.run(waits())
    book.demand_time()


@pytest.mark.parametrize(
    ("committed", "start"), [(None, 3), (7, 7), (2, 3), (12, 3), (10, 10), (0, 3)]
)
def test_a_partition_begins_at_its_commit_within_the_topic(committed, start) -> None:
    book = Book(5.0)
    assert book.begin(0, committed, first=3, end=10) == start


def test_a_partition_continues_after_what_is_folded_until_it_is_revoked() -> None:
    book = Book(5.0)
    book.begin(0, None, 0, 10)
    book.folded_to(0, 6)
    assert book.begin(0, 2, 0, 12) == 6
    book.revoke()
    assert book.owned() == {} and book.begin(0, 2, 0, 12) == 2


def test_a_member_answers_once_it_restored_and_caught_up() -> None:
    book = Book(5.0)
    book.begin(0, None, 0, 2)
    assert not book.is_ready(0)
    book.restored = frozenset({0})
    book.folded_to(0, 1)
    assert not book.is_ready(0)
    book.folded_to(0, 2)
    assert book.is_ready(0) and not book.is_ready(1)
    book.stop_answering()
    assert not book.is_ready(0)


def test_a_hole_is_read_again_once_a_second() -> None:
    clock = Clock()
    book = Book(5.0, clock)
    book.begin(0, None, 0, 9)
    assert book.may_rewind(0) and not book.may_rewind(0)
    clock.now += 1.1
    assert book.may_rewind(0) and not book.may_rewind(0)
    book.folded_to(0, 1)
    assert book.may_rewind(0)


async def confirmed(book: Book, *ends: object) -> bool:
    loop = asyncio.get_running_loop()
    for end in ends:
        row = loop.create_future()
        book.sent(row)
        if isinstance(end, Exception):
            loop.call_soon(row.set_exception, end)
        elif end is not None:
            loop.call_soon(row.set_result, end)
    return await book.confirmed(0.05)


@pytest.mark.parametrize(
    ("ends", "is_confirmed"),
    [((), True), (("a", "b"), True), (("a", None), False), (("a", OSError()), False)],
)
def test_facts_are_committed_after_every_row_is_confirmed(ends, is_confirmed) -> None:
    assert asyncio.run(confirmed(Book(5.0), *ends)) is is_confirmed
