"""The promises of a group reader, as cases that every backend inherits.

This file owns who reads what when members come, go and return. It must not know the backend.
"""

import pytest

from foldlog.log import Fenced
from foldlog.tests.log.contract import (
    ALL,
    EVENTS,
    POLL_S,
    Backend,
    Member,
    together,
    until,
    write,
)


class GroupContract(Backend):
    """Members of one group, each driven by one thread."""

    def test_a_lone_member_gets_all_partitions_from_the_offsets_it_names(self, log):
        write(log, b"0", b"1", b"2", partition=0)
        write(log, b"0", partition=3)
        member = Member(log, "w1", {0: 2})
        together(member, condition=lambda: len(member.records) == 2)
        assert member.told == [("given", sorted(ALL))]
        assert sorted(r.value for r in member.records) == [b"0", b"2"]
        assert member.reader.positions() == {0: 3, 1: 0, 2: 0, 3: 1}

    def test_S2_6_a_second_member_takes_half_and_the_first_loses_only_that(self, log):
        first, second = Member(log, "w1"), Member(log, "w2")
        together(first, condition=lambda: first.held == ALL)
        together(first, second, condition=lambda: len(first.held) == len(second.held) == 2)
        assert first.held | second.held == ALL
        assert [what for what, _ in first.told] == ["given", "taken"]
        assert set(first.reader.positions()) == first.held
        # What is written now reaches the owner of its partition, and nobody else.
        for partition in ALL:
            write(log, b"%d" % partition, partition=partition)
        together(first, second, condition=lambda: len(first.records + second.records) == 4)
        assert {r.partition for r in first.records} == first.held
        assert {r.partition for r in second.records} == second.held

    def test_records_are_neither_lost_nor_repeated_while_partitions_move(self, log):
        for partition in ALL:
            write(log, *(b"%d" % number for number in range(50)), partition=partition)
        cursors: dict[int, int] = {}
        first, second = Member(log, "w1"), Member(log, "w2")
        first.start = second.start = cursors  # the store that both would see
        together(first, condition=lambda: first.records)
        together(first, second, condition=lambda: second.held)
        for partition in ALL:
            write(log, *(b"%d" % number for number in range(50, 60)), partition=partition)
        total = 60 * len(ALL)
        together(first, second, condition=lambda: len(first.records + second.records) >= total)
        seen = [(r.partition, r.offset) for r in first.records + second.records]
        assert len(seen) == len(set(seen)) == total

    def test_S2_7_a_member_that_restarts_has_its_partitions_back_and_moves_nobodys(self, log):
        first, second = Member(log, "w1"), Member(log, "w2")
        together(first, second, condition=lambda: len(first.held) == len(second.held) == 2)
        held, told = set(first.held), list(second.told)
        first.reader.close()
        assert first.told[-1][0] != "taken" or set(first.told[-1][1]) != held  # closing is silent
        again = Member(log, "w1")
        together(again, second, condition=lambda: again.held == held)
        together(again, second, condition=lambda: True)
        assert second.told == told

    def test_S2_7_a_killed_member_that_restarts_fences_what_is_left_of_it(self, log):
        write(log, b"0")
        zombie = Member(log, "w1")
        together(zombie, condition=lambda: zombie.records)
        again = Member(log, "w1")
        together(again, condition=lambda: again.held == ALL and again.records)
        with pytest.raises(Fenced, match="share a state directory"):
            until(lambda: False, zombie.step)

    def test_a_member_that_stays_away_loses_its_partitions_to_the_others(self, log):
        first, second = Member(log, "w1"), Member(log, "w2")
        together(first, second, condition=lambda: len(first.held) == len(second.held) == 2)
        left, told = sorted(first.held), list(second.told)  # who came first held all for a while
        first.reader.close()

        def step():
            self.pass_time(log)
            second.step()

        until(lambda: second.held == ALL, step)
        assert second.told[len(told) :] == [("given", left)]

    def test_A6_members_are_listed_with_their_labels_until_the_session_timeout(self, log):
        members = [Member(log, name, label=label) for name, label in (("w1", "abc"), ("w2", ""))]
        together(*members, condition=lambda: all(len(m.held) == 2 for m in members))
        listed = sorted(log.members("work"))
        assert [(m.group, m.instance_id, m.label) for m in listed] == [
            ("workers", "w1", "abc"),
            ("workers", "w2", ""),
        ]
        assert log.members("nobody") == []
        first, second = members
        first.reader.close()

        def step():
            self.pass_time(log)
            second.step()

        until(lambda: [m.instance_id for m in log.members("workers")] == ["w2"], step)

    def test_groups_do_not_disturb_each_other(self, log):
        write(log, b"0")
        first = Member(log, "w1")
        other: list = []
        reader = log.group_reader(
            EVENTS, "watchers", "w1", lambda given: dict.fromkeys(given, 0), other.append
        )
        together(first, condition=lambda: first.held == ALL)
        until(lambda: len(reader.positions()) == len(ALL), lambda: reader.poll(POLL_S))
        together(first, condition=lambda: first.records)
        assert first.held == ALL and other == []

    def test_a_committed_offset_is_a_hint_that_nobody_follows(self, log):
        write(log, b"0", b"1", b"2")
        member = Member(log, "w1")
        together(member, condition=lambda: len(member.records) == 3)
        member.reader.commit({0: 3})
        until(lambda: self.committed(log, "workers").get(0) == 3, member.step)
        member.reader.close()
        again = Member(log, "w1", {0: 1})
        together(again, condition=lambda: len(again.records) == 2)
        assert [r.offset for r in again.records] == [1, 2]

    def test_an_error_of_a_callback_leaves_poll(self, log):
        def broken(partitions):
            raise ZeroDivisionError("the store can not be opened")

        reader = log.group_reader(EVENTS, "workers", "w1", broken, lambda taken: None)
        with pytest.raises(ZeroDivisionError, match="can not be opened"):
            until(lambda: False, lambda: reader.poll(POLL_S))

    def test_seek_of_a_member(self, log):
        write(log, b"0", b"1", b"2")
        member = Member(log, "w1")
        together(member, condition=lambda: len(member.records) == 3)
        member.reader.seek(0, 1)
        member.start[0] = 1
        together(member, condition=lambda: len(member.records) == 5)
        assert [r.offset for r in member.records] == [0, 1, 2, 1, 2]
