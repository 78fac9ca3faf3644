"""Describes an event in one line, for long lists, without the text of a chunk."""

from typing import Any

from ...client.printable import DIGESTS, text_of, whole
from ...schemas import events as ev
from ...schemas.codec import ChunkSeen, Entry, Unreadable
from ...schemas.events.parts import Body
from ...schemas.value import field_names

SUMMARY_CHARS = 120
"""The longest summary, which is one line on a desktop screen and two on a phone."""

PLACE = ("turn", "step", "index", "attempt")
UNLABELLED = (
    "content", "summary", "text", "reason", "why", "name", "trigger", "decision", "outcome",
)
"""Fields that come first, without their names."""

LEFT_OUT = DIGESTS | {"basis", "context_sha256", "request_sha256", "rules", "epoch", "args_sha256"}
"""Fields that are not useful in a summary; the event's details show them."""


def summary(entry: Entry) -> str:
    """The event's content in one line: first TURN.STEP..., then the event's fields."""
    event = entry.event
    match event:
        case ev.GenChunk():
            size = f"{len(event.delta)} characters of {event.kind}"
            return f"{_place(event)} seq {event.seq} block {event.block}: {size}"
        case ChunkSeen():
            return "a piece of an answer"
        case Unreadable():
            return brief(f"cannot be read: {event.why}")
    unlabelled, labelled = [_place(event)], []
    for name in field_names(event):
        text = "" if name in PLACE or name in LEFT_OUT else _text(getattr(event, name))
        if text and name in UNLABELLED:
            unlabelled.append(text)
        elif text:
            labelled.append(f"{name} {text}")
    return brief(" ".join(part for part in (*unlabelled, *labelled) if part))


def brief(text: str, chars: int = SUMMARY_CHARS) -> str:
    """The text as one line of at most `chars` characters."""
    line = " ".join(text[: 4 * chars].split())
    return line if len(line) <= chars else f"{line[: chars - 1]}…"


def _place(event: Any) -> str:
    numbers = [getattr(event, name, None) for name in PLACE[:3]]
    place = ".".join(str(number) for number in numbers if number is not None)
    attempt = getattr(event, "attempt", None)
    return f"{place} attempt {attempt}" if attempt and attempt > 1 else place


def _text(value: Any) -> str:
    match value:
        case None | "" | b"" | () | False:
            return ""
        case Body():
            data = whole(value, None)
            return text_of(data) or data[: 4 * SUMMARY_CHARS].decode("utf-8", "replace")
        case bytes():
            return value[: 4 * SUMMARY_CHARS].decode("utf-8", "replace")
        case tuple() | list():
            return ", ".join(filter(None, map(_text, value[:5])))
    names = field_names(value)
    if names:
        return " ".join(filter(None, (_text(getattr(value, n)) for n in names if n != "raw")))
    return str(value)
