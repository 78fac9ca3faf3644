"""Who waits for a slot: first come, first served, with one look for all of them.

A timer per session would wake every waiting session each time that anybody looks: a thousand of
them took half a core. It must not know what a slot is for, nor when one is free.
"""

from typing import NamedTuple

Place = tuple[int, str]
"""Partition and session id."""


class _Queue(NamedTuple):
    places: dict[Place, None]
    look_at: int


class WaitingRoom:
    """One queue per role. Times are Unix ms."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}

    def enter(self, role: str, place: Place, look_at: int) -> None:
        """Wait, unless it does already; `look_at` counts for the first one."""
        queue = self._queues.get(role)
        if queue is None:
            self._queues[role] = _Queue({place: None}, look_at)
        else:
            queue.places.setdefault(place)

    def due(self, now: int) -> list[str]:
        """The roles whose queue is to be looked at."""
        return [role for role, queue in self._queues.items() if queue.look_at <= now]

    def count(self, role: str) -> int:
        """How many wait."""
        return len(self._queues[role].places) if role in self._queues else 0

    def call(self, role: str) -> Place:
        """Who came first, no longer waiting. Somebody must be."""
        queue = self._queues[role]
        place = next(iter(queue.places))
        del queue.places[place]
        if not queue.places:
            del self._queues[role]
        return place

    def look_again(self, role: str, look_at: int) -> None:
        """Look at a queue at that time, if anybody waits."""
        if role in self._queues:
            self._queues[role] = self._queues[role]._replace(look_at=look_at)

    def leave(self, partition: int) -> None:
        """Nobody of a partition waits any more."""
        for role, queue in list(self._queues.items()):
            for place in [place for place in queue.places if place[0] == partition]:
                del queue.places[place]
            if not queue.places:
                del self._queues[role]

    @property
    def next_due(self) -> int | None:
        """When to look next, or None."""
        return min((queue.look_at for queue in self._queues.values()), default=None)
