"""One event in one line, for a list of ten thousand: never the text of a chunk.

This file must not know who shows it.
"""

from typing import Any

from ...schemas import events as ev
from ...schemas.codec import ChunkSeen, Entry, Unreadable
from ...schemas.events.parts import Body
from ...schemas.value import field_names
from ..contents import DIGESTS, text_of, whole

WORDS_CHARS = 120
"""Of a line: a screen of a desk, two lines of a phone."""

PLACE = ("turn", "step", "index", "attempt")
SPOKEN = ("content", "summary", "text", "reason", "why", "name", "trigger", "decision", "outcome")
"""Fields that come first and need no name."""

LEFT_OUT = DIGESTS | {"basis", "context_sha256", "request_sha256", "rules", "epoch", "args_sha256"}
"""Of no use in a line: they are among the fields of the event."""


def summary(entry: Entry) -> str:
    """What the event says, as words: TURN.STEP... first, then its fields."""
    event = entry.event
    match event:
        case ev.GenChunk():
            size = f"{len(event.delta)} characters of {event.kind}"
            return f"{_place(event)} seq {event.seq} block {event.block}: {size}"
        case ChunkSeen():
            return "a piece of an answer"
        case Unreadable():
            return brief(f"can't be read: {event.why}")
    said, told = [_place(event)], []
    for name in field_names(event):
        words = "" if name in PLACE or name in LEFT_OUT else _words(getattr(event, name))
        if words and name in SPOKEN:
            said.append(words)
        elif words:
            told.append(f"{name} {words}")
    return brief(" ".join(part for part in (*said, *told) if part))


def brief(text: str, chars: int = WORDS_CHARS) -> str:
    """The text as one line of at most so many characters."""
    line = " ".join(text[: 4 * chars].split())
    return line if len(line) <= chars else f"{line[: chars - 1]}…"


def _place(event: Any) -> str:
    numbers = [getattr(event, name, None) for name in PLACE[:3]]
    place = ".".join(str(number) for number in numbers if number is not None)
    attempt = getattr(event, "attempt", None)
    return f"{place} attempt {attempt}" if attempt and attempt > 1 else place


def _words(value: Any) -> str:
    match value:
        case None | "" | b"" | () | False:
            return ""
        case Body():
            data = whole(value, None)
            return text_of(data) or data[: 4 * WORDS_CHARS].decode("utf-8", "replace")
        case bytes():
            return value[: 4 * WORDS_CHARS].decode("utf-8", "replace")
        case tuple() | list():
            return ", ".join(filter(None, map(_words, value[:5])))
    names = field_names(value)
    if names:
        return " ".join(filter(None, (_words(getattr(value, n)) for n in names if n != "raw")))
    return str(value)
