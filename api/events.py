"""The events that a session yields to Python users, each a dataclass that prints as one line.

They are a view of the log for people: `consumers/transcript_stream.py` decides what is shown, so
every token of the winning attempt comes exactly once. Match them by class:

    match event:
        case Token(text=text): print(text, end="")
        case ApprovalAsked() as ask: session.approve(ask)
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from ..consumers.contents import text_of, whole
from ..consumers.outcomes import why_ended
from ..consumers.transcript_stream import (
    Attempt,
    Dropped,
    LineAdded,
    Settled,
    Shown,
    Token as Piece,
)
from ..log.errors import Refused
from ..processors.effects.failed_turns import Lines
from ..processors.fold.projections.transcript import CONTINUED, Line
from ..schemas.enums import ChunkKind
from ..schemas.events.parts import ReadBlob

LINE_CHARS_MAX = 100
"""How much of a text is shown when an event is printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEvent:
    """What every event has.

    `turn`, `step`: where in the session it happened, 0 before the first turn. `offset`: of its
    record in the partition. `cursor`: pass it to `Session.events(cursor=...)` to continue right
    after this event, also in another process.
    """

    session_id: str
    turn: int
    step: int
    offset: int
    cursor: str

    def __str__(self) -> str:
        shown = " ".join(part for part in self._shown() if part)
        return f"{type(self).__name__} {shown}".rstrip()

    def _shown(self) -> Iterator[str]:
        yield f"{self.turn}.{self.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent(SessionEvent):
    """An event with the broker's time of its record."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Token(SessionEvent):
    """A piece of the model's answer. Yielded once, also when a worker dies in the middle."""

    text: str

    def _shown(self) -> Iterator[str]:
        yield _short(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking(SessionEvent):
    """A piece of the model's thinking."""

    text: str

    def _shown(self) -> Iterator[str]:
        yield _short(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDrafted(SessionEvent):
    """A piece of a tool call that the model is still writing: of the tool's name or its arguments.

    `block`: which content block of the answer it belongs to. The complete call follows as
    ToolCalled or ApprovalAsked.
    """

    block: int
    part: str
    text: str

    def _shown(self) -> Iterator[str]:
        yield _short(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded(SessionEvent):
    """The tokens shown of this step are void, because another attempt replaces them or none does.

    Discard them; if another attempt follows, its tokens come next.
    """

    reason: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.turn}.{self.step}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(RecordedEvent):
    """The model's answer of one step is complete; `text` is what its tokens add up to.

    `stop_reason`: as the model reported it (`tool_use`: calls follow), or why it was stopped.
    `complete` is False for the kept part of an answer that a cancel stopped.
    """

    text: str
    stop_reason: str
    complete: bool

    def _shown(self) -> Iterator[str]:
        yield f"{self.turn}.{self.step} ({self.stop_reason}): {_short(self.text)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived(RecordedEvent):
    """A message is in the session."""

    message_id: str
    text: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.message_id}: {_short(self.text)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTaken(RecordedEvent):
    """A message that had waited for the turn before it is now sent to the model."""

    message_id: str

    def _shown(self) -> Iterator[str]:
        yield self.message_id


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEvent(RecordedEvent):
    """What every event about a tool call has. `call`: TURN.STEP.INDEX. `tool`: its name."""

    call: str
    tool: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.tool} ({self.call})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled(CallEvent):
    """The model calls a tool that needs no approval. `arguments`: as the model wrote them."""

    arguments: Mapping[str, Any]

    def _shown(self) -> Iterator[str]:
        yield f"{self.tool} ({self.call}): {_short(json.dumps(self.arguments))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAsked(CallEvent):
    """A call waits for a person. Pass this event to `Session.approve` or `Session.deny`.

    An approval is bound to these very arguments by `arguments_sha256`.
    """

    arguments: Mapping[str, Any]
    arguments_sha256: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.tool} ({self.call}): {_short(json.dumps(self.arguments))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecided(CallEvent):
    """An approval ended. `decision`: allow, deny or expired."""

    decision: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.tool} ({self.call}): {self.decision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished(CallEvent):
    """A call has its outcome, such as ok, error, timeout, cancelled or denied. `text`: the result
    that the model is shown."""

    outcome: str
    text: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.tool} ({self.call}) {self.outcome}: {_short(self.text)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt(CallEvent):
    """It is unknown whether a call happened; it is never repeated. Find out, then pass this event
    to `Session.resolve`."""

    reason: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.tool} ({self.call}): {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtResolved(CallEvent):
    """A person reported whether a call happened. `outcome`: happened or did_not_happen."""

    outcome: str
    report: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.tool} ({self.call}) {self.outcome}: {_short(self.report)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed(RecordedEvent):
    """A model call failed; another attempt follows, or the turn fails."""

    reason: str

    def _shown(self) -> Iterator[str]:
        yield self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReplaced(RecordedEvent):
    """The process that streamed an answer died, and another attempt replaces the lost one.

    `continued`: the new attempt continues the text that was kept.
    """

    reason: str
    continued: bool

    def _shown(self) -> Iterator[str]:
        yield self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded(RecordedEvent):
    """A turn is over. `reason`: end_turn if the model finished; otherwise cancelled, failed,
    max_steps, budget_exceeded ... `detail`: why its last model call failed, or which limit ended it
    and how much was used; "" for other reasons."""

    reason: str
    detail: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.turn}: {self.reason}"
        yield f"({self.detail})" if self.detail else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanged(RecordedEvent):
    """A phase transition. `trigger`: its name."""

    trigger: str

    def _shown(self) -> Iterator[str]:
        yield self.trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectLocked(RecordedEvent):
    """The session was locked to a project."""

    project_id: str

    def _shown(self) -> Iterator[str]:
        yield self.project_id


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTerminated(RecordedEvent):
    """The session was ended permanently."""

    reason: str

    def _shown(self) -> Iterator[str]:
        yield self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(SessionEvent):
    """The session has not continued for a while. `reason`: why, with the command that helps.

    Not in the log: it is yielded once for each reason.
    """

    reason: str

    def _shown(self) -> Iterator[str]:
        yield self.reason


def demand_event_class(kind: object) -> None:
    """Raise Refused if events cannot be matched with it."""
    try:
        isinstance(None, kind)  # type: ignore[arg-type]
    except TypeError:
        raise Refused(
            f"until() needs an event class, such as foldlog.ApprovalAsked, not {kind!r}"
        ) from None


def public(
    session_id: str, shown: Shown, offset: int, cursor: str, read: ReadBlob | None, lines: Lines
) -> SessionEvent:
    """The public event of a thing shown to viewers, at `offset`. `lines`: the transcript so far."""
    match shown:
        case Piece():
            return _piece(shown, _place(session_id, shown.of, offset, cursor))
        case Dropped():
            return Discarded(**_place(session_id, shown.of, offset, cursor), reason=shown.why)
        case Settled(line=line) | LineAdded(line=line):
            return of_line(session_id, line, offset, cursor, read, lines)


def _place(session_id: str, of: Attempt, offset: int, cursor: str) -> dict[str, Any]:
    place = {"session_id": session_id, "turn": of.turn, "step": of.step}
    return {**place, "offset": offset, "cursor": cursor}


def _piece(piece: Piece, place: dict[str, Any]) -> SessionEvent:
    match ChunkKind(piece.kind):
        case ChunkKind.TEXT:
            return Token(**place, text=piece.text)
        case ChunkKind.THINKING:
            return Thinking(**place, text=piece.text)
        case kind:
            return ToolDrafted(**place, block=piece.block, part=kind.value, text=piece.text)


def of_line(
    session_id: str, line: Line, offset: int, cursor: str, read: ReadBlob | None, lines: Lines
) -> SessionEvent:
    """The public event of a line of the transcript `lines`."""
    place: dict[str, Any] = {
        "session_id": session_id,
        "turn": line.turn,
        "step": line.step,
        "offset": offset,
        "cursor": cursor,
        "at": datetime.fromtimestamp(line.at / 1000, UTC),
    }
    call = {**place, "call": line.call, "tool": line.name}
    content = whole(line.body, read)
    match line.kind:
        case "message":
            return MessageReceived(**place, message_id=line.name, text=text_of(content))
        case "taken":
            return MessageTaken(**place, message_id=line.name)
        case "answer" | "partial":
            complete = line.kind == "answer"
            text = text_of(content)
            return Answered(**place, text=text, stop_reason=line.name, complete=complete)
        case "call":
            return ToolCalled(**call, arguments=_arguments(content))
        case "asks":
            digest = sha256(content).hexdigest()
            return ApprovalAsked(**call, arguments=_arguments(content), arguments_sha256=digest)
        case "approval":
            return ApprovalDecided(**call, decision=line.text)
        case "result":
            return ToolFinished(**call, outcome=line.text, text=_text(content))
        case "doubt":
            return InDoubt(**call, reason=line.text)
        case "resolved":
            return DoubtResolved(**call, outcome=line.text, report=_text(content))
        case "attempt" if line.name == "failed":
            return AttemptFailed(**place, reason=line.text)
        case "attempt":
            return AttemptReplaced(**place, reason=line.text, continued=line.name == CONTINUED)
        case "ended":
            return TurnEnded(**place, reason=line.name, detail=why_ended(line, lines))
        case "phase":
            return PhaseChanged(**place, trigger=line.name)
        case "project":
            return ProjectLocked(**place, project_id=line.name)
        case "terminated":
            return SessionTerminated(**place, reason=line.text)
    raise AssertionError(f"a transcript has no lines of kind {line.kind}")


def _arguments(content: bytes) -> Mapping[str, Any]:
    """The arguments of a call; under "" if the model wrote no JSON object."""
    try:
        found = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        found = content.decode("utf-8", "replace")
    return found if isinstance(found, dict) else {"": found}


def _text(content: bytes) -> str:
    """The text of a tool's result, which is a list of content blocks or plain text."""
    return text_of(content) or content.decode("utf-8", "replace")


def _short(text: str) -> str:
    shown = json.dumps(text, ensure_ascii=False)
    return shown if len(shown) <= LINE_CHARS_MAX else f'{shown[:LINE_CHARS_MAX]}..."'
