"""tail: formats each event as one line, with its partition and offset, its time, its type, and its
content in a few words.

`--json` also has the fields that only machines need: hashes, basis, epochs, deadlines.
"""

import time
from datetime import datetime
from typing import Any

from ...client.printable import text_of, type_of, whole
from ...log.blobs import BlobError
from ...schemas import events as ev
from ...schemas.codec import ChunkSeen, Entry, Unreadable
from ...schemas.enums import Outcome, Via, WhenBusy
from ...schemas.events.effects import ALIVE_SEQ
from ...schemas.events.parts import Body, ReadBlob
from ...schemas.value import field_names
from .printing import LINE_CHARS_MAX, brief

RESET, DIM, BOLD = "\x1b[0m", "\x1b[2m", "\x1b[1m"
RED, GREEN, YELLOW, BLUE, MAGENTA = (f"\x1b[{n}m" for n in range(31, 36))
PLACE_WIDTH, TYPE_WIDTH = 6, 17
"""The widths of the columns for the place and the type. A longer text shifts only its own line."""

CHARS_MAX = 3 * LINE_CHARS_MAX
"""The most characters of a line that is written to a file or a pipe."""

TEXT_CHARS, TEXT_CHARS_MIN = 100, 20
"""The most characters of one text in a line, and the fewest for everything after the type on a
narrow terminal.
"""

_COLOURS: tuple[tuple[str, tuple[type, ...]], ...] = (
    (BOLD, (ev.MessageReceived,)),
    (RED, (ev.GenFailed, ev.ToolFailedUncertain, ev.Refused, ev.DeliveryFailed, Unreadable)),
    (YELLOW, (ev.HumanNeeded, ev.ApprovalExpired, ev.CancelRequested, ev.GenStopped,
              ev.GenResumed)),
    (GREEN, (ev.ApprovalDecided, ev.HumanResolved, ev.TurnEnded, ev.PhaseTriggered,
             ev.ProjectLocked, ev.SessionTerminated)),
    (BLUE, (ev.LlmCalled, ev.GenStart, ev.GenComplete)),
    (MAGENTA, (ev.ToolInvoked, ev.ToolStarted, ev.ToolResult)),
)


def event_line(
    entry: Entry, read: ReadBlob | None, *, session: bool, colours: bool, width: int | None
) -> str:
    """One event as a line without characters that control a terminal, except for its own colours.

    session: whether to print the session's id.
    width: the terminal's width; None if the output is not a terminal.
    """
    name = brief(type_of(entry))
    place = f"{entry.partition}:{entry.offset}".ljust(PLACE_WIDTH)
    who = f" {brief(entry.session_id)}" if session else ""
    head = f"{place} {clock(entry.at)}{who}"
    before = len(head) + len(name.ljust(TYPE_WIDTH)) + 2
    text = brief(words(entry.event, read), max(TEXT_CHARS_MIN, (width or CHARS_MAX) - before))
    if not colours:
        return f"{head} {name:{TYPE_WIDTH}} {text}".rstrip()
    colour = next((code for code, types in _COLOURS if isinstance(entry.event, types)), DIM)
    if isinstance(entry.event, ev.ToolResult) and entry.event.outcome != Outcome.OK:
        colour = RED
    rest = f"{DIM}{text}{RESET}" if colour == DIM else text
    return f"{DIM}{head}{RESET} {colour}{name:{TYPE_WIDTH}}{RESET} {rest}"


def clock(at_ms: int) -> str:
    """The local time with milliseconds, and with the date unless that is today."""
    then = datetime.fromtimestamp(at_ms / 1000)
    text = f"{then:%H:%M:%S}.{at_ms % 1000:03d}"
    is_today = then.date() == datetime.fromtimestamp(time.time()).date()
    return text if is_today else f"{then:%Y-%m-%d} {text}"


def words(event: Any, read: ReadBlob | None = None) -> str:
    """The content of an event, in a few words."""

    def quoted(body: Body | None) -> str:
        return _quoted(body, read)

    match event:
        case ev.SessionOpened(parent_session=parent):
            fork = f", a fork of {parent} at {event.parent_offset}" if parent else ""
            return f"agent {event.agent}, user {event.user_id}{fork}"
        case ev.MessageReceived():
            busy = f", {event.when_busy}" if event.when_busy != WhenBusy.QUEUE else ""
            return f"{quoted(event.content)} from {event.by_user} ({event.message_id}{busy})"
        case ev.ContextSet():
            return f"system prompt and tools, {event.tokens or 'unknown'} tokens"
        case ev.LlmCalled():
            return (f"{_step(event)} {event.model}, about {event.prompt_tokens:,} tokens, "
                    f"strategy {event.strategy}")
        case ev.GenStart():
            return f"{_attempt(event)} by {event.owner}"
        case ev.GenResumed():
            return f"{_attempt(event)} by {event.owner}: {event.strategy} the lost attempt"
        case ev.GenChunk(seq=seq) if seq == ALIVE_SEQ:
            return f"{_attempt(event)} is alive, no content yet"
        case ev.GenChunk():
            return f"{_attempt(event)} {event.kind} {_text(event.delta)}"
        case ev.GenComplete():
            out = f", {event.usage.output_tokens:,} tokens" if event.usage is not None else ""
            calls = ", ".join(call.name for call in event.calls)
            called = f", calls {calls}" if calls else ""
            why = event.refusal_explanation and f": {_text(event.refusal_explanation)}"
            refused = f" ({event.refusal_category}{why})" if event.refusal_category else ""
            what = f"{event.stop_reason}{refused}{out}{called}"
            return f"{_attempt(event)} {what}: {quoted(event.content)}"
        case ev.GenFailed():
            after = "for good" if event.permanent else "to be retried"
            status = f" {event.status}" if event.status else ""
            return f"{_attempt(event)} {event.error}{status}, {after}: {event.detail}"
        case ev.GenStopped():
            return f"{_attempt(event)} {event.why}: {quoted(event.content)}"
        case ev.ToolInvoked():
            ends = f", {event.outcome}: {quoted(event.content)}" if event.outcome else ""
            asks = {"none": "", "ask": ", asks for approval"}.get(
                event.approval, f", approval {event.approval}")
            return f"{_call(event)} {event.name} ({event.effect}{asks}){ends}"
        case ev.ToolStarted():
            return f"{_call(event)} attempt {event.attempt} by {event.owner}"
        case ev.ToolResult():
            via = f" via {event.via}" if event.via != Via.TOOL else ""
            content = quoted(event.content)
            return f"{_call(event)} attempt {event.attempt} {event.outcome}{via}: {content}"
        case ev.ToolFailedUncertain():
            return f"{_call(event)} attempt {event.attempt}: {event.reason}"
        case ev.ApprovalDecided():
            always = ", remembered" if event.remember else ""
            return f"{event.call} {event.decision} by {event.by_user}{always}"
        case ev.HumanResolved():
            return f"{event.call} {event.outcome} by {event.by_user}: {quoted(event.content)}"
        case ev.HumanNeeded():
            return f"{event.call}: {event.why}"
        case ev.TurnEnded():
            limit = f", limit {event.limit}" if event.limit is not None else ""
            return f"turn {event.turn} {event.reason}{limit}"
        case ev.PartitionTaken():
            return f"{event.role} by {event.owner}"
        case ev.Refused():
            return f"offset {event.offset} {event.code}: {event.detail}"
        case Unreadable():
            return event.why
        case ChunkSeen():
            return _attempt(event)
    return _fields(event, read)


_NOISE = ("basis", "epoch", "deadline", "start_by", "sha256", "views_sha", "usage", "raw")


def _fields(event: Any, read: ReadBlob | None) -> str:
    """Names and values of an event's fields, for events that `words` has no sentence for."""
    parts = []
    for name in field_names(event):
        value = getattr(event, name)
        if name in _NOISE or value in (None, "", b"", (), False):
            continue
        text = _quoted(value, read) if isinstance(value, Body) else brief(str(value), TEXT_CHARS)
        parts.append(f"{name} {text}")
    return ", ".join(parts)


def _step(event: Any) -> str:
    return f"{event.turn}.{event.step}"


def _attempt(event: Any) -> str:
    return f"{_step(event)} attempt {event.attempt}"


def _call(event: Any) -> str:
    return f"{_step(event)}.{event.index}"


def _quoted(body: Body | None, read: ReadBlob | None) -> str:
    if body is None:
        return '""'
    try:
        data = whole(body, read)
    except BlobError as error:
        return f"[{error}]"
    is_blocks = data.startswith(b"[")
    text = text_of(data) or ("" if is_blocks else data.decode("utf-8", "replace"))
    rest = f" ({body.ref.bytes:,} bytes)" if body.ref is not None and read is None else ""
    return _text(text) + rest


def _text(text: str) -> str:
    return f'"{brief(text, TEXT_CHARS)}"'
