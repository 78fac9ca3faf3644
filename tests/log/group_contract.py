"""Contract tests of `door.GroupReader`, which the tests of every backend inherit: members join,
leave and restart."""

import pytest

from foldlog.log import AccessDenied, Fenced, LogUnreachable
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
    """The contract of the members of one group. One thread drives each member."""

    def test_a_lone_member_gets_all_partitions_at_its_start_offsets(self, log):
        write(log, b"0", b"1", b"2", partition=0)
        write(log, b"0", partition=3)
        member = Member(log, "w1", {0: 2})
        together(member, condition=lambda: len(member.records) == 2)
        assert member.calls == [("assigned", sorted(ALL))]
        assert sorted(r.value for r in member.records) == [b"0", b"2"]
        assert member.reader.positions() == {0: 3, 1: 0, 2: 0, 3: 1}

    def test_S2_6_a_second_member_takes_half_and_the_first_loses_only_that(self, log):
        first, second = Member(log, "w1"), Member(log, "w2")
        together(first, condition=lambda: first.owned == ALL)
        together(first, second, condition=lambda: len(first.owned) == len(second.owned) == 2)
        assert first.owned | second.owned == ALL
        assert [what for what, _ in first.calls] == ["assigned", "revoked"]
        assert set(first.reader.positions()) == first.owned
        # New records reach only the owner of their partition.
        for partition in ALL:
            write(log, b"%d" % partition, partition=partition)
        together(first, second, condition=lambda: len(first.records + second.records) == 4)
        assert {r.partition for r in first.records} == first.owned
        assert {r.partition for r in second.records} == second.owned

    def test_records_are_neither_lost_nor_repeated_while_partitions_move(self, log):
        for partition in ALL:
            write(log, *(b"%d" % number for number in range(50)), partition=partition)
        cursors: dict[int, int] = {}
        first, second = Member(log, "w1"), Member(log, "w2")
        first.start = second.start = cursors  # as in a store that both read
        together(first, condition=lambda: first.records)
        together(first, second, condition=lambda: second.owned)
        for partition in ALL:
            write(log, *(b"%d" % number for number in range(50, 60)), partition=partition)
        total = 60 * len(ALL)
        together(first, second, condition=lambda: len(first.records + second.records) >= total)
        read = [(r.partition, r.offset) for r in first.records + second.records]
        assert len(read) == len(set(read)) == total

    def test_S2_7_a_restarted_member_gets_its_partitions_back_and_moves_no_others(self, log):
        first, second = Member(log, "w1"), Member(log, "w2")
        together(first, second, condition=lambda: len(first.owned) == len(second.owned) == 2)
        owned, calls = set(first.owned), list(second.calls)
        first.reader.close()
        assert set(first.calls[-1][1]) != owned or first.calls[-1][0] != "revoked", "close revokes"
        restarted = Member(log, "w1")
        together(restarted, second, condition=lambda: restarted.owned == owned)
        together(restarted, second, condition=lambda: True)
        assert second.calls == calls

    def test_S2_7_a_restarted_member_fences_its_earlier_process(self, log):
        write(log, b"0")
        zombie = Member(log, "w1")
        together(zombie, condition=lambda: zombie.records)
        restarted = Member(log, "w1")
        together(restarted, condition=lambda: restarted.owned == ALL and restarted.records)
        with pytest.raises(Fenced, match="share a state directory"):
            until(lambda: False, zombie.step)

    def test_a_silent_members_partitions_go_to_the_others(self, log):
        first, second = Member(log, "w1"), Member(log, "w2")
        together(first, second, condition=lambda: len(first.owned) == len(second.owned) == 2)
        orphans, calls = sorted(first.owned), list(second.calls)
        first.reader.close()

        def step():
            self.pass_time(log)
            second.step()

        until(lambda: second.owned == ALL, step)
        assert second.calls[len(calls) :] == [("assigned", orphans)]

    def test_A6_members_are_listed_with_their_labels_until_the_session_timeout(self, log):
        members = [Member(log, name, label=label) for name, label in (("w1", "abc"), ("w2", ""))]
        together(*members, condition=lambda: all(len(m.owned) == 2 for m in members))
        listed = sorted(log.members("work"))
        assert [(m.group, m.instance_id, m.label) for m in listed] == [
            ("workers", "w1", "abc"),
            ("workers", "w2", ""),
        ]
        assert log.members("other") == []
        first, second = members
        first.reader.close()

        def step():
            self.pass_time(log)
            second.step()

        until(lambda: [m.instance_id for m in log.members("workers")] == ["w2"], step)

    def test_groups_are_independent(self, log):
        write(log, b"0")
        first = Member(log, "w1")
        other: list = []
        reader = log.group_reader(
            EVENTS, "watchers", "w1", lambda partitions: dict.fromkeys(partitions, 0), other.append
        )
        together(first, condition=lambda: first.owned == ALL)
        until(lambda: len(reader.positions()) == len(ALL), lambda: reader.poll(POLL_S))
        together(first, condition=lambda: first.records)
        assert first.owned == ALL and other == []

    def test_a_committed_offset_does_not_move_a_member(self, log):
        write(log, b"0", b"1", b"2")
        member = Member(log, "w1")
        together(member, condition=lambda: len(member.records) == 3)
        member.reader.commit({0: 3})
        until(lambda: self.committed(log, "workers").get(0) == 3, member.step)
        member.reader.close()
        restarted = Member(log, "w1", {0: 1})
        together(restarted, condition=lambda: len(restarted.records) == 2)
        assert [r.offset for r in restarted.records] == [1, 2]

    def test_poll_raises_an_error_of_a_callback(self, log):
        def broken(partitions):
            raise ZeroDivisionError("the store cannot be opened")

        reader = log.group_reader(EVENTS, "workers", "w1", broken, lambda revoked: None)
        with pytest.raises(ZeroDivisionError, match="cannot be opened"):
            until(lambda: False, lambda: reader.poll(POLL_S))

    def test_S0_2_a_member_that_cannot_open_its_partitions_in_an_outage_gets_them_again(self, log):
        write(log, b"0", b"1")
        member = Member(log, "w1")
        fails = [True, True]

        def assigned(partitions):
            start = member._assigned(partitions)
            if fails and fails.pop():
                raise LogUnreachable("no broker answers")
            return start

        member.reader = log.group_reader(EVENTS, "workers", "w1", assigned, member._revoked)
        together(member, condition=lambda: member.owned == ALL and len(member.records) == 2)
        all_of_them = sorted(ALL)
        assert member.calls == [
            ("assigned", all_of_them), ("revoked", all_of_them),
            ("assigned", all_of_them), ("revoked", all_of_them), ("assigned", all_of_them),
        ]  # fmt: skip

    def test_S0_2_a_member_that_joins_again_gets_its_partitions_again(self, log):
        write(log, b"0", b"1")
        member = Member(log, "w1")
        together(member, condition=lambda: member.owned == ALL and len(member.records) == 2)
        member.reader.rejoin("no broker answered")
        assert not member.owned
        write(log, b"2", b"3")
        together(member, condition=lambda: member.owned == ALL and len(member.records) == 4)
        all_of_them = sorted(ALL)
        assert member.calls == [
            ("assigned", all_of_them), ("revoked", all_of_them), ("assigned", all_of_them),
        ]  # fmt: skip

    def test_a_member_that_may_not_open_its_partitions_raises(self, log):
        def denied(partitions):
            raise AccessDenied("a right is missing")

        reader = log.group_reader(EVENTS, "workers", "w1", denied, lambda revoked: None)
        with pytest.raises(AccessDenied):
            until(lambda: False, lambda: reader.poll(POLL_S))

    def test_seek_moves_a_member(self, log):
        write(log, b"0", b"1", b"2")
        member = Member(log, "w1")
        together(member, condition=lambda: len(member.records) == 3)
        member.reader.seek(0, 1)
        member.start[0] = 1
        together(member, condition=lambda: len(member.records) == 5)
        assert [r.offset for r in member.records] == [0, 1, 2, 1, 2]
