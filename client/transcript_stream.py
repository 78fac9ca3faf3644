"""A session as a viewer sees it live: each token of the winning attempt exactly once.

This is a pure fold beside the session's fold: `see(viewer, seen) -> (viewer, items shown)`. Stored
views have no chunks, so a viewer folds the chunks of the open attempt here. The output is a
function of the log up to an offset, so a viewer that reconnects at a cursor folds up to the cursor
without output, and then continues.

    Token     a piece of the model's output, never repeated
    Dropped   discard everything that was shown of an attempt; another attempt may follow
    Settled   the attempt's content is final and equals its joined tokens, byte for byte
    LineAdded a line of the transcript, such as a message, call, result or approval; or `taken`: a
              queued message is now sent to the model
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
from .printable import blocks_of, whole

SPOKEN = {"text": ChunkKind.TEXT, "thinking": ChunkKind.THINKING}
"""The kind of the chunks that stream a block, by the block's type; the type also names the block's
field with the text.
"""


class Attempt(NamedTuple):
    """Identifies one attempt of one step."""

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
    """Discard what was shown of this attempt."""

    of: Attempt
    why: str


class Settled(NamedTuple):
    """The attempt completed or was stopped; what was shown of it is final."""

    of: Attempt
    line: Line


class LineAdded(NamedTuple):
    """A line of the transcript."""

    line: Line


Shown = Token | Dropped | Settled | LineAdded


class Viewer(NamedTuple):
    """The open attempt, and what was shown of it.

    `seq`: the number of the next chunk.
    `resumed_by`: the number of the attempt that resumes the open attempt; its output is shown as
        that of the open attempt.
    """

    open: Attempt | None = None
    tokens: Rows[Token] = Rows()
    seq: int = 0
    resumed_by: int | None = None

    def is_of(self, turn: int, step: int, attempt: int) -> bool:
        """Whether that attempt is the one being shown."""
        return self.open is not None and (turn, step, attempt) == (
            self.open.turn, self.open.step, self.resumed_by or self.open.attempt
        )


INITIAL = Viewer()


def see(
    viewer: Viewer, seen: FoldedEvent, read: ReadBlob | None = None
) -> tuple[Viewer, list[Shown]]:
    """The viewer after a folded event, and the items to show for the event, in order. If the event
    is a chunk, it must have been decoded.

    `read` resolves content in the blob store. Without it, only the streamed tokens of such content
    are shown.
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
            dropped = _dropped(viewer, f"attempt {event.attempt} takes its place")
            attempt = Attempt(event.turn, event.step, event.attempt)
            return Viewer(attempt, Rows()), [*dropped, *_lines_added(seen)]
        case ev.GenComplete():
            return INITIAL, _settled(viewer, seen, event, read)
        case ev.GenStopped() if seen.before.turn.closing is not None:
            return INITIAL, _settled(viewer, seen, event, read)
        case ev.GenStopped():
            return INITIAL, _dropped(viewer, f"the attempt was stopped: {event.why}")
        case ev.GenFailed():
            dropped = _dropped(viewer, f"the attempt failed: {event.error}")
            return INITIAL, [*dropped, *_lines_added(seen)]
        case ev.TurnEnded():
            why = "the turn ended before the attempt reported"
            return INITIAL, [*_dropped(viewer, why), *_lines_added(seen)]
    return viewer, _lines_added(seen)


def streamed(viewer: Viewer, event: ev.GenChunk) -> tuple[Viewer, list[Shown]]:
    """The viewer after a chunk, and its token.

    A repeated chunk, whose producer missed an acknowledgement, has no token. After a lost chunk,
    later chunks have no token either, so that no gap is shown; the remaining text is shown on
    completion.
    """
    if not viewer.is_of(event.turn, event.step, event.attempt) or event.seq != viewer.seq:
        return viewer, []
    assert viewer.open is not None
    token = Token(viewer.open, event.block, event.kind, event.delta)
    tokens = viewer.tokens.append(token)
    return Viewer(viewer.open, tokens, viewer.seq + 1, viewer.resumed_by), [token]


def _resumed(viewer: Viewer, seen: FoldedEvent, event: ev.GenResumed) -> tuple[Viewer, list[Shown]]:
    """Continue the shown attempt. If more of its output was shown than the new attempt keeps, drop
    all of its output and show the kept part again.
    """
    kept = viewer.tokens.upto(min(len(viewer.tokens), event.prior_seq + 1))
    resumed = Viewer(viewer.open, kept, len(kept), event.attempt)
    dropped = _dropped(viewer, "the end of its output was lost") if len(kept) < viewer.seq else []
    return resumed, [*dropped, *(kept if dropped else ()), *_lines_added(seen)]


def _dropped(viewer: Viewer, why: str) -> list[Shown]:
    if viewer.open is None or not len(viewer.tokens):
        return []
    return [Dropped(viewer.open, why)]


def _inherited(seen: FoldedEvent, read: ReadBlob | None) -> Iterator[Shown]:
    """The answers of a fork's parent, which a viewer of the fork sees first."""
    for line in seen.views.transcript.lines.since(0):
        if line.kind in ("answer", "partial"):
            attempt = Attempt(line.turn, line.step, 0)
            for piece in spoken(blocks_of(whole(line.body, read))):
                yield Token(attempt, *piece)
            yield Settled(attempt, line)
        else:
            yield LineAdded(line)


def _lines_added(seen: FoldedEvent) -> list[Shown]:
    before, views = seen.before, seen.views
    lines = views.transcript.lines.since(len(before.transcript.lines))
    rows = views.messages.progress.since(len(before.messages.progress))
    return [LineAdded(line) for line in (*lines, *taken(views.messages, rows))]


def taken(messages: MessagesView, rows: Iterable[Progress]) -> Iterator[Line]:
    """A line for each queued message that is now sent to the model or begins the next turn. The
    message itself was shown when it arrived.
    """
    for row in rows:
        received = messages.received.last(row.message_id)
        if not row.reason and received is not None and received.offset != row.offset:
            yield Line("taken", row.turn, 0, row.offset, received.at, row.message_id)


def _settled(
    viewer: Viewer, seen: FoldedEvent, event: ev.GenComplete | ev.GenStopped, read: ReadBlob | None
) -> list[Shown]:
    """The part of the final content that was not shown yet, then the answer's line.

    The chunks shown are nearly always complete. If chunks were lost, the missing text is shown from
    the content; if the chunks differ from the content, they are dropped and the content is shown.
    """
    attempt = Attempt(event.turn, event.step, event.attempt)
    if viewer.open is not None and viewer.is_of(*attempt):
        attempt = viewer.open
    (line,) = seen.views.transcript.lines.since(len(seen.before.transcript.lines))
    content = event.content
    if content.ref is not None and read is None:
        return [Settled(attempt, line)]
    final = [Token(attempt, *piece) for piece in spoken(blocks_of(whole(content, read)))]
    # A stopped answer is stored as text only, and its block numbers may differ.
    kinds = set(SPOKEN.values()) if isinstance(event, ev.GenComplete) else {ChunkKind.TEXT}
    agrees = all(
        _text_of_kind(final, kind).startswith(_text_of_kind(viewer.tokens, kind)) for kind in kinds
    )
    if not agrees:
        why = "its chunks differ from its answer"
        return [*_dropped(viewer, why), *final, Settled(attempt, line)]
    shown = {str(kind): len(_text_of_kind(viewer.tokens, kind)) for kind in SPOKEN.values()}
    return [*rest(final, shown), Settled(attempt, line)]


def _text_of_kind(tokens: Iterable[Token], kind: str) -> str:
    return "".join(token.text for token in tokens if token.kind == kind)


def rest(final: Iterable[Token], shown: Mapping[str, int]) -> Iterator[Token]:
    """The final tokens without the characters that were already shown.

    `shown`: their number by kind.
    """
    left = dict(shown)
    for token in final:
        before = left.get(token.kind, 0)
        left[token.kind] = max(0, before - len(token.text))
        if token.text[before:]:
            yield token._replace(text=token.text[before:])


def spoken(blocks: list[dict[str, Any]]) -> Iterator[tuple[int, str, str]]:
    """The model's text and thinking, as (block number, kind, text)."""
    for number, block in enumerate(blocks):
        kind = SPOKEN.get(block.get("type", ""))
        text = block.get(block.get("type", ""))
        if kind is not None and isinstance(text, str):
            yield number, kind, text


def snapshot(viewer: Viewer) -> list[Shown]:
    """The items that show the open attempt's output so far to a viewer that joins late."""
    return list(viewer.tokens)
