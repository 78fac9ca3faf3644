"""What a viewer sees, as it happens: each token of the winning attempt exactly once.

A pure fold beside the session's own: `see(viewer, seen) -> (viewer, things shown)`. Chunks are in
no stored view, so a viewer folds those of the open attempt here. What is shown is a function of the
log up to an offset, so a viewer that reconnects at a cursor folds up to it in silence and goes on
as if it had never been away (beyond-the-seeds 1). This file must not know how things are drawn.

    Token     a piece of what the model says, never repeated
    Dropped   what was shown of an attempt does not count: another takes its place, or none does
    Settled   the attempt's words are final; its tokens add up to them, byte for byte
    Told      a line of the transcript: messages, calls, results, approvals, ends; and `taken`: a
              message that had waited is said to the model now
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..processors.fold.projections.messages import MessagesView, Progress
from ..processors.fold.projections.transcript import Line
from ..processors.fold.rows import Rows
from ..processors.fold.sessions import FoldedEvent
from ..schemas import events as ev
from ..schemas.enums import ChunkKind
from ..schemas.events.parts import ReadBlob
from .contents import blocks_of, whole

SPOKEN = {"text": ChunkKind.TEXT, "thinking": ChunkKind.THINKING}
"""Block type -> the chunk kind that streams it; the field has the type's name."""


class Attempt(NamedTuple):
    """Which try of which generation."""

    turn: int
    step: int
    attempt: int


class Token(NamedTuple):
    """A piece of one block. kind: text, thinking, tool_name, tool_input."""

    of: Attempt
    block: int
    kind: str
    text: str


class Dropped(NamedTuple):
    """Forget what was shown of this attempt."""

    of: Attempt
    why: str


class Settled(NamedTuple):
    """The attempt ended well (or was stopped): what was shown of it is what is kept."""

    of: Attempt
    line: Line


class Told(NamedTuple):
    """A line of the transcript."""

    line: Line


Shown = Token | Dropped | Settled | Told


class Viewer(NamedTuple):
    """The open attempt, and what was shown of it. `seq`: the next chunk that counts. `goes_on`:
    the number of the attempt that resumes it, whose words are shown as those of the first."""

    open: Attempt | None = None
    tokens: Rows[Token] = Rows()
    seq: int = 0
    goes_on: int | None = None

    def is_of(self, turn: int, step: int, attempt: int) -> bool:
        """Whether an event of that attempt is about what is shown."""
        return self.open is not None and (turn, step, attempt) == (
            self.open.turn, self.open.step, self.goes_on or self.open.attempt
        )


INITIAL = Viewer()


def see(
    viewer: Viewer, seen: FoldedEvent, read: ReadBlob | None = None
) -> tuple[Viewer, list[Shown]]:
    """The viewer after a folded event (chunks decoded), and what it shows, in order.

    `read` resolves content that is in the blob store; without it such content shows as it streamed.
    """
    if not seen.ruling.accepted:
        return viewer, []
    event = seen.entry.event
    match event:
        case ev.GenChunk():
            return streamed(viewer, event)
        case ev.SessionOpened():
            return viewer, list(_inherited(seen, read))
        case ev.GenResumed(strategy="resume") if viewer.open is not None:
            return _resumed(viewer, seen, event)
        case ev.GenStart() | ev.GenResumed():
            lost = f"attempt {event.attempt} takes its place"
            dropped = _dropped(viewer, lost)
            attempt = Attempt(event.turn, event.step, event.attempt)
            return Viewer(attempt, Rows()), [*dropped, *_told(seen)]
        case ev.GenComplete():
            return INITIAL, _settled(viewer, seen, event, read)
        case ev.GenStopped() if seen.before.turn.closing is not None:
            return INITIAL, _settled(viewer, seen, event, read)
        case ev.GenStopped():
            return INITIAL, [*_dropped(viewer, f"the attempt was stopped: {event.why}")]
        case ev.GenFailed():
            return INITIAL, [*_dropped(viewer, f"the attempt failed: {event.error}"), *_told(seen)]
        case ev.TurnEnded():
            why = "the turn ended before the attempt reported"
            return INITIAL, [*_dropped(viewer, why), *_told(seen)]
    return viewer, _told(seen)


def streamed(viewer: Viewer, event: ev.GenChunk) -> tuple[Viewer, list[Shown]]:
    attempt = viewer.open
    if not viewer.is_of(event.turn, event.step, event.attempt) or event.seq < viewer.seq:
        return viewer, []  # written twice by a producer that lost an acknowledgement
    if event.seq > viewer.seq:
        # A chunk was lost. What follows waits for the completion, so that no gap is ever shown.
        return viewer, []
    assert attempt is not None
    token = Token(attempt, event.block, event.kind, event.delta)
    seen = viewer._replace(tokens=viewer.tokens.append(token), seq=viewer.seq + 1)
    return seen, [token]


def _resumed(viewer: Viewer, seen: FoldedEvent, event: ev.GenResumed) -> tuple[Viewer, list[Shown]]:
    """What is shown goes on. What the lost attempt said after it was read counts no more: then all
    is taken back and what is kept is said again."""
    kept = viewer.tokens.upto(min(len(viewer.tokens), event.prior_seq + 1))
    again = Viewer(viewer.open, kept, len(kept), event.attempt)
    taken_back = _dropped(viewer, "its last words were lost") if len(kept) < viewer.seq else []
    return again, [*taken_back, *(kept if taken_back else ()), *_told(seen)]


def _dropped(viewer: Viewer, why: str) -> list[Shown]:
    if viewer.open is None or not len(viewer.tokens):
        return []
    return [Dropped(viewer.open, why)]


def _inherited(seen: FoldedEvent, read: ReadBlob | None) -> Iterator[Shown]:
    """What a fork begins with: the answers of its parent as if they had been said here."""
    for line in seen.views.transcript.lines.since(0):
        if line.kind in ("answer", "partial"):
            attempt = Attempt(line.turn, line.step, 0)
            for piece in spoken(blocks_of(whole(line.body, read))):
                yield Token(attempt, *piece)
            yield Settled(attempt, line)
        else:
            yield Told(line)


def _told(seen: FoldedEvent) -> list[Shown]:
    before, views = seen.before, seen.views
    lines = views.transcript.lines.since(len(before.transcript.lines))
    rows = views.messages.progress.since(len(before.messages.progress))
    return [Told(line) for line in (*lines, *taken(views.messages, rows))]


def taken(messages: MessagesView, rows: Iterable[Progress]) -> Iterator[Line]:
    """A line for each message that had waited behind a turn and is now said to the model, or is
    the next turn's: it was shown when it came, and whoever sent it learns that its time has come.
    """
    for row in rows:
        received = messages.received.last(row.message_id)
        if not row.reason and received is not None and received.offset != row.offset:
            yield Line("taken", row.turn, 0, row.offset, received.at, row.message_id)


def _settled(
    viewer: Viewer, seen: FoldedEvent, event: ev.GenComplete | ev.GenStopped, read: ReadBlob | None
) -> list[Shown]:
    """What is missing of the final words, then their line.

    The chunks shown are nearly always the whole of it. Where some were lost the rest is shown from
    the content; where they say anything else, they are dropped and the content is shown instead.
    """
    attempt = Attempt(event.turn, event.step, event.attempt)
    if viewer.open is not None and viewer.is_of(*attempt):
        attempt = viewer.open
    (line,) = seen.views.transcript.lines.since(len(seen.before.transcript.lines))
    content = event.content
    if content.ref is not None and read is None:
        return [Settled(attempt, line)]
    final = [Token(attempt, *piece) for piece in spoken(blocks_of(whole(content, read)))]
    # What was stopped is kept as text alone, and its blocks may count otherwise.
    kinds = set(SPOKEN.values()) if isinstance(event, ev.GenComplete) else {ChunkKind.TEXT}
    agrees = all(_said(final, kind).startswith(_said(viewer.tokens, kind)) for kind in kinds)
    if not agrees:
        return [*_dropped(viewer, "its chunks are not its words"), *final, Settled(attempt, line)]
    shown = {str(kind): len(_said(viewer.tokens, kind)) for kind in SPOKEN.values()}
    return [*rest(final, shown), Settled(attempt, line)]


def _said(tokens: Iterable[Token], kind: str) -> str:
    return "".join(token.text for token in tokens if token.kind == kind)


def rest(final: Iterable[Token], shown: Mapping[str, int]) -> Iterator[Token]:
    """The tokens without the first so many characters of each kind, which were shown."""
    left = dict(shown)
    for token in final:
        before = left.get(token.kind, 0)
        left[token.kind] = max(0, before - len(token.text))
        if token.text[before:]:
            yield token._replace(text=token.text[before:])


def spoken(blocks: list[dict[str, Any]]) -> Iterator[tuple[int, str, str]]:
    """(block, kind, text) of what the model said or thought."""
    for number, block in enumerate(blocks):
        kind = SPOKEN.get(block.get("type", ""))
        text = block.get(block.get("type", ""))
        if kind is not None and isinstance(text, str):
            yield number, kind, text


def snapshot(viewer: Viewer) -> list[Shown]:
    """What a viewer that comes late is shown of the open attempt before it goes on."""
    return list(viewer.tokens)
