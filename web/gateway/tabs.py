"""The tabs (open sessions) of every user, read from the compacted topic `user-sessions`.

One thread reads the topic from its first offset and keeps each session's newest record in memory,
so the list is available while no worker runs. A listener gets the user's open sessions, then each
change: session_open, phase (or project), session_close. This is only a list of sessions; the state
of a session follows from its own events.
"""

import threading
from collections.abc import Callable
from typing import NamedTuple

from ...log.door import Log
from ...log.errors import OffsetGone
from ...schemas.record import Record
from ...schemas.tabs import Tab, names_in, tab_in
from ...schemas.topics import USER_SESSIONS

POLL_S = 0.2
AGAIN_S = 5.0
"""How long the thread waits after an error before it reads the topic again, in seconds."""


class Change(NamedTuple):
    """A change of a user's list of sessions. kind: session_open, phase or session_close."""

    kind: str
    tab: Tab


Listener = Callable[[Change | None], None]
"""A function that gets each change; None tells it to leave."""


class Tabs:
    """The tabs of every user. Call from any thread; listeners are called in the reading thread.

    The constructor raises LogUnreachable, TopicMissing.
    """

    def __init__(self, log: Log, report: Callable[[str], None] = lambda _line: None) -> None:
        self._log, self._report = log, report
        self._users: dict[str, dict[str, Tab]] = {}
        self._listeners: dict[str, list[Listener]] = {}
        self._is_ended = False
        self._lock = threading.Lock()
        self._halt = threading.Event()
        self._goal = log.end_offsets(USER_SESSIONS)
        self._reader = log.reader(USER_SESSIONS, log.first_offsets(USER_SESSIONS))
        self.caught_up = threading.Event()
        self.failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tabs", daemon=True)

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._halt.set()
        if self._thread.is_alive():
            self._thread.join()
        self._reader.close()

    def open_sessions(self, user: str) -> list[Tab]:
        """The user's open sessions, newest first."""
        with self._lock:
            found = list(self._users.get(user, {}).values())
        return sorted(found, key=lambda tab: (-tab.opened_at, tab.session_id))

    def listen(self, user: str, listener: Listener) -> list[Tab]:
        """Return the open sessions, and call `listener` with every later change, until `leave`."""
        with self._lock:
            self._listeners.setdefault(user, []).append(listener)
            if self._is_ended:
                listener(None)
            return list(self._users.get(user, {}).values())

    def leave(self, user: str, listener: Listener) -> None:
        """Stop calling this listener."""
        with self._lock:
            left = [other for other in self._listeners.pop(user, []) if other is not listener]
            if left:
                self._listeners[user] = left

    def disconnect(self) -> None:
        """Tell every listener, present or new, to leave."""
        with self._lock:
            self._is_ended = True
            listeners = [one for several in self._listeners.values() for one in several]
        for listener in listeners:
            listener(None)

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._halt.is_set():
            try:
                if self.failed is not None:
                    self._start_over()
                self.look(POLL_S)
            except BaseException as error:
                if str(error) != str(self.failed):
                    self._report(f"tabs are not followed: {type(error).__name__}: {error}")
                self.failed = error
                self._halt.wait(AGAIN_S)

    def _start_over(self) -> None:
        """Read the whole topic again; it is compacted and small."""
        goal, first = self._log.end_offsets(USER_SESSIONS), self._log.first_offsets(USER_SESSIONS)
        reader = self._log.reader(USER_SESSIONS, first)
        self._reader.close()
        with self._lock:
            self._users.clear()
        self.caught_up.clear()
        self._goal, self._reader, self.failed = goal, reader, None
        self._report("tabs are followed again")

    def look(self, timeout_s: float = 0) -> None:
        """Read new records. Called by the thread, or by a test that started no thread."""
        try:
            records = self._reader.poll(timeout_s)
        except OffsetGone as gone:  # compacted before a slow reader read it
            self._reader.seek(gone.partition, gone.first)
            return
        for record in records:
            self._take(record)
        at = self._reader.positions()
        if all(at.get(p, 0) >= end for p, end in self._goal.items()):
            self.caught_up.set()

    def _take(self, record: Record) -> None:
        user, session_id = names_in(record.key)
        if not session_id:
            return
        tab = tab_in(session_id, record.value)
        with self._lock:
            tabs = self._users.setdefault(user, {})
            before = tabs.get(session_id)
            if tab is not None:
                tabs[session_id] = tab
            else:
                tabs.pop(session_id, None)
            if not tabs:
                del self._users[user]
            listeners = tuple(self._listeners.get(user, ()))
        change = _change(before, tab)
        if change is not None:
            for listener in listeners:
                listener(change)


def _change(before: Tab | None, tab: Tab | None) -> Change | None:
    if before == tab:
        return None  # a repeated record
    if tab is None:
        assert before is not None
        return Change("session_close", before)
    return Change("session_open" if before is None else "phase", tab)
