"""Announces the open sessions of each user on `user-sessions`, so that a user's tabs can find them.

The topic has one record per session, with the key USER/SESSION, partitioned by the user. The value
is {phase, project_id, opened_at} while the session is open, and a tombstone once it has ended. The
role `sessions` writes the record after the fold, at least once. The batch that folds a change of a
session also marks the session in the store. The mark is removed when a broker has confirmed the
announcement of the newest state. If the worker dies before this confirmation, it announces the
session after a restart. A second announcement is harmless. An announcement may be slightly older
than the log, because the topic is only an index.
"""

from collections import OrderedDict
from collections.abc import Callable

from ...log.door import Delivered, Producer
from ...log.errors import AppendError, FoldlogError, LogFatal
from ...log.partition import partition_for
from ...schemas.canonical import compact_ascii
from ...schemas.tabs import key_of
from ...schemas.topics import USER_SESSIONS
from ..fold.views import SessionViews

ANNOUNCED_MAX = 50_000  # sessions remembered as announced; others are announced again
_Announcement = tuple[int, bytes | None]
"""An announced session: the first offset at which this process owned the session's partition, and
the announced value.
"""


class Announcer:
    """Announces sessions; see the module docstring. It runs in the poll thread, for which `post`
    queues a job.

    partitions: the number of partitions of the topic.
    settled: called once the broker has a session's newest state.
    since: returns the first offset at which this process owns a session's partition; another worker
        may have announced the session's state at earlier offsets.
    """

    def __init__(
        self,
        producer: Producer,
        partitions: int,
        post: Callable[[Callable[[], None]], None],
        settled: Callable[[str], None],
        say: Callable[[str], None],
        since: Callable[[str], int],
    ) -> None:
        self._since = since
        self._producer, self._partitions = producer, partitions
        self._post, self._settled, self._say = post, settled, say
        self._announced: OrderedDict[str, _Announcement] = OrderedDict()
        self._in_flight: dict[str, _Announcement] = {}
        self._unsent: dict[str, tuple[str, _Announcement]] = {}  # the producer's queue was full

    def is_unannounced(self, views: SessionViews) -> bool:
        """Whether the broker may lack the newest announcement of a session."""
        return views.turn.known and self._announced.get(views.session_id) != self._state(views)

    def _state(self, views: SessionViews) -> _Announcement:
        return self._since(views.session_id), announcement_of(views)

    def announce(self, views: SessionViews) -> None:
        """Retry earlier announcements that failed, then announce a session's new state."""
        self._catch_up()
        session_id, state = views.session_id, self._state(views)
        if self.is_unannounced(views) and self._in_flight.get(session_id) != state:
            self._in_flight[session_id] = state
            self._produce(session_id, views.state.user_id or "", state)

    def _catch_up(self) -> None:
        while self._unsent:
            session_id = next(iter(self._unsent))
            user_id, state = self._unsent.pop(session_id)
            if self._in_flight.get(session_id) == state:
                self._produce(session_id, user_id, state)
                if session_id in self._unsent:
                    return  # the queue is still full

    def _produce(self, session_id: str, user_id: str, state: _Announcement) -> None:
        def on_delivery(answer: Delivered | AppendError) -> None:
            is_delivered = isinstance(answer, Delivered)
            self._post(lambda: self._acknowledged(session_id, user_id, state, is_delivered))

        place = partition_for(user_id, self._partitions)
        key = key_of(user_id, session_id)
        try:
            self._producer.append(
                USER_SESSIONS, key, state[1], partition=place, on_delivery=on_delivery
            )
        except LogFatal:
            raise
        except FoldlogError as error:
            if not self._unsent:
                self._say(f"session {session_id} was not announced yet; retrying: {error}")
            self._unsent[session_id] = user_id, state

    def _acknowledged(
        self, session_id: str, user_id: str, state: _Announcement, is_delivered: bool
    ) -> None:
        if self._in_flight.get(session_id) != state:
            return  # a newer state is in flight
        if not is_delivered:
            self._produce(session_id, user_id, state)
            return
        del self._in_flight[session_id]
        self._announced[session_id] = state
        self._announced.move_to_end(session_id)
        while len(self._announced) > ANNOUNCED_MAX:
            self._announced.popitem(last=False)
        self._settled(session_id)
        self._catch_up()


def announcement_of(views: SessionViews) -> bytes | None:
    """The announced value of a session; None (a tombstone) once the session has ended."""
    if views.turn.terminated:
        return None
    state = views.state
    shown = {"phase": state.phase, "project_id": state.project_id, "opened_at": views.turn.since}
    return compact_ascii(shown).encode()
