"""Witness of `session-facts`: the topic has each fact of the log at least once, in order, and none
is missing."""

from collections.abc import Iterator, Mapping
from typing import Any

from foldlog.log.door import Log
from foldlog.schemas.facts import Fact, decode_fact
from foldlog.schemas.topics import SESSION_FACTS


class FactReader:
    """Reads the topic from its beginning.

    `sent`: for each session, the offsets of its facts in the order of the topic.
    """

    def __init__(self, log: Log) -> None:
        self._reader = log.reader(SESSION_FACTS, log.first_offsets(SESSION_FACTS))
        self._facts: dict[tuple[str, int], Fact] = {}
        self.sent: dict[str, list[int]] = {}

    def poll(self) -> None:
        """Read what is new."""
        for record in self._reader.poll(0.0):
            fact = decode_fact(record.value, record.headers)
            assert isinstance(fact, Fact), fact
            assert record.key == fact.user_id.encode()
            known = self._facts.setdefault((fact.session_id, fact.offset), fact)
            assert known == fact, f"{fact} was {known}"
            self.sent.setdefault(fact.session_id, []).append(fact.offset)

    def has_all(self, watched: Mapping[str, Any]) -> bool:
        """Whether every fact of these sessions (WatchedSession) was read."""
        self.poll()
        return all(
            {fact.offset for fact in one.facts} <= set(self.sent.get(name, ()))
            for name, one in watched.items()
        )

    def violations(self, watched: Mapping[str, Any]) -> Iterator[str]:
        """What is wrong with the facts of these sessions. They have one user, so the facts of one
        partition of session-events are in one partition."""
        for name, one in watched.items():
            expected = {fact.offset: fact for fact in one.facts}
            order, place = list(expected), 0
            for offset in self.sent.get(name, ()):
                if self._facts[name, offset] != expected.get(offset):
                    yield f"{name}: {self._facts[name, offset]} is not {expected.get(offset)}"
                elif order.index(offset) > place:
                    yield f"{name}: the fact of {offset} came before that of {order[place]}"
                elif order.index(offset) == place:
                    place += 1
            if place < len(order):
                yield f"{name}: {order[place:]} have no fact"

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()
