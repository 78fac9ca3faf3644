"""Implements the `Session` of the OpenAI Agents SDK on the log, for `Runner.run(agent, "hi",
session=session)`.

The SDK is not imported: its Session is a protocol of four methods. The methods may be called from
any thread and any event loop. If the caller of a method that changes the session is cancelled, the
change completes first.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from ..client.closing import Closing
from ..log.door import Log
from ..log.settings import Settings
from ..schemas.ids import is_id, why_not_an_id
from .items import ItemLog

if TYPE_CHECKING:
    from agents import SessionSettings, TResponseInputItem

T = TypeVar("T")

AGENT = "openai-agents"
"""The agent name of these sessions. No worker may serve an agent of this name."""

THREADS_MAX = 32
"""The most calls that wait for the log at the same time; a call takes a few milliseconds."""


class FoldlogSessions(Closing):
    """Makes sessions for the SDK's runner. Create one per process; if the process forks child
    processes, create it after the fork. Close it at the end.

    `log`: an open log to use, which `close` does not close. Raises SettingsError, LogUnreachable,
    TopicMissing.
    """

    def __init__(self, settings: Settings, log: Log | None = None, *, agent: str = AGENT) -> None:
        self.items = ItemLog(settings, log, agent=agent)
        self.threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="foldlog-session")

    def session(
        self,
        session_id: str,
        *,
        user: str | None = None,
        session_settings: "SessionSettings | None" = None,
    ) -> "FoldlogSession":
        """The session with this id. It is opened in the log when its first items are added.

        `user` owns the session and acts in it, by default the settings' user.
        """
        return FoldlogSession(self, session_id, user=user, session_settings=session_settings)

    def close(self) -> None:
        """Stop the threads of this object, and close the log if this object opened it."""
        self.threads.shutdown()
        self.items.close()


class FoldlogSession:
    """See `agents.memory.Session`. All events stay in the log, even those of removed items."""

    def __init__(
        self,
        sessions: FoldlogSessions,
        session_id: str,
        *,
        user: str | None = None,
        session_settings: "SessionSettings | None" = None,
    ) -> None:
        if not is_id(session_id):
            raise ValueError(why_not_an_id("session_id", session_id))
        self.session_id = self._kept_as = session_id
        self.session_settings = session_settings
        self._sessions, self._user = sessions, user

    async def get_items(self, limit: int | None = None) -> "list[TResponseInputItem]":
        """The latest items, oldest first. Their number is at most `limit`, by default the limit in
        the session's settings.

        A limit of 0 or less returns none.
        """
        if limit is None:
            limit = getattr(self.session_settings, "limit", None)
        wanted = None if limit is None else max(0, limit)
        items = self._sessions.items
        return await asyncio.wrap_future(self._begin(items.items, wanted))

    async def add_items(self, items: "list[TResponseInputItem]") -> None:
        """Append either all of these items, in order, or none."""
        store = self._sessions.items
        await _uncancelled(self._begin(store.add, list(items), self._user))

    async def pop_item(self) -> "TResponseInputItem | None":
        """Remove and return the last item; None if there is none."""
        return await _uncancelled(self._begin(self._sessions.items.pop, self._user))

    async def clear_session(self) -> None:
        """Remove every item."""
        await _uncancelled(self._begin(self._sessions.items.clear, self._user))

    def _begin(self, method: Callable[..., T], *args: Any) -> "Future[T]":
        return self._sessions.threads.submit(method, self._kept_as, *args)


async def _uncancelled(running: "Future[T]") -> T:
    """Await the end of a change even if the caller is cancelled, then raise the cancellation."""
    task = asyncio.wrap_future(running)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if cancelled is not None:
        task.exception()  # marks the exception as retrieved, since the caller will not read it
        raise cancelled
    return task.result()
