"""delivery: answers pending for push channels (lane D of WAKE), and those that were given up.

A message names the channel through which it was sent. An answer with text goes to every push
channel through which a message of its turn was sent. Clients that show a stream get it from the log
and need no delivery. The address of a channel is a setting, not a fact of the log.
"""

from enum import StrEnum
from typing import Any, assert_never, get_args

from ....schemas import events as ev
from ....schemas.codec import Entry
from ....schemas.ids import is_push
from ....schemas.nesting import parsed
from ....schemas.value import Value, replace
from .turn_view import Claim, TurnView, claim_of

OWED_MAX = 64  # pending at a time; the oldest beyond that is given up
UNDELIVERED_MAX = 16  # kept for display; older ones are only counted


class DeliveryStatus(StrEnum):
    """The status of a delivery's newest attempt, or OWED before the first attempt."""

    OWED = "owed"
    RUNNING = "running"
    FAILED = "failed"


class Asked(Value):
    """A message that was sent through a push channel and whose turn has not ended."""

    message_id: str
    channel: str


class Owed(Value):
    """The delivery of an answer to a channel.

    `number`: its number in the session, from 1.
    `error`: the error of the newest attempt that failed.
    """

    number: int
    turn: int
    step: int
    channel: str
    status: DeliveryStatus = DeliveryStatus.OWED
    attempt: int = 0
    claim: Claim | None = None
    retry_at: int = 0
    error: str = ""


class DeliveryView(Value):
    """`owed`: pending deliveries in the order of the answers.
    `undelivered`: the newest deliveries that were given up.
    `given_up`: how many deliveries were given up.
    `count`: the number of all deliveries.
    """

    asked: tuple[Asked, ...] = ()
    owed: tuple[Owed, ...] = ()
    undelivered: tuple[Owed, ...] = ()
    count: int = 0
    given_up: int = 0


INITIAL = DeliveryView()
Reads = (
    ev.MessageReceived
    | ev.GenComplete
    | ev.TurnEnded
    | ev.DeliveryStarted
    | ev.DeliveryFailed
    | ev.GenSent
)
READS = frozenset(get_args(Reads))


def find_owed(view: DeliveryView, turn: int, step: int, channel: str) -> Owed | None:
    """The pending delivery of that answer to the channel, or None."""
    for owed in view.owed:
        if (owed.step, owed.turn, owed.channel) == (step, turn, channel):
            return owed
    return None


def delivery_of(view: DeliveryView, number: int) -> Owed:
    """The delivery of that number, which must be pending."""
    return next(owed for owed in view.owed if owed.number == number)


def next_owed(view: DeliveryView) -> list[Owed]:
    """The deliveries that may run now: the oldest one of each channel, to keep answers in order."""
    first: dict[str, Owed] = {}
    for owed in view.owed:
        first.setdefault(owed.channel, owed)
    return list(first.values())


def apply(view: DeliveryView, entry: Entry, before: TurnView, after: TurnView) -> DeliveryView:
    """The view after an accepted event; `before` and `after`: the turn view before and after the
    event."""
    event: Reads = entry.event
    match event:
        case ev.MessageReceived():
            if not is_push(event.channel):
                return view
            return replace(view, asked=(*view.asked, Asked(event.message_id, event.channel)))
        case ev.TurnEnded():
            asked = tuple([asked for asked in view.asked if asked.message_id in after.owned])
            return view if asked == view.asked else replace(view, asked=asked)
        case ev.GenComplete():
            return _answered(view, event, before.said)
        case ev.DeliveryStarted():
            claim, attempt = claim_of(entry, event), event.attempt
            owed = _owed(view, event)
            return _with(view, owed, status=DeliveryStatus.RUNNING, attempt=attempt, claim=claim)
        case ev.DeliveryFailed():
            return _failed(view, entry, event)
        case ev.GenSent():
            return _sent(view, event)
        case _:
            assert_never(event)


def _owed(view: DeliveryView, event: ev.DeliveryStarted | ev.DeliveryFailed) -> Owed:
    owed = find_owed(view, event.turn, event.step, event.channel)
    assert owed is not None, "an accepted event names a pending delivery"
    return owed


def _failed(view: DeliveryView, entry: Entry, event: ev.DeliveryFailed) -> DeliveryView:
    owed, error = _owed(view, event), f"{event.error}: {event.detail}"[:300]
    if event.permanent:
        return _given_up(_without(view, owed), replace(owed, error=error))
    due = event.retry_at or entry.at
    return _with(view, owed, status=DeliveryStatus.FAILED, retry_at=due, error=error)


def _answered(
    view: DeliveryView, event: ev.GenComplete, message_ids: tuple[str, ...]
) -> DeliveryView:
    asked = [asked.channel for asked in view.asked if asked.message_id in message_ids]
    channels = tuple(dict.fromkeys(asked))
    if not channels or not _has_text(event.content):
        return view
    new = [
        Owed(view.count + place, event.turn, event.step, channel)
        for place, channel in enumerate(channels, 1)
    ]
    view = replace(view, owed=(*view.owed, *new), count=view.count + len(new))
    while len(view.owed) > OWED_MAX:
        oldest, why = view.owed[0], f"dropped: more than {OWED_MAX} answers waited"
        view = _given_up(_without(view, oldest), replace(oldest, error=why))
    return view


def _has_text(content: ev.Body) -> bool:
    """Whether an answer may have text to deliver.
    A blob counts as text, since it is not read here."""
    if content.ref is not None:
        return True
    return bool(text_of(content.inline or b"[]"))


def text_of(content: bytes) -> str:
    """The text of an answer's content, as a person reads it; '' if it has none."""
    try:
        blocks = parsed(content)
    except ValueError:
        return ""
    if not isinstance(blocks, list):
        return ""
    texts = [b.get("text") for b in blocks if isinstance(b, dict) and b.get("type") == "text"]
    text = "".join(text for text in texts if isinstance(text, str))
    return text if text.strip() else ""


def _with(view: DeliveryView, owed: Owed, **changes: Any) -> DeliveryView:
    changed = replace(owed, **changes)
    return replace(view, owed=tuple([changed if o is owed else o for o in view.owed]))


def _without(view: DeliveryView, owed: Owed) -> DeliveryView:
    return replace(view, owed=tuple([other for other in view.owed if other is not owed]))


def _given_up(view: DeliveryView, owed: Owed) -> DeliveryView:
    undelivered = (*view.undelivered, owed)[-UNDELIVERED_MAX:]
    return replace(view, undelivered=undelivered, given_up=view.given_up + 1)


def _sent(view: DeliveryView, event: ev.GenSent) -> DeliveryView:
    """The view after a GEN_SENT, which counts even for a delivery that was given up."""
    place = (event.turn, event.step, event.channel)
    owed = find_owed(view, *place)
    if owed is not None:
        return _without(view, owed)
    late = [o for o in view.undelivered if (o.turn, o.step, o.channel) == place]
    if not late:
        return view
    left = tuple([other for other in view.undelivered if other not in late])
    return replace(view, undelivered=left, given_up=view.given_up - len(late))
