"""messages: every message by its id, its turn, and its outcome.

The rows are append-only: a message is received once, and further rows record the progress of its
turn.
"""

from operator import attrgetter
from typing import assert_never, get_args

from ....schemas import events as ev
from ....schemas.codec import Entry
from ....schemas.tokens import estimate_size, recounted
from ....schemas.value import Value, replace
from ..rows import Rows
from .message_sha import message_sha
from .turn_view import TurnView


class Received(Value):
    """A message as received. `tokens`: an estimate for the newest family of models."""

    message_id: str
    sha256: str
    content: ev.Body
    tokens: int
    by_user: str
    offset: int
    at: int

    def tokens_for(self, family: str) -> int:
        """The message's tokens, counted for a family of models."""
        return recounted(self.tokens, self.content.inline or b"", family)


class Progress(Value):
    """The turn that owns a message, and the reason that turn ended, or ''."""

    message_id: str
    turn: int
    reason: str
    offset: int


class MessagesView(Value):
    """Rows indexed by message_id; the last row of an id is current."""

    received: Rows[Received]
    progress: Rows[Progress]


Reads = ev.MessageReceived | ev.LlmCalled | ev.TurnEnded
READS = frozenset(get_args(Reads))


def initial() -> MessagesView:
    """The view without messages; a new value each time, because rows share storage."""
    message_id = attrgetter("message_id")
    return MessagesView(Rows(key=message_id), Rows(key=message_id))


def body_size(body: ev.Body) -> int:
    """Size of a body in bytes, inline or blob."""
    return len(body.inline or b"") + (body.ref.bytes if body.ref is not None else 0)


def apply(view: MessagesView, entry: Entry, before: TurnView, turn: TurnView) -> MessagesView:
    """The view after an accepted event; `before` and `turn`: the turn view before and after it."""
    event: Reads = entry.event
    match event:
        case ev.MessageReceived():
            row = Received(
                event.message_id,
                message_sha(event.role, event.content),
                event.content,
                event.tokens if event.tokens > 0 else estimate_size(body_size(event.content)),
                event.by_user,
                entry.offset,
                entry.at,
            )
            rows = [
                Progress(message_id, turn.number, "", entry.offset)
                for message_id in turn.owned
                if message_id not in before.owned
            ]
            return MessagesView(view.received.append(row), view.progress.append(*rows))
        case ev.LlmCalled():
            steered = [m for m in event.includes if m not in before.owned]
            rows = [Progress(m, event.turn, "", entry.offset) for m in steered]
            return replace(view, progress=view.progress.append(*rows)) if rows else view
        case ev.TurnEnded():
            ended = [*before.said, *before.owned]
            if before.terminated:
                ended += [waiting.message_id for waiting in before.queue]
            rows = [Progress(m, event.turn, event.reason, entry.offset) for m in ended]
            rows += [Progress(m, turn.number, "", entry.offset) for m in turn.owned]
            return replace(view, progress=view.progress.append(*rows))
        case _:
            assert_never(event)
