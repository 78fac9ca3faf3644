"""Invariants of `session-facts`: the facts that workers sent are the facts of the log."""

from collections import defaultdict
from typing import Any

from foldlog.processors.advice.prices import list_prices
from foldlog.processors.facts.derive import fact_of
from foldlog.schemas.facts import Fact, decode_fact
from foldlog.schemas.topics import SESSION_FACTS
from foldlog.tests.kit.known_session import KnownSession, demand_agreement
from foldlog.tests.simulation.invariant import Invariant


class FactsAreTheLog(Invariant):
    """In each partition of session-facts, a fact follows all earlier facts that its partition of
    session-events has for it; repetitions of earlier facts are allowed. In the end none is missing,
    and a reader that skips repetitions knows what the views say."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self._facts: dict[int, list[Fact]] = defaultdict(list)  # by partition of session-events
        self._by_place: dict[tuple[int, int], Fact] = {}
        self._sent: dict[tuple[int, int], int] = defaultdict(int)  # (from, to) -> facts in order
        self._read: dict[int, int] = defaultdict(int)
        self._known: dict[str, KnownSession] = defaultdict(KnownSession)

    def on_seen(self, seen: Any) -> None:
        fact = fact_of(seen.entry, seen.before, seen.views, seen.ruling, list_prices())
        if fact is not None:
            self._facts[fact.partition].append(fact)
            self._by_place[fact.partition, fact.offset] = fact

    def on_round(self, process: Any) -> None:
        self._read_on()

    def when_calm(self) -> None:
        self._read_on()
        for (number, to), count in self._lengths().items():
            if self._sent[number, to] != count:
                self.fail(f"{self._sent[number, to]} of {count} facts of {number} are in {to}")
        for session_id, known in self._known.items():
            try:
                demand_agreement(known, self.world.witness.views[session_id])
            except AssertionError as difference:
                self.fail(f"{session_id}: {difference}")

    def _lengths(self) -> dict[tuple[int, int], int]:
        found: dict[tuple[int, int], int] = defaultdict(int)
        for number, facts in self._facts.items():
            for fact in facts:
                found[number, self._place_of(fact)] += 1
        return found

    def _place_of(self, fact: Fact) -> int:
        topic = self.world.log.topic(SESSION_FACTS)
        return self.world.log.place(topic, fact.user_id.encode())

    def _read_on(self) -> None:
        for to, partition in enumerate(self.world.log.topic(SESSION_FACTS).partitions):
            for record in partition.records[self._read[to] :]:
                fact = decode_fact(record.value, record.headers)
                assert isinstance(fact, Fact), fact
                self._take(fact, to)
            self._read[to] = len(partition.records)

    def _take(self, fact: Fact, to: int) -> None:
        number = fact.partition
        if fact != self._by_place.get((number, fact.offset)):
            self.fail(f"{fact} is not a fact of the log")
        expected = [each for each in self._facts[number] if self._place_of(each) == to]
        place = next(n for n, each in enumerate(expected) if each.offset == fact.offset)
        sent = self._sent[number, to]
        if place > sent:
            self.fail(f"{fact} came before {expected[sent]}")
        if place == sent:
            self._sent[number, to] += 1
            self._known[fact.session_id].take(fact)


FACTS = (FactsAreTheLog,)
