"""What a viewer is shown that comes late, or comes back: from the views, without reading the log.

The transcript's lines as things shown, and behind them what the open attempt has said. Whoever was
away is shown what is missing and nothing twice: a `Place` says how far it had seen, so nobody has
to remember it. This file must not know how a place travels, nor how anything is drawn.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from operator import attrgetter
from typing import NamedTuple, TypeVar
from zlib import crc32

from ..processors.fold.projections.transcript import CONTINUED, Line
from ..processors.fold.rows import Rows
from ..processors.fold.views import SessionViews
from ..schemas.enums import ChunkKind
from ..schemas.events.parts import ReadBlob
from .contents import blocks_of, whole
from .transcript_stream import (
    SPOKEN,
    Attempt,
    Dropped,
    Settled,
    Shown,
    Token,
    Told,
    Viewer,
    rest,
    spoken,
    taken,
)

R = TypeVar("R")
KINDS = tuple(ChunkKind)
"""What tokens are counted by, in the order in which a place names the counts."""

SAID = ("answer", "partial")
"""Line kinds that settle an attempt."""


class Said(NamedTuple):
    """How much of an attempt's words of one kind was shown: characters, and their crc32."""

    chars: int = 0
    crc: int = 0


class Place(NamedTuple):
    """How far a viewer has seen. `offset`: the next one; `open`: the attempt that it was being
    shown, and how much of it, by kind as in KINDS."""

    offset: int = 0
    open: Attempt | None = None
    shown: tuple[Said, ...] = (Said(),) * len(KINDS)


class Frame(NamedTuple):
    """One thing for a viewer. cursor: where to go on behind it, None within an event.

    live: False where it is history, which may be drawn at once.
    """

    cursor: str | None
    shown: Shown
    live: bool


def count(place: Place, thing: Shown) -> Place:
    """The place of a viewer after it was shown one thing more; its offset is the caller's."""
    match thing:
        case Token():
            before = place.shown if place.open == thing.of else Place().shown
            at = KINDS.index(ChunkKind(thing.kind))
            chars, crc = before[at]
            more = Said(chars + len(thing.text), crc32(_bytes(thing.text), crc))
            return Place(place.offset, thing.of, (*before[:at], more, *before[at + 1 :]))
        case Dropped() | Settled():
            return Place(place.offset)
    return place


def history(views: SessionViews, read: ReadBlob, since: int = 0) -> Iterator[tuple[int, Shown]]:
    """(offset, thing) of the transcript from an offset on; not of the open attempt's tokens."""
    return missed(Place(since), views, Viewer(), read)


def missed(
    place: Place, views: SessionViews, viewer: Viewer, read: ReadBlob
) -> Iterator[tuple[int, Shown]]:
    """(offset, thing) of what a viewer at `place` lacks, as of these views and what streams."""
    left = place
    waited = taken(views.messages, _since(views.messages.progress, place.offset))
    lines = _since(views.transcript.lines, place.offset)
    for line in merge(lines, waited, key=attrgetter("offset")):
        if line.kind in SAID:
            settled = _settled(left, views, line, read)
            left = Place() if left.open and _is_of(line, left.open) else left
            yield from ((line.offset, thing) for thing in settled)
            continue
        ends = line.kind in ("attempt", "ended") and not _goes_on(line)
        if left.open and ends and left.open.turn == line.turn:
            why = line.text if line.kind == "attempt" else f"the turn ended: {line.name}"
            yield line.offset, Dropped(left.open, why)
            left = Place()
        elif (
            left.open and left.open == viewer.open
            and _goes_on(line) and not _is_begun(left, viewer)
        ):
            yield line.offset, Dropped(left.open, "its last words were lost")
            left = Place()
        yield line.offset, Told(line)
    yield from ((place.offset, thing) for thing in _streaming(left, viewer))


def _since(rows: Rows[R], offset: int) -> list[R]:
    """The rows from an offset on. They are in offset order."""
    return rows.since(bisect_left(rows, offset, key=attrgetter("offset")))


def _is_of(line: Line, attempt: Attempt) -> bool:
    return (line.turn, line.step) == (attempt.turn, attempt.step)


def _goes_on(line: Line) -> bool:
    """Whether an attempt goes on from the words of the one before it."""
    return line.kind == "attempt" and line.name == CONTINUED


def _settled(place: Place, views: SessionViews, line: Line, read: ReadBlob) -> list[Shown]:
    """What is missing of settled words, and their line."""
    attempt = Attempt(line.turn, line.step, _attempt_of(views, line))
    final = [Token(attempt, *piece) for piece in spoken(blocks_of(whole(line.body, read)))]
    if place.open is None or not _is_of(line, place.open):
        return [*final, Settled(attempt, line)]
    if any(_goes_on(other) and _is_of(other, attempt) for other in views.transcript.lines):
        attempt = place.open  # it was resumed, and is shown as one
        final = [token._replace(of=attempt) for token in final]
    why = f"attempt {attempt.attempt} takes its place" if place.open != attempt else ""
    # What was stopped is kept as text alone, and its blocks may count otherwise.
    kinds = SPOKEN.values() if line.kind == "answer" else (ChunkKind.TEXT,)
    if not why and not all(_agrees(final, kind, place) for kind in kinds):
        why = "its chunks are not its words"
    if why:
        return [Dropped(place.open, why), *final, Settled(attempt, line)]
    return [*rest(final, _counts(place)), Settled(attempt, line)]


def _is_begun(place: Place, viewer: Viewer) -> bool:
    """Whether what was shown is how what streams begins: of what was lost some may not be kept."""
    return all(_agrees(viewer.tokens, kind, place) for kind in KINDS)


def _agrees(final: Iterable[Token], kind: ChunkKind, place: Place) -> bool:
    """Whether what was shown of a kind is how the final words of that kind begin."""
    chars, crc = place.shown[KINDS.index(kind)]
    words = "".join(token.text for token in final if token.kind == kind)
    return len(words) >= chars and crc32(_bytes(words[:chars])) == crc


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # a delta may end in half of a character


def _attempt_of(views: SessionViews, line: Line) -> int:
    """Which attempt settled: what was paid for by the event of that line; 0 if it is not known."""
    paid = _since(views.ledger.spent, line.offset)
    return paid[0].attempt if paid and paid[0].offset == line.offset else 0


def _streaming(place: Place, viewer: Viewer) -> Iterator[Shown]:
    if place.open is not None and place.open != viewer.open:
        yield Dropped(place.open, "the attempt was lost")
        place = Place()
    yield from rest(viewer.tokens, _counts(place))


def _counts(place: Place) -> Mapping[str, int]:
    return {kind: said.chars for kind, said in zip(KINDS, place.shown, strict=True)}
