"""Rows of the fleet: what facts change, and the laws of their repetition."""

import random

import pytest
from hypothesis import given, strategies as st

from foldlog.fleet import rows
from foldlog.log.partition import partition_for
from foldlog.schemas.enums import EndReason
from foldlog.schemas.facts import (
    ApprovalAsked,
    DoubtOpened,
    SessionClosed,
    SessionOpened,
    TurnBegun,
    TurnEnded,
)
from foldlog.tests.fleet.facts import AT, PARTITIONS, History, Tables, fold, written

OWN = {"user_id": "ana", "session_id": "s", "agent": "shop", "partition": 0, "at": AT}
SEEDS = st.integers(0, 10**6)


def row(tables: Tables, table: str, key: bytes) -> rows.Row:
    found = rows.decoded(table, tables[table, key])
    assert found is not None
    return found


def repeated(facts: list, seed: int) -> list:
    """The facts with repetitions: at times, the facts of one partition of session-events are
    written again from an earlier one on."""
    pick, result = random.Random(seed), []
    for number, fact in enumerate(facts):
        result.append(fact)
        if pick.random() < 0.1:
            place = pick.randrange(3)
            earlier = [fact for fact in facts[: number + 1] if fact.partition == place]
            result += earlier[pick.randrange(len(earlier)) :] if earlier else []
    return result


@given(SEEDS, SEEDS)
def test_repeated_facts_change_nothing(seed: int, other: int) -> None:
    facts = History(seed).facts(60)
    assert fold(repeated(facts, other)) == fold(facts)


@given(SEEDS, st.integers(0, 60), st.integers(0, 60))
def test_a_changelog_that_lost_its_end_is_completed_by_the_repetition(
    seed: int, one: int, other: int
) -> None:
    """A killed member: its store has every row, its changelog those of the committed facts. The
    next member folds the facts after the committed ones again, into the same store."""
    committed, stored = sorted((one, other))
    facts = History(seed).facts(60)
    changelog = fold(facts[:committed])
    store = fold(facts[:stored])
    for fact in facts[committed:]:
        for write in written(fact, store):
            store[write.table, write.key] = write.value
            changelog[write.table, write.key] = write.value
    assert changelog == store == fold(facts)


@given(SEEDS)
def test_of_two_versions_of_a_row_the_newer_one_covers_the_other(seed: int) -> None:
    tables: Tables = {}
    for fact in History(seed).facts(40):
        for write in written(fact, tables):
            old = rows.decoded(write.table, tables.get((write.table, write.key)))
            new = rows.decoded(write.table, write.value)
            assert new is not None and (old is None or rows.covers(new, old))
            assert old is None or old == new or not rows.covers(old, new)
            tables[write.table, write.key] = write.value


def test_a_session_ends_its_turn_and_waits() -> None:
    facts = [
        SessionOpened(**OWN, offset=1, phase="chatting"),
        TurnBegun(**OWN, offset=2, turn=1),
        ApprovalAsked(**OWN, offset=3, call="1.1.0", tool="charge", expires_at=9),
        DoubtOpened(**OWN, offset=4, call="1.1.1", tool="pay", code="owner_died"),
        TurnEnded(**OWN, offset=5, turn=1, reason=EndReason.FAILED, error="529", steps=1, ms=80),
    ]
    before, after = fold(facts[:4]), fold(facts)
    asked = row(before, rows.SESSIONS, b"ana/s")
    assert asked.status == rows.WORKING and list(asked.approvals) == ["1.1.0"]
    assert list(row(before, rows.INBOX, b"ana").entries) == ["s/approval/1.1.0", "s/doubt/1.1.1"]
    ended = row(after, rows.SESSIONS, b"ana/s")
    assert (ended.status, ended.approvals, list(ended.doubts)) == (rows.IDLE, {}, ["1.1.1"])
    assert ended.failure == rows.Failure(1, "failed", "529", AT)
    inbox = row(after, rows.INBOX, b"ana")
    assert list(inbox.entries) == ["s/doubt/1.1.1", "s/failed"]
    assert (inbox.entries["s/failed"].error, inbox.entries["s/doubt/1.1.1"].error) == ("529", "")
    begun = fold([*facts, TurnBegun(**OWN, offset=6, turn=2)])
    assert list(row(begun, rows.INBOX, b"ana").entries) == ["s/doubt/1.1.1"]
    closed = fold([*facts, SessionClosed(**OWN, offset=6)])
    assert row(closed, rows.SESSIONS, b"ana/s").status == rows.ENDED


def test_an_inbox_keeps_the_newest_entries_and_counts_the_others() -> None:
    facts = [
        ApprovalAsked(
            **OWN | {"session_id": f"s{number}"}, offset=number, call="1.1.0", tool="x" * 128,
            expires_at=1,
        )
        for number in range(rows.INBOX_MAX + 5)
    ]  # fmt: skip
    tables = fold(facts)
    inbox = row(tables, rows.INBOX, b"ana")
    assert (len(inbox.entries), inbox.dropped) == (rows.INBOX_MAX, 5)
    assert "s4/approval/1.1.0" not in inbox.entries and "s5/approval/1.1.0" in inbox.entries
    assert len(tables[rows.INBOX, b"ana"]) < 500_000


def test_a_row_of_the_longest_names_fits_into_a_record() -> None:
    """The defect to avoid: a row that Kafka refuses ends every member at the same fact."""
    long = "\U0001f600" * 128
    entries = {
        f"s{number}/doubt/1.1.0": rows.Entry(
            "s" * 128, long, rows.DOUBT, AT, "1.1.0", long, 0, long, long
        )
        for number in range(rows.INBOX_MAX)
    }  # fmt: skip
    inbox = rows.InboxRow(entries=dict(entries))
    assert len(rows.encoded(inbox)) <= rows.ROW_BYTES_MAX
    assert inbox.dropped and list(inbox.entries) == list(entries)[inbox.dropped :]
    waiting = {str(number): rows.Waiting(long, AT, AT, long) for number in range(rows.WAITING_MAX)}
    session = rows.SessionRow(approvals=dict(waiting), doubts=dict(waiting))
    assert len(rows.encoded(session)) <= rows.ROW_BYTES_MAX and session.doubts


def test_a_row_that_cannot_be_read_begins_again_and_is_marked() -> None:
    fact = TurnEnded(**OWN, offset=5, turn=1, reason=EndReason.END_TURN, steps=1, ms=80)
    tables = {(rows.SESSIONS, b"ana/s"): b"\xff junk"}
    first = written(fact, tables)[0]
    assert first.lost and rows.decoded(rows.SESSIONS, first.value).damaged
    assert not any(write.lost for write in written(fact, {}))


@pytest.mark.parametrize("value", ["", "a|b", "a|0000001|2", "ünïcode"])
def test_a_key_of_an_hour_can_be_read(value: str) -> None:
    cell = rows.Cell(rows.AGENT, value, 497_222, 7)
    assert rows.cell_of(cell.key) == cell


@pytest.mark.parametrize(
    ("table", "key"),
    [(rows.SESSIONS, b"ana"), (rows.SESSIONS, b"\xff/s"), (rows.HOURS, b"x|y|1|2"),
     (rows.HOURS, b"all"), (rows.HOURS, rows.Cell(rows.ALL, "", 1, 3).key), (rows.INBOX, b"\xff"),
     (rows.INBOX, None), (rows.SESSIONS, b"__faust\0offset__"),
     (rows.INBOX, b"__faust\0offset__"), (rows.INBOX, b"bob")],
)  # fmt: skip
def test_a_record_with_another_key_is_no_row(table: str, key: bytes | None) -> None:
    place = partition_for("ana", PARTITIONS)
    assert not rows.is_key(table, key, place, PARTITIONS)
    assert rows.is_key(rows.SESSIONS, b"ana/s", place, PARTITIONS)


def test_sums_that_are_too_large_stop() -> None:
    row = rows.HourRow(picodollars=rows.SUM_MAX, tokens=rows.SUM_MAX)
    row.add(row)
    assert rows.decoded(rows.HOURS, rows.encoded(row)).tokens == rows.SUM_MAX
