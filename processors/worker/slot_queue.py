"""Queues of sessions that wait for a slot: first in, first out, with one timer per queue.

With a timer per session, each check would wake every waiting session. In a measurement, a thousand
waiting sessions then used half a core. The queues are independent of what a slot is used for; the
caller knows when a slot is free.
"""

from typing import NamedTuple

from ...schemas.enums import Role

Place = tuple[int, str]
"""Partition and session id."""


class _Queue(NamedTuple):
    places: dict[Place, None]
    check_at: int


class SlotQueue:
    """The queues, one per role. Times are Unix ms."""

    def __init__(self) -> None:
        self._queues: dict[Role, _Queue] = {}

    def enqueue(self, role: Role, place: Place, check_at: int) -> None:
        """Enqueue a session, unless it is in the queue. check_at: the time of the queue's next
        check, if the queue was empty."""
        queue = self._queues.get(role)
        if queue is None:
            self._queues[role] = _Queue({place: None}, check_at)
        else:
            queue.places.setdefault(place)

    def due(self, now: int) -> list[Role]:
        """The roles whose queue is due for a check."""
        return [role for role, queue in self._queues.items() if queue.check_at <= now]

    def count(self, role: Role) -> int:
        """The length of a queue."""
        return len(self._queues[role].places) if role in self._queues else 0

    def pop_oldest(self, role: Role) -> Place:
        """Pop the oldest entry of a queue that is not empty."""
        queue = self._queues[role]
        place = next(iter(queue.places))
        del queue.places[place]
        if not queue.places:
            del self._queues[role]
        return place

    def set_next_check(self, role: Role, check_at: int) -> None:
        """Set the time of the next check of a role's queue. An empty queue is not checked."""
        if role in self._queues:
            self._queues[role] = self._queues[role]._replace(check_at=check_at)

    def remove_partition(self, partition: int) -> None:
        """Remove the entries of a partition."""
        for role, queue in list(self._queues.items()):
            for place in [place for place in queue.places if place[0] == partition]:
                del queue.places[place]
            if not queue.places:
                del self._queues[role]

    @property
    def next_due(self) -> int | None:
        """The time of the next check, or None."""
        return min((queue.check_at for queue in self._queues.values()), default=None)
