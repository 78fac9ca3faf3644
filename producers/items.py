"""Adds and retracts items: batches of history that another framework stores in a session.

As in `sessions.py`, each method writes one event and returns its position; a repeated id takes
effect once. A batch is one event, so it is written as a whole or not at all. Items are opaque JSON,
stored unchanged.
"""

from collections.abc import Sequence
from typing import Any

from ..schemas import events as ev
from ..schemas.canonical import compact_ascii, compact_strict
from . import checks
from .sessions import Receipt, Sessions

ITEMS_BYTES_MAX = 64 * 1024 * 1024
"""The largest batch, enough for a few dozen images. A large batch is stored as a blob."""


class Items:
    """Writes the items of all sessions. May be used from several threads."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(
        self, session_id: str, items: Sequence[Any], *, item_id: str, user: str | None = None
    ) -> Receipt:
        """Append a batch of items, in order."""
        content = self._sessions.body(items_json(items))
        return self._sessions.append(
            session_id,
            ev.ItemAdded(
                item_id=checks.an_id("item_id", item_id),
                content=content,
                items=len(items),
                by_user=self._sessions.user(user),
            ),
            item_id,
        )

    def retract(
        self,
        session_id: str,
        item_id: str,
        index: int,
        *,
        seen: int,
        command_id: str,
        user: str | None = None,
    ) -> Receipt:
        """Retract the last item.

        seen: the number of changes that the caller has seen. If the session has more changes by
        then, nothing is retracted.
        """
        return self._sessions.append(
            session_id,
            ev.ItemRetracted(
                item_id=checks.an_id("item_id", item_id),
                index=index,
                seen=seen,
                command_id=checks.an_id("command_id", command_id),
                by_user=self._sessions.user(user),
            ),
            command_id,
        )

    def clear(self, session_id: str, *, command_id: str, user: str | None = None) -> Receipt:
        """Retract every item before this event."""
        return self._sessions.append(
            session_id,
            ev.ItemRetracted(
                item_id="",
                all=True,
                command_id=checks.an_id("command_id", command_id),
                by_user=self._sessions.user(user),
            ),
            command_id,
        )


def items_json(items: Sequence[Any]) -> bytes:
    """A batch as a compact JSON list. Raises Invalid."""
    if not isinstance(items, list | tuple) or not items:
        raise checks.Invalid("invalid_content", "a batch is a list of at least one item")
    try:
        text = compact_strict(items)
        data = _utf8(text, items)
    except (TypeError, ValueError, RecursionError) as error:
        raise checks.Invalid("invalid_content", f"an item cannot be JSON: {error}") from None
    if len(data) > ITEMS_BYTES_MAX:
        raise checks.Invalid(
            "too_large", f"the batch has {len(data)} bytes, the maximum is {ITEMS_BYTES_MAX}"
        )
    return data


def _utf8(text: str, items: Sequence[Any]) -> bytes:
    """The text as UTF-8. A lone surrogate, which models do send, stays escaped."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return compact_ascii(items).encode()
