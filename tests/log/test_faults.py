"""The faults that a simulator injects into the in-memory log are deterministic."""

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
    """Append values in order. Returns the list that the delivery callback fills."""
    answers: list[Delivered | AppendError] = []
    for value in written:
        producer.append(EVENTS, "k", value, partition=partition, on_delivery=answers.append)
    return answers


def test_a_delayed_record_is_written_when_its_delay_has_passed():
    log = make(Fate(delay_ms=100))
    late, early = log.producer(), log.producer()
    answers = append(late, b"late")
    append(early, b"early")
    reader = log.reader(EVENTS, {0: 0})
    log.clock_ms.advance(99)
    assert [r.value for r in reader.poll(0)] == [b"early"] and answers == []
    log.clock_ms.advance(1)
    (record,) = reader.poll(0)
    assert record.value == b"late"
    assert record.timestamp_ms == log.clock_ms()  # the broker's time is the time of the write
    log.pump()
    assert answers == [Delivered(0, 1)]


def test_a_delayed_record_delays_only_its_own_producer_in_its_own_partition():
    log = make(Fate(delay_ms=100))
    producer = log.producer()
    append(producer, b"late", b"behind")
    append(producer, b"elsewhere", partition=1)
    assert values(log) == [] and values(log, 1) == [b"elsewhere"]
    assert producer.flush(0) == 2
    log.clock_ms.advance(100)
    assert values(log) == [b"late", b"behind"]
    assert producer.flush(0) == 0


def test_a_killed_producers_records_in_flight_are_written_without_an_answer():
    log = make(Fate(delay_ms=100))
    producer = log.producer()
    answers = append(producer, b"in flight", b"behind")
    producer.kill()
    assert values(log) == []
    log.clock_ms.advance(100)
    assert values(log) == [b"in flight", b"behind"] and answers == []
    with pytest.raises(AssertionError, match="closed"):
        append(producer, b"more")


def test_a_paused_producers_buffer_is_lost_when_it_is_killed():
    log = make()
    producer = log.producer()
    append(producer, b"before")
    producer.pause()
    answers = append(producer, b"buffered")
    assert values(log) == [b"before"] and producer.flush(0) == 1
    producer.kill()
    log.clock_ms.advance(10_000)
    assert values(log) == [b"before"] and answers == []


def test_a_resumed_producer_sends_its_buffer():
    log = make()
    zombie, other = log.producer(), log.producer()
    zombie.pause()
    answers = append(zombie, b"stale")
    append(other, b"newer")
    log.clock_ms.advance(60_000)
    assert values(log) == [b"newer"]
    zombie.resume()
    assert values(log) == [b"newer", b"stale"] and answers == [Delivered(0, 1)]


@pytest.mark.parametrize(("fate", "written"), [(LOST_ACK, [b"v"]), (LOST, [])])
def test_a_lost_record_and_a_lost_acknowledgement_are_the_same_error(fate, written):
    log = make(fate)
    (answer,) = append(log.producer(), b"v")
    assert isinstance(answer, AppendError) and "may or may not be in the log" in str(answer)
    assert values(log) == written


def test_a_duplicate_is_written_twice_and_answered_once():
    log = make(DUPLICATE)
    assert append(log.producer(), b"twice", b"once") == [Delivered(0, 0), Delivered(0, 2)]
    assert values(log) == [b"twice", b"twice", b"once"]


def test_answers_are_delivered_by_pump_in_order():
    log = make(immediate=False)
    first, second = log.producer(), log.producer()
    answers = append(first, b"0", b"1")
    others = append(second, b"2")
    assert answers == others == [] and values(log) != []
    log.pump()
    assert answers == [Delivered(0, 0), Delivered(0, 1)] and others == [Delivered(0, 2)]
    assert log.pump() == 0


def test_a_fault_may_refuse_an_append():
    class Full(Faults):
        def fate(self, producer, topic, partition, headers):
            assert (producer, topic, partition) == ("w1", EVENTS, 2)
            assert headers == (("t", b"GEN_START"),)
            raise LogBusy("full")

    log = MemoryLog([SPEC], faults=Full())
    with pytest.raises(LogBusy):
        log.producer(name="w1").append(EVENTS, "k", b"v", (("t", b"GEN_START"),), partition=2)
    assert values(log, 2) == []


def test_a_fatal_error_is_reported_once_and_closes_the_producer():
    errors: list[LogFatal] = []
    log = make()
    producer = log.producer(errors.append)
    producer.die(LogFatal("gone"))
    with pytest.raises(LogFatal, match="gone"):
        append(producer, b"more")
    assert [str(error) for error in errors] == ["gone"]


def test_a_silent_member_owns_revoked_partitions_until_it_polls():
    log = make()
    zombie, other = Member(log, "w1"), Member(log, "w2")
    for _ in range(4):
        zombie.step()
        other.step()
    before = set(zombie.owned)
    assert len(before) == 2
    log.clock_ms.advance(SESSION_TIMEOUT_MS)
    other.step()
    assert other.owned == ALL - before, "the timeout has not passed yet"
    log.clock_ms.advance(1)
    other.step()
    assert other.owned == ALL and zombie.owned == before, "the zombie does not know yet"
    append(log.producer(), b"news", partition=min(before))
    zombie.step()
    assert zombie.owned == set()
    assert zombie.calls[-1] == ("revoked", sorted(before)), "revoked before it reads"
    assert zombie.records == []
    for _ in range(4):
        other.step()
        zombie.step()
    assert len(zombie.owned) == len(other.owned) == 2 and zombie.owned | other.owned == ALL


def test_the_remaining_members_keep_their_partitions():
    log = MemoryLog([replace(SPEC, partitions=9)], clock_ms=Clock())
    members = [Member(log, f"w{number}") for number in (1, 2, 3)]
    for member in members * 4:
        member.step()
    assert [len(member.owned) for member in members] == [3, 3, 3]
    rest = members[1:]
    calls = [list(member.calls) for member in rest]
    for _ in range(2):
        log.clock_ms.advance(SESSION_TIMEOUT_MS // 2 + 1)
        for member in rest * 2:
            member.step()
    assert sorted(len(member.owned) for member in rest) == [4, 5]
    for member, before in zip(rest, calls, strict=True):
        assert all(what == "assigned" for what, _ in member.calls[len(before) :])


def test_S2_7_a_zombie_may_read_until_it_learns_of_its_removal():
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
    assert zombie.owned == other.owned == ALL, "polling alone does not renew a membership"
    append(log.producer(), b"read by both")
    zombie.step()
    other.step()
    assert zombie.records == other.records != []
    log.faults.deaf = False
    zombie.step()
    assert zombie.calls[1:] == [("revoked", sorted(ALL))]


def test_a_lone_member_that_times_out_loses_and_regains_all_partitions():
    log = make()
    member = Member(log, "w1")
    member.step()
    log.clock_ms.advance(SESSION_TIMEOUT_MS + 1)
    member.step()
    every = sorted(ALL)
    assert member.calls == [("assigned", every), ("revoked", every), ("assigned", every)]


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 4000)), max_size=40))
def test_partitions_always_get_one_owner_each_in_even_shares(polls):
    log = make()
    members = {name: Member(log, name) for name in "abcde"}
    for name, passed_ms in polls:
        log.clock_ms.advance(passed_ms)
        members[name].step()
    # The members that poll now are alive, the others are removed; a few rounds even the shares.
    alive = [members[name] for name in sorted({name for name, _ in polls[-3:]} or {"a"})]
    log.clock_ms.advance(SESSION_TIMEOUT_MS + 1)
    for _ in range(6):
        for member in alive:
            member.step()
    owned = [p for member in alive for p in member.owned]
    assert sorted(owned) == sorted(ALL)
    sizes = [len(member.owned) for member in alive]
    assert max(sizes) - min(sizes) <= 1
    settled = [list(member.calls) for member in alive]
    for member in alive:
        member.step()
    assert [member.calls for member in alive] == settled


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
                    trace.append((member.name, list(member.calls), len(member.records)))
                case 3:
                    log.pump()
                case 4:
                    chance.choice(producers).pause()
                case 5:
                    chance.choice(producers).resume()
        return [[log.records(EVENTS, p) for p in range(PARTITIONS)], [str(t) for t in trace]]

    first = run()
    assert first == run() and sum(map(len, first[0])) > 20


def test_a_threaded_log_wakes_a_waiting_reader():
    log = MemoryLog([SPEC], threaded=True)
    reader = log.reader(EVENTS, {0: 0})
    waiting = threading.Event()
    received: list = []

    def wait():
        waiting.set()
        received.extend(reader.poll(60))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait(60)
    append(log.producer(), b"news")
    thread.join(60)
    assert [record.value for record in received] == [b"news"]
    assert reader.poll(0) == []
