"""Stores the histories of another framework in the log: each session is a list of items. Items can
be appended, and the last item or all items can be removed.

The methods of ItemLog block, and may be called from many threads and processes at once. When a
method that changes a session returns, the fold has applied the change, so every later read includes
it. All adapters for conversation stores use this file.
"""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from ..client.closing import Closing
from ..client.outcomes import Decision, demand
from ..log import open_log
from ..log.blobs import open_blobs
from ..log.door import Log
from ..log.errors import Refused
from ..log.settings import Settings
from ..processors.fold.projections.items import ItemsView, last_item, newest_first, version
from ..processors.fold.views import SessionViews
from ..producers.items import Items
from ..producers.sessions import Receipt, Sessions, Unacknowledged
from ..schemas import events as ev
from .session_cache import SessionCache

TRIES = 3
"""How often an unacknowledged event is produced; the fold accepts the event only once."""


class OtherAgent(Refused):
    """The session was opened for another agent, not by an adapter, so an adapter may not write to
    it.
    """


class ItemLog(Closing):
    """The items of every session of one installation. Create one per process; close it, or use
    `with`.

    `agent` is the name that sessions are opened under. No worker may serve that agent, because a
    worker would answer the sessions itself. Raises CommandRefused when the fold refuses a change,
    OtherAgent, Invalid, BlobError, Unacknowledged, LogUnreachable.
    """

    def __init__(self, settings: Settings, log: Log | None = None, *, agent: str) -> None:
        self._log = log if log is not None else open_log(settings)
        self._owns_log = log is None
        self._agent = agent
        self._sessions = Sessions(self._log, settings)
        self._items = Items(self._sessions)
        self._blobs = open_blobs(settings)
        self._cache = SessionCache(
            self._log, _name_of, lambda ref: self._blobs.get(ref.sha256)
        )

    def items(self, session_id: str, limit: int | None = None) -> list[Any]:
        """The newest `limit` items, or all items, oldest first."""
        wanted = self._fresh(session_id).items
        return self._read(wanted, wanted.live if limit is None else min(limit, wanted.live))

    def add(self, session_id: str, items: list[Any], user: str | None = None) -> None:
        """Append either all of these items or none."""
        if not items:
            return
        if not self._demand_own(self._cache.views(session_id)).turn.known:
            self._sessions.open(session_id, agent=self._agent, user=user)
        item_id = uuid4().hex
        demand(
            self._produce(
                session_id,
                item_id,
                lambda: self._items.add(session_id, items, item_id=item_id, user=user),
            )
        )

    def pop(self, session_id: str, user: str | None = None) -> Any:
        """Remove and return the last item; None if there is none."""
        while True:  # each lost race means that another caller succeeded
            views = self._fresh(session_id)
            if not views.items.live:
                return None
            decision = self._retract_last(session_id, views.items, user)
            if decision.code != "stale":
                demand(decision)
                return self._read(views.items, 1)[0]

    def clear(self, session_id: str, user: str | None = None) -> None:
        """Remove every item. The removed items stay in the log."""
        if not self._fresh(session_id).items.live:
            return
        command = uuid4().hex
        demand(
            self._produce(
                session_id,
                command,
                lambda: self._items.clear(session_id, command_id=command, user=user),
            )
        )

    def close(self) -> None:
        """Close the reader and the producer, and the log if this object opened it."""
        self._cache.close()
        self._sessions.close()
        if self._owns_log:
            self._log.close()

    def _fresh(self, session_id: str) -> SessionViews:
        return self._demand_own(self._cache.fresh_views(session_id))

    def _demand_own(self, views: SessionViews) -> SessionViews:
        if views.turn.known and views.turn.agent != self._agent:
            raise OtherAgent(
                f"session {views.session_id} belongs to agent {views.turn.agent}, whose history is "
                "written by foldlog's own workers. Nothing was changed. Use another session id."
            )
        return views

    def _retract_last(self, session_id: str, view: ItemsView, user: str | None) -> Decision:
        last, command = last_item(view), uuid4().hex
        assert last is not None
        return self._produce(
            session_id,
            command,
            lambda: self._items.retract(
                session_id, *last, seen=version(view), command_id=command, user=user
            ),
        )

    def _produce(self, session_id: str, name: str, produce: Callable[[], Receipt]) -> Decision:
        """Produce an event, and wait for the fold's ruling on it."""
        self._cache.expect(session_id, name)
        try:
            for left in reversed(range(TRIES)):
                try:
                    produce()
                    break
                except Unacknowledged:
                    if self._cache.decided(session_id, name) is not None:
                        break
                    if not left:
                        raise
            return self._cache.decision(session_id, name)
        finally:
            self._cache.forget(session_id, name)

    def _read(self, view: ItemsView, count: int) -> list[Any]:
        """The last `count` live items, as new objects."""
        runs: list[list[Any]] = []
        for batch, holding in newest_first(view):
            if count <= 0:
                break
            live = json.loads(self._blobs.resolve(batch.content))[:holding]
            runs.append(live[-count:])
            count -= len(live)
        return [item for run in reversed(runs) for item in run]


def _name_of(event: object) -> str:
    match event:
        case ev.ItemAdded():
            return event.item_id
        case ev.ItemRetracted():
            return event.command_id
    return ""
