"""The history for a viewer that joins late or reconnects, from the views, without reading the log.

The history is the transcript's lines, then the open attempt's output so far. A viewer that
reconnects gets what it missed and nothing twice: it sends its `Place`, which records how far it had
read, so the server keeps no state for it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from operator import attrgetter
from typing import NamedTuple, TypeVar, assert_never
from zlib import crc32

from ..processors.fold.projections.transcript import CONTINUED, Line
from ..processors.fold.rows import Rows
from ..processors.fold.views import SessionViews
from ..schemas.enums import ChunkKind
from ..schemas.events.parts import ReadBlob
from .printable import blocks_of, whole
from .transcript_stream import (
    SPOKEN,
    Attempt,
    Dropped,
    LineAdded,
    Settled,
    Shown,
    Token,
    Viewer,
    rest,
    spoken,
    taken,
)

R = TypeVar("R")
KINDS = tuple(ChunkKind)
"""The kinds of tokens, in the order of their counts in `Place.shown`."""
_KIND_AT: dict[str, int] = {kind: at for at, kind in enumerate(KINDS)}

SETTLING = ("answer", "partial")
"""Line kinds that settle an attempt."""


class ShownText(NamedTuple):
    """How many characters of an attempt's text of one kind were shown, and their CRC-32."""

    chars: int = 0
    crc: int = 0


NOTHING_SHOWN = (ShownText(),) * len(KINDS)


class Place(NamedTuple):
    """How far a viewer has read.

    `offset`: the offset after the last event that was shown completely.
    `open`: the attempt that is being shown.
    `shown`: how much of this attempt was shown, in the order of KINDS.
    `lines`: how many lines of the next event were shown.
    """

    offset: int = 0
    open: Attempt | None = None
    shown: tuple[ShownText, ...] = NOTHING_SHOWN
    lines: int = 0


class Frame:
    """One item for a viewer. cursor: where to resume after it, also if its event has more items.

    live: False for an item of the history, which a client need not draw piece by piece.
    encoded: the bytes of the item in the gateway's own stream. The first viewer's connection makes
        them, and the other viewers of the session get the same bytes.
    """

    __slots__ = ("cursor", "encoded", "live", "shown")

    def __init__(self, cursor: str, shown: Shown, live: bool) -> None:
        self.cursor, self.shown, self.live = cursor, shown, live
        self.encoded: bytes | None = None


def count(place: Place, thing: Shown) -> Place:
    """The viewer's place after one more item of the next event was shown. Its caller calls `after`
    when the whole event was shown.
    """
    match thing:
        case Token():
            before = place.shown if place.open == thing.of else NOTHING_SHOWN
            at = _KIND_AT[thing.kind]
            chars, crc = before[at]
            more = ShownText(chars + len(thing.text), crc32(_bytes(thing.text), crc))
            shown = (*before[:at], more, *before[at + 1 :])
            return Place(place.offset, thing.of, shown, place.lines)
        case Dropped():
            return Place(place.offset, lines=place.lines)
        case Settled():
            return Place(place.offset, lines=place.lines + 1)
        case LineAdded():
            return place._replace(lines=place.lines + 1)
        case _:
            assert_never(thing)


def after(place: Place, offset: int) -> Place:
    """The viewer's place after the whole event before `offset` was shown."""
    return Place(offset, place.open, place.shown)


def history(views: SessionViews, read: ReadBlob) -> Iterator[tuple[int, Shown]]:
    """(offset, thing) of the whole transcript, without the open attempt's tokens."""
    return missed(Place(), views, Viewer(), read)


def missed(
    place: Place, views: SessionViews, viewer: Viewer, read: ReadBlob
) -> Iterator[tuple[int, Shown]]:
    """The items that a viewer at `place` has missed, each with its offset."""
    left = place
    queued = taken(views.messages, _since(views.messages.progress, place.offset))
    lines = _since(views.transcript.lines, place.offset)
    for number, line in enumerate(merge(lines, queued, key=attrgetter("offset"))):
        if number < place.lines:
            continue  # the viewer was cut off in the middle of this event
        if line.kind in SETTLING:
            settled = _settled(left, views, line, read)
            left = Place() if left.open and _is_of(line, left.open) else left
            yield from ((line.offset, thing) for thing in settled)
            continue
        ends = line.kind in ("attempt", "ended") and not _is_continuation(line)
        if left.open and ends and left.open.turn == line.turn:
            why = line.text if line.kind == "attempt" else f"the turn ended: {line.name}"
            yield line.offset, Dropped(left.open, why)
            left = Place()
        elif (
            left.open and left.open == viewer.open
            and _is_continuation(line) and not _is_beginning(left, viewer)
        ):
            yield line.offset, Dropped(left.open, "the end of its output was lost")
            left = Place()
        yield line.offset, LineAdded(line)
    yield from ((place.offset, thing) for thing in _streaming(left, viewer))


def _since(rows: Rows[R], offset: int) -> list[R]:
    """The rows from an offset on; rows are in offset order."""
    return rows.since(bisect_left(rows, offset, key=attrgetter("offset")))


def _is_of(line: Line, attempt: Attempt) -> bool:
    return (line.turn, line.step) == (attempt.turn, attempt.step)


def _is_continuation(line: Line) -> bool:
    """Whether the line begins an attempt that continues the output of the attempt before it."""
    return line.kind == "attempt" and line.name == CONTINUED


def _settled(place: Place, views: SessionViews, line: Line, read: ReadBlob) -> list[Shown]:
    """The part of a settled answer that was not shown yet, and the answer's line."""
    attempt = Attempt(line.turn, line.step, _attempt_of(views, line))
    final = [Token(attempt, *piece) for piece in spoken(blocks_of(whole(line.body, read)))]
    if place.open is None or not _is_of(line, place.open):
        return [*final, Settled(attempt, line)]
    if any(_is_continuation(other) and _is_of(other, attempt) for other in views.transcript.lines):
        attempt = place.open  # both attempts are shown as one
        final = [token._replace(of=attempt) for token in final]
    why = f"attempt {attempt.attempt} takes its place" if place.open != attempt else ""
    # A stopped answer is stored as text only, and its block numbers may differ.
    kinds = SPOKEN.values() if line.kind == "answer" else (ChunkKind.TEXT,)
    if not why and not all(_agrees(final, kind, place) for kind in kinds):
        why = "its chunks differ from its answer"
    if why:
        return [Dropped(place.open, why), *final, Settled(attempt, line)]
    return [*rest(final, _counts(place)), Settled(attempt, line)]


def _is_beginning(place: Place, viewer: Viewer) -> bool:
    """Whether the streaming output begins with the shown text."""
    return all(_agrees(viewer.tokens, kind, place) for kind in KINDS)


def _agrees(final: Iterable[Token], kind: ChunkKind, place: Place) -> bool:
    """Whether the final text of a kind begins with the shown text of this kind."""
    chars, crc = place.shown[KINDS.index(kind)]
    text = "".join(token.text for token in final if token.kind == kind)
    return len(text) >= chars and crc32(_bytes(text[:chars])) == crc


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # a delta may end in a lone surrogate


def _attempt_of(views: SessionViews, line: Line) -> int:
    """The number of the attempt that the line settles, from the ledger; 0 if unknown."""
    rows = _since(views.ledger.spent, line.offset)
    return rows[0].attempt if rows and rows[0].offset == line.offset else 0


def _streaming(place: Place, viewer: Viewer) -> Iterator[Shown]:
    if place.open is not None and place.open != viewer.open:
        yield Dropped(place.open, "the attempt was lost")
        place = Place()
    yield from rest(viewer.tokens, _counts(place))


def _counts(place: Place) -> Mapping[str, int]:
    return {kind: part.chars for kind, part in zip(KINDS, place.shown, strict=True)}
