"""A worker sends each fact at least once and in order, whatever happens to it or to the topic."""

from dataclasses import dataclass
from typing import Any

import pytest

from foldlog.log import MemoryLog
from foldlog.log.errors import LogBusy, TopicMissing
from foldlog.log.faults import LOST, LOST_ACK, NORMAL, Faults
from foldlog.log.partition import partition_for
from foldlog.processors.advice.prices import list_prices
from foldlog.processors.effects.slots import Slots
from foldlog.processors.facts import derive
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import initial
from foldlog.processors.store.store import DictBackend, Store, version_for
from foldlog.processors.worker.actions import Actions
from foldlog.processors.worker.fact_sender import (
    HOLD_MS,
    READ_MAX,
    RETRY_MS,
    FactRows,
    FactSender,
)
from foldlog.processors.worker.loop import Mailbox, appender
from foldlog.processors.worker.worker import Identity, Worker, WorkerParts
from foldlog.producers.sessions import Sessions
from foldlog.schemas.codec import entry_of
from foldlog.schemas.events import CancelRequested
from foldlog.schemas.facts import PhaseChanged, decode_fact
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.topics import SESSION_EVENTS, SESSION_FACTS, topics
from foldlog.tests.kit.agents import AGENT
from foldlog.tests.kit.played import PARTITIONS, settings_in
from foldlog.tests.kit.recorded_actions import RecordedEffects

PRICES = list_prices()
FOLDS_MAX = 100  # each batch leads to fewer records than it has
ROUND_MS = 10


class ManualClock:
    """Moves only by hand. Unix ms and monotonic ms are one."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


class OnlyFacts(Faults):
    """A script of fates for the records of session-facts."""

    def __init__(self) -> None:
        super().__init__()
        self.script: list[Any] = []

    def fate(self, producer, topic, partition, headers):
        return self.script.pop(0) if topic == SESSION_FACTS and self.script else NORMAL


class Sending:
    """A worker for the role sessions, without a process, whose disk survives a restart."""

    def __init__(self, log: MemoryLog) -> None:
        self.log, self.clock = log, ManualClock()
        self.disk: dict[int, dict[bytes, bytes]] = {}
        self.output: list[str] = []
        self.counts: dict[str, float] = {}
        self.incarnation = 0
        self.restart()

    def restart(self, producer: Any = None, *, new_disk: bool = False) -> "Sending":
        """Replace the worker by a new incarnation, as after a kill. producer: for the facts."""
        self.incarnation += 1
        self.disk = {} if new_disk else self.disk
        self.mail, own = Mailbox(), self.log.producer()
        actions = Actions(
            f"w/{self.incarnation}", appender(own, self.mail), RecordedEffects(), None, None,
            Slots(1), Slots(1), self.clock, self.output.append,
        )
        self.sender = FactSender(
            producer or own, PARTITIONS, self.mail.post, PRICES, self.clock.monotonic_ms,
            self.output.append, self._add,
        )
        self.worker = Worker(
            WorkerParts(
                identity=Identity("w", str(self.incarnation)), roles=("sessions",), agents=[AGENT],
                open_store=self._open, actions=actions, clock=self.clock, say=self.output.append,
                fact_of=FactRows(self.output.append, self._add), fact_sender=self.sender,
            )
        )
        self.reader = self.log.reader(SESSION_EVENTS, {})
        self.reader.add(self.worker.assigned(range(PARTITIONS)))
        return self

    def _add(self, name: str, *labels: str, by: float = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + by

    def _open(self, partition: int, *, fresh: bool) -> Store:
        data = {} if fresh else self.disk.setdefault(partition, {})
        self.disk[partition] = data
        return Store(DictBackend(data), log_end=self.log.end_offsets(SESSION_EVENTS)[partition])

    def fold(self) -> "Sending":
        """Fold and store what is in the log, and send nothing."""
        for _ in range(FOLDS_MAX):
            records = self.reader.poll(0)
            if not records:
                return self
            self.worker.consume(records)
        raise AssertionError("records still arrive")

    def run(self, rounds: int = 60) -> "Sending":
        """Fold what is in the log, and run rounds."""
        for _ in range(rounds):
            self.fold()
            self.mail.drain()
            self.worker.tick()
            self.clock.now += ROUND_MS
        return self

    @property
    def waiting(self) -> int:
        """The facts in the stores."""
        return sum(Store(DictBackend(data)).count_facts() for data in self.disk.values())


Place = tuple[int, int]


def expected(log: MemoryLog) -> dict[Place, list[int]]:
    """The offsets of the facts in the log, in order, by (partition of the event, of the fact)."""
    found: dict[Place, list[int]] = {}
    for number in range(PARTITIONS):
        views: dict[str, Any] = {}
        for record in log.records(SESSION_EVENTS, number):
            entry = entry_of(record)
            if entry.session_id == PARTITION_KEY:
                continue
            before = views.get(entry.session_id) or initial(entry.session_id)
            after, ruling = fold(before, entry)
            views[entry.session_id] = after
            fact = derive.fact_of(entry, before, after, ruling, PRICES)
            if fact is not None:
                place = number, partition_for(fact.user_id, PARTITIONS)
                found.setdefault(place, []).append(entry.offset)
    return found


def sent(log: MemoryLog) -> dict[Place, list[int]]:
    """The same of the facts in session-facts, as they were written."""
    found: dict[Place, list[int]] = {}
    for to in range(PARTITIONS):
        for record in log.records(SESSION_FACTS, to):
            fact = decode_fact(record.value, record.headers)
            assert record.key == fact.user_id.encode()
            found.setdefault((fact.partition, to), []).append(fact.offset)
    return found


def without_repetitions(offsets: list[int]) -> list[int]:
    """What a reader sees that skips offsets up to the last one that it has seen."""
    seen: list[int] = []
    for offset in offsets:
        if not seen or offset > seen[-1]:
            seen.append(offset)
    return seen


def demand_all(log: MemoryLog) -> None:
    """Each fact was sent at least once, in order, and none is missing."""
    once = {place: without_repetitions(found) for place, found in sent(log).items()}
    assert once == expected(log)


@dataclass
class World:
    log: MemoryLog
    faults: OnlyFacts
    sessions: Sessions
    worker: Sending

    def talk(self, first: int = 0, count: int = 6) -> None:
        """Let some people open sessions, write and change phases."""
        for number in range(first, first + count):
            name = f"s{number}"
            self.sessions.open(name, agent="helper")
            self.sessions.say(name, f"hello {number}")
            self.sessions.trigger(name, "start_build")
            self.sessions.cancel(name)


@pytest.fixture
def world(tmp_path):
    faults = OnlyFacts()
    log = MemoryLog(topics(PARTITIONS), faults=faults)
    sessions = Sessions(log, settings_in(tmp_path))
    yield World(log, faults, sessions, Sending(log))
    sessions.close()


def test_every_fact_is_sent_once_and_in_order(world):
    world.talk()
    world.worker.run()
    assert sent(world.log) == expected(world.log)
    assert sum(map(len, expected(world.log).values())) >= 18
    assert world.worker.waiting == 0 and world.worker.output == []
    assert world.worker.counts["foldlog_facts_sent"] == sum(map(len, sent(world.log).values()))


def test_a_backlog_is_sent_in_parts(world):
    world.talk(count=READ_MAX)
    world.worker.fold()
    assert world.worker.waiting > 2 * READ_MAX and sent(world.log) == {}
    world.worker.run()
    assert sent(world.log) == expected(world.log) and world.worker.waiting == 0


def test_the_first_fact_is_sent_at_once_and_the_next_ones_together_after_a_pause(world):
    """Under load, each fact was read by itself, behind all facts that were deleted before it."""
    world.talk(count=1)
    world.worker.run(1)
    first = sent(world.log)
    assert first == expected(world.log)
    world.talk(1)
    for _ in range(HOLD_MS // ROUND_MS - 2):
        world.worker.run(1)
        assert sent(world.log) == first
    assert 0 < world.worker.worker.next_due_ms() <= 2 * ROUND_MS
    world.worker.run(3)
    assert sent(world.log) == expected(world.log)


def test_a_fact_is_stored_with_its_event_and_sent_after_a_kill(world):
    world.talk()
    world.worker.fold()
    assert world.worker.waiting == sum(map(len, expected(world.log).values()))
    world.worker.restart().run()
    assert sent(world.log) == expected(world.log) and world.worker.waiting == 0


def test_a_fact_whose_confirmation_was_not_noted_is_sent_again(world):
    world.talk()
    world.worker.fold()
    for owned in world.worker.worker.owned.values():
        world.worker.sender.send(owned)  # killed before the stores delete what was confirmed
    first = sum(map(len, sent(world.log).values()))
    world.worker.restart().run()
    assert first and sum(map(len, sent(world.log).values())) > first
    demand_all(world.log)


@pytest.mark.parametrize("fate", [LOST, LOST_ACK], ids=["refused", "unacknowledged"])
def test_a_fact_that_failed_is_sent_again_before_the_next(world, fate):
    world.faults.script = [NORMAL, fate, NORMAL, fate, fate]
    world.talk()
    world.worker.run()
    assert world.worker.waiting
    for _ in range(5):
        world.worker.clock.now += RETRY_MS
        world.worker.run()
    demand_all(world.log)
    assert world.worker.waiting == 0


@pytest.mark.parametrize("error", [LogBusy("full"), TopicMissing("session-facts")], ids=str)
def test_a_topic_that_refuses_for_a_while_delays_facts_only(world, error):
    refuses = Refuses(world.log.producer(), error)
    world.worker.restart(refuses)
    world.talk()
    world.worker.run()
    assert sent(world.log) == {} and world.worker.waiting
    assert all(o.next_offset == o.store.cursor.offset for o in world.worker.worker.owned.values())
    world.talk(10)
    for _ in range(20):
        world.worker.clock.now += RETRY_MS
        world.worker.run()
    assert len(world.worker.output) == 1 and str(error) in world.worker.output[0]
    tries = refuses.tries
    world.worker.run(20)
    assert refuses.tries == tries  # not before RETRY_MS are over
    refuses.error = None
    world.worker.clock.now += RETRY_MS
    world.worker.run()
    assert sent(world.log) == expected(world.log) and world.worker.waiting == 0


class Refuses:
    """A producer that raises an error, as long as there is one."""

    def __init__(self, producer: Any, error: Exception | None) -> None:
        self.producer, self.error, self.tries = producer, error, 0

    def append(self, *args: Any, **named: Any) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error
        self.producer.append(*args, **named)


class Holds:
    """A producer of a process that is paused: its records reach the log when it resumes."""

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self.held: list[Any] = []

    def append(self, *args: Any, **named: Any) -> None:
        self.held.append((args, named))

    def resume(self) -> None:
        """Append what is held, also what its answers lead to."""
        while self.held:
            args, named = self.held.pop(0)
            self.producer.append(*args, **named)


def test_one_fact_of_a_partition_is_in_flight(world):
    holds = Holds(world.log.producer())
    world.worker.restart(holds)
    world.talk()
    world.worker.run()
    senders = {decode_fact(args[2]).partition for args, _ in holds.held}
    assert len(holds.held) == len(senders) == len({number for number, _ in expected(world.log)})


def test_a_paused_worker_that_resumes_after_another_has_gone_on_breaks_no_order(world):
    holds = Holds(world.log.producer())
    world.worker.restart(holds)
    world.talk()
    world.worker.run()
    other = Sending(world.log).run()  # with its own disk: it takes over and sends everything
    world.talk(20)
    other.run()
    before = sum(map(len, sent(world.log).values()))
    holds.resume()
    world.worker.run()
    holds.resume()
    assert sum(map(len, sent(world.log).values())) > before
    demand_all(world.log)


def test_a_partition_that_is_lost_sends_no_further_facts(world):
    holds = Holds(world.log.producer())
    world.worker.restart(holds)
    world.talk()
    world.worker.run()
    world.worker.worker.revoked(range(PARTITIONS))
    in_flight = len(holds.held)
    holds.resume()
    world.worker.mail.drain()
    assert sum(map(len, sent(world.log).values())) == in_flight
    world.worker.restart().run()
    demand_all(world.log)


def test_a_worker_that_refolds_the_log_sends_all_facts_again(world):
    world.talk()
    world.worker.run()
    once = sent(world.log)
    world.worker.restart(new_disk=True).run()
    assert sent(world.log) == {place: found * 2 for place, found in once.items()}
    demand_all(world.log)


def test_a_worker_that_catches_up_sends_nothing_until_it_has(world):
    world.talk()
    world.worker.restart(new_disk=True)
    world.worker.worker.consume(world.worker.reader.poll(0, 3))
    world.worker.mail.drain()
    world.worker.worker.tick()
    behind = [o for o in world.worker.worker.owned.values() if o.next_offset < o.takes_from]
    assert behind and not {number for number, _ in sent(world.log)} & {o.number for o in behind}
    world.worker.run()
    demand_all(world.log)


def test_a_fact_that_cannot_be_derived_stops_nothing(world, monkeypatch):
    def raises(*_: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setitem(derive.DERIVED, CancelRequested, raises)
    world.talk()
    world.worker.run()
    kinds = {
        type(decode_fact(record.value, record.headers))
        for to in range(PARTITIONS)
        for record in world.log.records(SESSION_FACTS, to)
    }
    assert PhaseChanged in kinds
    assert world.worker.counts["foldlog_facts_failed"] == 6
    (line,) = world.worker.output
    assert "has no fact (RuntimeError: planted)" in line


def test_only_the_role_sessions_continues_from_a_store_with_facts():
    assert version_for(("sessions", "models")) == version_for(("sessions",))
    assert version_for(("models", "tools")) != version_for(("sessions",))


def test_facts_in_flight_when_a_store_is_rebuilt_break_no_order(world):
    holds = Holds(world.log.producer())
    world.worker.restart(holds)
    world.talk()
    world.worker.run()
    for owned in list(world.worker.worker.owned.values()):
        world.worker.worker._refold(owned, "planted")
    for number, offset in world.worker.worker._take_seeks().items():
        world.worker.reader.seek(number, offset)
    holds.held.append(holds.held.pop(0))
    for _ in range(20):
        holds.resume()
        world.worker.run(3)
    demand_all(world.log)
    assert world.worker.waiting == 0
