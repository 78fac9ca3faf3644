"""Contract tests of `door.Log`, which the tests of every backend inherit.

The abstract hooks at the top do what is different in each backend, such as trimming a partition.
"""

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from foldlog.log import (
    AppendError,
    Delivered,
    Log,
    OffsetGone,
    Record,
    RecordTooLarge,
    TopicMismatch,
    TopicMissing,
    partition_for,
)
from foldlog.schemas.topics import RECORD_BYTES_MAX, TopicSpec

EVENTS = "events"
PARTITIONS = 4
POLLS_MAX = 1200
"""The bound of every wait: with POLL_S each, two minutes, which only a hang reaches."""
POLL_S = 0.1

SPEC = TopicSpec(
    name=EVENTS,
    key="session",
    cleanup="delete",
    partitions=PARTITIONS,
    holds="test records",
    config={"message.timestamp.type": "LogAppendTime"},
)


def until(condition: Callable[[], object], step: Callable[[], object]) -> None:
    """Repeat `step` until `condition` holds. `step` must wait a little each time."""
    for _ in range(POLLS_MAX):
        if condition():
            return
        step()
    raise AssertionError(f"the condition did not hold after {POLLS_MAX} steps")


def read(reader, count: int) -> list[Record]:
    """The next `count` records of `reader`, and any others that arrived in the same poll."""
    records: list[Record] = []
    until(lambda: len(records) >= count, lambda: records.extend(reader.poll(POLL_S)))
    return records


def write(log: Log, *values: bytes, partition: int = 0, key: str = "k") -> list[Delivered]:
    """Append `values` in order, and return their positions."""
    answers: list[Delivered | AppendError] = []
    producer = log.producer(brief=True)
    for value in values:
        producer.append(EVENTS, key, value, partition=partition, on_delivery=answers.append)
    assert producer.flush(30) == 0
    producer.close()
    assert all(isinstance(answer, Delivered) for answer in answers), answers
    return answers


class Backend(ABC):
    """The hooks that a contract class needs from a backend. `log`: a fixture that is an empty
    log."""

    @abstractmethod
    def recreate(self, log: Log) -> None:
        """Delete EVENTS and create it again."""

    @abstractmethod
    def committed(self, log: Log, group: str) -> dict[int, int]:
        """The offsets of EVENTS that the group has committed."""

    @abstractmethod
    def pass_time(self, log: Log) -> None:
        """Advance the broker's clock by at least a few milliseconds."""


class LogContract(Backend):
    """The contract of producers and readers."""

    def test_S2_1_records_are_read_as_they_were_written(self, log):
        sent = [
            ("a", b"1", ()),
            ("ü-key", b"", (("t", b"MESSAGE_RECEIVED"), ("w", b"producer"), ("t", b"twice"))),
            (b"\xff\x00 no text", bytes(range(256)), (("empty", b""),)),
            (None, b"no key", ()),
            ("a", None, ()),
        ]
        producer = log.producer()
        for key, value, headers in sent:
            producer.append(EVENTS, key, value, headers, partition=2)
        assert producer.flush(30) == 0
        records = read(log.reader(EVENTS, {2: 0}), len(sent))
        assert [(r.key, r.value, r.headers) for r in records] == [
            (key.encode() if isinstance(key, str) else key, value, headers)
            for key, value, headers in sent
        ]
        assert [(r.topic, r.partition, r.offset) for r in records] == [
            (EVENTS, 2, offset) for offset in range(len(sent))
        ]
        assert records[1].header("t") == b"twice" and records[1].header("none") is None

    @pytest.mark.parametrize("partitions", [PARTITIONS, 7])
    def test_a_key_is_in_the_partition_that_partition_for_computes(self, log, partitions):
        # Also 7 partitions: with a power of two the sign of the hash would not matter.
        log.apply_topics([replace(SPEC, name="keys", partitions=partitions)])
        keys = [f"s{'x' * (i % 9)}-{i}" for i in range(200)] + ["", "é", "日本", "#3", "u1/s1"]
        producer = log.producer(brief=True)
        for key in keys:
            producer.append("keys", key, b"v")
        assert producer.flush(30) == 0
        records = read(log.reader("keys", dict.fromkeys(range(partitions), 0)), len(keys))
        placed = {r.key.decode(): r.partition for r in records}
        assert placed == {key: partition_for(key, partitions) for key in keys}
        assert set(placed.values()) == set(range(partitions))

    def test_S2_2_a_partition_has_each_producers_records_in_order(self, log):
        first, second = log.producer(), log.producer()
        for number in range(300):
            first.append(EVENTS, "k", b"1 %d" % number, partition=1)
            second.append(EVENTS, "k", b"2 %d" % number, partition=1)
        assert first.flush(30) == second.flush(30) == 0
        records = read(log.reader(EVENTS, {1: 0}), 600)
        for name in (b"1", b"2"):
            values = [r.value for r in records if r.value.startswith(name)]
            assert values == [b"%s %d" % (name, number) for number in range(300)]

    def test_on_delivery_gets_the_position_of_a_record_once(self, log):
        answers: list[tuple[int, Delivered | AppendError]] = []
        producer = log.producer()
        for number in range(100):
            producer.append(
                EVENTS, f"k{number}", b"%d" % number,
                on_delivery=lambda answer, number=number: answers.append((number, answer)),
            )  # fmt: skip
        assert producer.flush(30) == 0
        assert sorted(number for number, _ in answers) == list(range(100))
        records = read(log.reader(EVENTS, dict.fromkeys(range(PARTITIONS), 0)), 100)
        stored = {int(r.value): Delivered(r.partition, r.offset) for r in records}
        assert dict(answers) == stored

    def test_a_callback_may_append(self, log):
        producer, answers, finished = log.producer(), [], threading.Event()

        def echo(answer):
            answers.append(answer)
            if len(answers) < 3:
                producer.append(EVENTS, "k", b"echo", on_delivery=echo)
            else:
                finished.set()

        producer.append(EVENTS, "k", b"first", on_delivery=echo)
        until(finished.is_set, lambda: producer.flush(POLL_S))
        assert [answer.offset for answer in answers] == [0, 1, 2]

    def test_S2_3_a_record_may_have_the_maximum_size_and_not_a_byte_more(self, log):
        noise = random.Random(1).randbytes(RECORD_BYTES_MAX)  # incompressible
        headers = (("t", b"GEN_COMPLETE"),)
        room = RECORD_BYTES_MAX - len("key") - len("t") - len(b"GEN_COMPLETE") - 10
        producer, answers = log.producer(), []
        with pytest.raises(RecordTooLarge, match=f"{RECORD_BYTES_MAX + 1} bytes"):
            producer.append(EVENTS, "key", noise[: room + 1], headers, on_delivery=answers.append)
        producer.append(EVENTS, "key", noise[:room], headers, on_delivery=answers.append)
        # Together they exceed the maximum size of a batch.
        producer.append(EVENTS, "key", noise[:room], headers, on_delivery=answers.append)
        assert producer.flush(30) == 0
        at = partition_for("key", PARTITIONS)
        assert answers == [Delivered(at, 0), Delivered(at, 1)]
        assert [r.value for r in read(log.reader(EVENTS, {at: 0}), 2)] == [noise[:room]] * 2

    def test_a_reader_starts_at_its_start_offsets(self, log):
        write(log, b"0", b"1", b"2", b"3", partition=0)
        write(log, b"0", b"1", partition=3)
        reader = log.reader(EVENTS, {0: 2, 3: 1, 1: 0})
        assert reader.positions() == {0: 2, 3: 1, 1: 0}
        records = sorted(read(reader, 3))
        assert [(r.partition, r.value) for r in records] == [(0, b"2"), (0, b"3"), (3, b"1")]
        assert reader.positions() == {0: 4, 3: 2, 1: 0}
        assert reader.poll(POLL_S) == []

    def test_a_reader_at_the_end_gets_new_records(self, log):
        write(log, b"0")
        reader = log.reader(EVENTS, {0: 1})
        assert reader.poll(POLL_S) == []
        write(log, b"1")
        assert [r.offset for r in read(reader, 1)] == [1]

    def test_max_records_bounds_a_poll_and_loses_nothing(self, log):
        write(log, *(b"%d" % number for number in range(25)))
        reader = log.reader(EVENTS, {0: 0})
        batches: list[list[Record]] = []
        until(
            lambda: sum(map(len, batches)) >= 25,
            lambda: batches.append(reader.poll(POLL_S, max_records=1 + len(batches) % 4)),
        )
        assert max(map(len, batches)) <= 4
        assert [int(r.value) for batch in batches for r in batch] == list(range(25))

    def test_seek_moves_a_reader_back_and_forth(self, log):
        write(log, *(b"%d" % number for number in range(10)))
        write(log, b"other", partition=1)
        reader = log.reader(EVENTS, {0: 0, 1: 0})
        read(reader, 11)
        reader.seek(0, 7)
        assert reader.positions() == {0: 7, 1: 1}
        assert [r.offset for r in read(reader, 3)] == [7, 8, 9]
        reader.seek(0, 0)
        assert [r.offset for r in read(reader, 10)] == list(range(10))
        reader.seek(0, 10)
        assert reader.poll(POLL_S) == []
        write(log, b"10")
        assert [r.offset for r in read(reader, 1)] == [10]

    @pytest.mark.parametrize("offset", [1, 6, 600])
    def test_S2_10_a_missing_offset_raises_once_and_other_partitions_are_read(self, log, offset):
        write(log, *(b"%d" % number for number in range(5)), partition=0)
        write(log, b"fine", partition=1)
        log.delete_before(EVENTS, {0: 2})
        log.delete_before(EVENTS, {0: 1})  # they are deleted already
        log.delete_before(EVENTS, {})
        assert log.first_offsets(EVENTS)[0] == 2 and log.end_offsets(EVENTS)[0] == 5
        reader = log.reader(EVENTS, {0: offset, 1: 0})
        errors: list[OffsetGone] = []
        records: list[Record] = []

        def step():
            try:
                records.extend(reader.poll(POLL_S))
            except OffsetGone as error:
                errors.append(error)

        until(lambda: errors and records, step)
        for _ in range(3):
            step()
        assert [(e.partition, e.offset, e.first, e.end) for e in errors] == [(0, offset, 2, 5)]
        assert f"offset {offset} of " in str(errors[0])
        assert [r.value for r in records] == [b"fine"]
        reader.seek(0, 2)
        assert [r.offset for r in read(reader, 3)] == [2, 3, 4]

    def test_offsets_of_an_empty_topic_and_after_writing(self, log):
        zeros = dict.fromkeys(range(PARTITIONS), 0)
        assert log.partitions(EVENTS) == PARTITIONS
        assert log.first_offsets(EVENTS) == log.end_offsets(EVENTS) == zeros
        assert log.offsets_at(EVENTS, 0) == zeros
        write(log, b"0", b"1", partition=3)
        assert log.end_offsets(EVENTS) == {**zeros, 3: 2}
        assert log.first_offsets(EVENTS) == zeros

    def test_S2_2_offsets_at_a_broker_time(self, log):
        write(log, b"0", b"1")
        self.pass_time(log)
        write(log, b"2")
        self.pass_time(log)
        records = read(log.reader(EVENTS, {0: 0}), 3)
        at = [r.timestamp_ms for r in records]
        assert at[0] <= at[1] < at[2]
        assert log.offsets_at(EVENTS, at[0])[0] == 0
        assert log.offsets_at(EVENTS, at[1] + 1) == {0: 2, 1: 0, 2: 0, 3: 0}
        assert log.offsets_at(EVENTS, at[2])[0] == 2
        assert log.offsets_at(EVENTS, at[2] + 1)[0] == 3

    def test_a_missing_topic_is_named_in_the_error(self, log):
        for request in (log.partitions, log.end_offsets, log.first_offsets, log.topic_id):
            with pytest.raises(TopicMissing, match="nowhere"):
                request("nowhere")
        with pytest.raises(TopicMissing, match="nowhere"):
            reader = log.reader("nowhere", {0: 0})
            until(lambda: False, lambda: reader.poll(POLL_S))

    def test_a_recreated_topic_has_another_id(self, log):
        assert log.identity() == log.identity() != ""
        before = log.topic_id(EVENTS)
        assert log.topic_id(EVENTS) == before
        write(log, b"0")
        self.recreate(log)
        assert log.topic_id(EVENTS) != before
        assert log.end_offsets(EVENTS)[0] == 0

    def test_a_cursor_past_the_end_of_a_recreated_topic_raises(self, log):
        write(log, b"0", b"1", b"2")
        self.recreate(log)
        write(log, b"0")
        reader = log.reader(EVENTS, {0: 3})
        with pytest.raises(OffsetGone):
            until(lambda: False, lambda: reader.poll(POLL_S))


class TopicsContract(Backend):
    """The contract of applying and checking topics."""

    def test_applying_topics_twice_changes_nothing(self, log):
        more = [replace(SPEC, name="one"), replace(SPEC, name="two", cleanup="compact")]
        assert [name[-3:] for name in log.check_topics(more).missing] == ["one", "two"]
        report = log.apply_topics([SPEC, *more])
        assert [name[-3:] for name in report.created] == ["one", "two"]
        assert [name.endswith(EVENTS) for name in report.same] == [True]
        assert report.missing == report.differs == ()
        second = log.apply_topics([SPEC, *more])
        assert second.created == () and len(second.same) == 3
        second.demand()

    def test_differences_are_reported_and_left_unchanged(self, log):
        config = {"message.timestamp.type": "CreateTime", "max.message.bytes": "2000000"}
        other = replace(SPEC, cleanup="compact", config=config)
        report = log.apply_topics([other])
        differs = {each.what: (each.have, each.want, each.fatal) for each in report.differs}
        assert differs["cleanup.policy"] == ("delete", "compact", False)
        assert differs["message.timestamp.type"] == ("LogAppendTime", "CreateTime", False)
        assert differs["max.message.bytes"][1:] == ("2000000", False)
        report = log.apply_topics([replace(SPEC, retention_ms=1000)])
        assert [str(found)[-38:] for found in report.differs] == [
            "events: retention.ms is -1, wanted 1000"[-38:]
        ]
        report.demand()  # no reason to stop a worker
        assert log.check_topics([SPEC]).differs == ()

    def test_another_number_of_partitions_stops_a_worker(self, log):
        report = log.apply_topics([replace(SPEC, partitions=PARTITIONS + 1)])
        with pytest.raises(
            TopicMismatch, match=r"number of partitions is 4, wanted 5.*`partitions`"
        ):
            report.demand()
        assert log.partitions(EVENTS) == PARTITIONS

    def test_a_missing_topic_stops_a_worker(self, log):
        with pytest.raises(TopicMissing, match=r"absent.*foldlog topics apply"):
            log.check_topics([replace(SPEC, name="absent")]).demand()


class Member:
    """A member of a group that records the calls of its callbacks, as a worker's store does."""

    def __init__(
        self, log: Log, name: str, start: Mapping[int, int] | None = None, label: str = ""
    ) -> None:
        self.name = name
        self.start = dict(start or {})
        self.owned: set[int] = set()
        self.calls: list[tuple[str, list[int]]] = []
        self.records: list[Record] = []
        self.reader = log.group_reader(
            EVENTS, "workers", name, self._assigned, self._revoked, label
        )

    def _assigned(self, partitions: list[int]) -> dict[int, int]:
        assert not self.owned & set(partitions), "assigned twice"
        self.owned |= set(partitions)
        self.calls.append(("assigned", partitions))
        return {p: self.start.get(p, 0) for p in partitions}

    def _revoked(self, partitions: list[int]) -> None:
        assert self.owned >= set(partitions), "revoked but never assigned"
        self.owned -= set(partitions)
        self.calls.append(("revoked", partitions))

    def step(self) -> None:
        for record in self.reader.poll(POLL_S / 2):
            assert record.partition in self.owned, "a record of another member's partition"
            assert record.offset == self.start.get(record.partition, 0), "a lost or repeated record"
            self.start[record.partition] = record.offset + 1
            self.records.append(record)


ALL = set(range(PARTITIONS))


def together(*members: Member, condition: Callable[[], object]) -> None:
    def step():
        for member in members:
            member.step()

    until(condition, step)
