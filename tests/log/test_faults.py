"""What a simulator does to the in-memory log, and that it is the same each time."""

import random
import threading
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from foldlog.log import (
    DUPLICATE,
    LOST,
    LOST_ACK,
    AppendError,
    Clock,
    Delivered,
    Fate,
    Faults,
    LogBusy,
    LogFatal,
    MemoryLog,
)
from foldlog.log.memory import SESSION_TIMEOUT_MS
from foldlog.tests.log.contract import ALL, EVENTS, PARTITIONS, SPEC, Member


def make(*script: Fate, immediate: bool = True) -> MemoryLog:
    return MemoryLog([SPEC], clock_ms=Clock(), faults=Faults(script), immediate=immediate)


def values(log: MemoryLog, partition: int = 0) -> list[bytes]:
    log.pump()
    return [record.value for record in log.records(EVENTS, partition)]


def append(producer, *written: bytes, partition: int = 0) -> list[Delivered | AppendError]:
    told: list[Delivered | AppendError] = []
    for value in written:
        producer.append(EVENTS, "k", value, partition=partition, on_delivery=told.append)
    return told


def test_a_late_record_lands_when_its_time_comes_and_not_before():
    log = make(Fate(delay_ms=100))
    late, early = log.producer(), log.producer()
    told = append(late, b"late")
    append(early, b"early")
    reader = log.reader(EVENTS, {0: 0})
    log.clock_ms.advance(99)
    assert [r.value for r in reader.poll(0)] == [b"early"] and told == []
    log.clock_ms.advance(1)
    (record,) = reader.poll(0)
    assert record.value == b"late"
    assert record.timestamp_ms == log.clock_ms()  # broker time is the time of landing
    log.pump()
    assert told == [Delivered(0, 1)]


def test_a_late_record_holds_back_its_own_producer_in_its_partition_only():
    log = make(Fate(delay_ms=100))
    producer = log.producer()
    append(producer, b"late", b"behind")
    append(producer, b"elsewhere", partition=1)
    assert values(log) == [] and values(log, 1) == [b"elsewhere"]
    assert producer.flush(0) == 2
    log.clock_ms.advance(100)
    assert values(log) == [b"late", b"behind"]
    assert producer.flush(0) == 0


def test_what_a_killed_producer_had_sent_still_lands_and_nobody_is_told():
    log = make(Fate(delay_ms=100))
    producer = log.producer()
    told = append(producer, b"in flight", b"behind")
    producer.kill()
    assert values(log) == []
    log.clock_ms.advance(100)
    assert values(log) == [b"in flight", b"behind"] and told == []
    with pytest.raises(AssertionError, match="closed"):
        append(producer, b"more")


def test_what_a_paused_producer_holds_back_dies_with_it():
    log = make()
    producer = log.producer()
    append(producer, b"before")
    producer.pause()
    told = append(producer, b"held back")
    assert values(log) == [b"before"] and producer.flush(0) == 1
    producer.kill()
    log.clock_ms.advance(10_000)
    assert values(log) == [b"before"] and told == []


def test_a_paused_producer_sends_when_it_goes_on():
    log = make()
    zombie, other = log.producer(), log.producer()
    zombie.pause()
    told = append(zombie, b"stale")
    append(other, b"newer")
    log.clock_ms.advance(60_000)
    assert values(log) == [b"newer"]
    zombie.resume()
    assert values(log) == [b"newer", b"stale"] and told == [Delivered(0, 1)]


def test_a_lost_ack_is_an_error_about_a_record_that_is_there():
    log = make(LOST_ACK)
    (told,) = append(log.producer(), b"here")
    assert isinstance(told, AppendError) and "may or may not be in the log" in str(told)
    assert values(log) == [b"here"]


def test_a_duplicate_lies_there_twice_and_is_told_once():
    log = make(DUPLICATE)
    assert append(log.producer(), b"twice", b"once") == [Delivered(0, 0), Delivered(0, 2)]
    assert values(log) == [b"twice", b"twice", b"once"]


def test_a_lost_record_is_an_error_and_not_there():
    log = make(LOST)
    (told,) = append(log.producer(), b"gone")
    assert isinstance(told, AppendError) and values(log) == []


def test_pumped_answers_wait_for_the_pump_and_keep_their_order():
    log = make(immediate=False)
    first, second = log.producer(), log.producer()
    told = append(first, b"0", b"1")
    others = append(second, b"2")
    assert told == others == [] and values(log) != []
    log.pump()
    assert told == [Delivered(0, 0), Delivered(0, 1)] and others == [Delivered(0, 2)]
    assert log.pump() == 0


def test_a_fault_may_refuse_to_take_a_record():
    class Full(Faults):
        def fate(self, producer, topic, partition, headers):
            assert (producer, topic, partition) == ("w1", EVENTS, 2)
            assert headers == (("t", b"GEN_START"),)
            raise LogBusy("full")

    log = MemoryLog([SPEC], faults=Full())
    with pytest.raises(LogBusy):
        log.producer(name="w1").append(EVENTS, "k", b"v", (("t", b"GEN_START"),), partition=2)
    assert values(log, 2) == []


def test_a_fatal_error_is_told_once_and_ends_the_producer():
    told: list[LogFatal] = []
    log = make()
    producer = log.producer(told.append)
    producer.die(LogFatal("gone"))
    with pytest.raises(LogFatal, match="gone"):
        append(producer, b"more")
    assert [str(error) for error in told] == ["gone"]


def test_two_members_believe_they_own_a_partition_until_the_silent_one_polls():
    log = make()
    zombie, other = Member(log, "w1"), Member(log, "w2")
    for _ in range(4):
        zombie.step()
        other.step()
    mine = set(zombie.held)
    assert len(mine) == 2
    log.clock_ms.advance(SESSION_TIMEOUT_MS)
    other.step()
    assert other.held == ALL - mine, "silence up to the timeout is no reason"
    log.clock_ms.advance(1)
    other.step()
    assert other.held == ALL and zombie.held == mine, "both believe"
    append(log.producer(), b"news", partition=min(mine))
    zombie.step()
    assert zombie.held == set()
    assert zombie.told[-1] == ("taken", sorted(mine)), "the zombie hears before it reads"
    assert zombie.records == []
    for _ in range(4):
        other.step()
        zombie.step()
    assert len(zombie.held) == len(other.held) == 2 and zombie.held | other.held == ALL


def test_who_stays_keeps_what_it_had():
    log = MemoryLog([replace(SPEC, partitions=9)], clock_ms=Clock())
    members = [Member(log, f"w{number}") for number in (1, 2, 3)]
    for member in members * 4:
        member.step()
    assert [len(member.held) for member in members] == [3, 3, 3]
    rest = members[1:]
    told = [list(member.told) for member in rest]
    for _ in range(2):
        log.clock_ms.advance(SESSION_TIMEOUT_MS // 2 + 1)
        for member in rest * 2:
            member.step()
    assert sorted(len(member.held) for member in rest) == [4, 5]
    for member, before in zip(rest, told, strict=True):
        assert all(what == "given" for what, _ in member.told[len(before) :])


def test_S2_7_a_zombie_may_read_on_before_it_hears_that_it_was_put_out():
    class Deaf(Faults):
        deaf = False

        def heard(self, instance_id):
            return not (self.deaf and instance_id == "w1")

    log = MemoryLog([SPEC], clock_ms=Clock(), faults=Deaf())
    zombie, other = Member(log, "w1"), Member(log, "w2")
    zombie.step()
    log.faults.deaf = True
    other.step()
    log.clock_ms.advance(SESSION_TIMEOUT_MS + 1)
    zombie.step()
    other.step()
    assert zombie.held == other.held == ALL, "polling alone does not count as a sign of life"
    append(log.producer(), b"both read this")
    zombie.step()
    other.step()
    assert zombie.records == other.records != []
    log.faults.deaf = False
    zombie.step()
    assert zombie.told[1:] == [("taken", sorted(ALL))]


def test_a_lone_member_that_was_silent_too_long_loses_all_and_gets_all_again():
    log = make()
    member = Member(log, "w1")
    member.step()
    log.clock_ms.advance(SESSION_TIMEOUT_MS + 1)
    member.step()
    every = sorted(ALL)
    assert member.told == [("given", every), ("taken", every), ("given", every)]


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 4000)), max_size=40))
def test_partitions_always_have_one_owner_and_settle_into_even_shares(polls):
    log = make()
    members = {name: Member(log, name) for name in "abcde"}
    for name, passed_ms in polls:
        log.clock_ms.advance(passed_ms)
        members[name].step()
    # Whoever polls now is alive, the others are put out; after some rounds all is even.
    alive = [members[name] for name in sorted({name for name, _ in polls[-3:]} or {"a"})]
    log.clock_ms.advance(SESSION_TIMEOUT_MS + 1)
    for _ in range(6):
        for member in alive:
            member.step()
    held = [p for member in alive for p in member.held]
    assert sorted(held) == sorted(ALL)
    sizes = [len(member.held) for member in alive]
    assert max(sizes) - min(sizes) <= 1
    settled = [list(member.told) for member in alive]
    for member in alive:
        member.step()
    assert [member.told for member in alive] == settled


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_log(seed):
    def run() -> list:
        chance = random.Random(seed)

        class Chance(Faults):
            def fate(self, producer, topic, partition, headers):
                return chance.choice(
                    [Fate(), Fate(delay_ms=chance.randrange(50)), LOST_ACK, LOST, DUPLICATE]
                )

        log = MemoryLog([SPEC], clock_ms=Clock(), faults=Chance(), immediate=False)
        producers = [log.producer() for _ in range(3)]
        members = [Member(log, f"w{number}") for number in range(3)]
        trace: list = []
        for number in range(400):
            log.clock_ms.advance(chance.randrange(20))
            match chance.randrange(6):
                case 0 | 1:
                    chance.choice(producers).append(
                        EVENTS, f"k{number % 7}", b"%d" % number, on_delivery=trace.append
                    )
                case 2:
                    member = chance.choice(members)
                    member.step()
                    trace.append((member.name, list(member.told), len(member.records)))
                case 3:
                    log.pump()
                case 4:
                    chance.choice(producers).pause()
                case 5:
                    chance.choice(producers).resume()
        return [[log.records(EVENTS, p) for p in range(PARTITIONS)], [str(t) for t in trace]]

    first = run()
    assert first == run() and sum(map(len, first[0])) > 20


def test_a_threaded_log_wakes_a_reader_that_waits():
    log = MemoryLog([SPEC], threaded=True)
    reader = log.reader(EVENTS, {0: 0})
    waits = threading.Event()
    got: list = []

    def wait():
        waits.set()
        got.extend(reader.poll(60))

    thread = threading.Thread(target=wait)
    thread.start()
    waits.wait(60)
    append(log.producer(), b"news")
    thread.join(60)
    assert [record.value for record in got] == [b"news"]
    assert reader.poll(0) == []
