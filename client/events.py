"""The events that a session yields to Python users, each a dataclass that prints as one line.

The events come from `client/transcript_stream.py`, which shows every token of the winning
attempt exactly once. Match them by class:

    match event:
        case Token(text=text): print(text, end="")
        case ApprovalAsked() as ask: session.approve(ask)
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from itertools import takewhile
from typing import Any

from ..log.errors import Refused
from ..processors.effects.failed_turns import Lines
from ..processors.fold.projections.transcript import CONTINUED, Line
from ..schemas.enums import ChunkKind
from ..schemas.events.parts import ReadBlob
from .outcomes import why_ended
from .printable import ENDS, NO_TEXT, text_of, whole
from .transcript_stream import (
    Attempt,
    Dropped,
    LineAdded,
    Settled,
    Shown,
    Token as Piece,
)

LINE_CHARS_MAX = 100
"""How many characters of a text a printed event shows at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEvent:
    """The base class of all events.

    `turn`, `step`: where in the session the event happened, 0 before the first turn.
    `offset`: the offset of its record in the partition.
    `cursor`: pass it to `Session.events(cursor=...)` to continue right after this event, also in
        another process.
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
    """An event with the time at which the broker stored its record."""

    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Token(SessionEvent):
    """A piece of the model's answer, yielded only once even if a worker dies meanwhile."""

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
    """A piece of the name or of the arguments in a tool call that the model is still writing.

    `block`: the number of the answer's content block that the piece belongs to. The complete call
    follows as ToolCalled or ApprovalAsked.
    """

    block: int
    part: str
    text: str

    def _shown(self) -> Iterator[str]:
        yield _short(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded(SessionEvent):
    """The tokens of this step so far are void, for example because their attempt failed or was
    replaced.

    Discard these tokens. If another attempt follows, its tokens come next.
    """

    reason: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.turn}.{self.step}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(RecordedEvent):
    """The model's answer of one step is complete; `text` is the concatenation of its tokens.

    `stop_reason`: the reason that the model reported (after `tool_use`, calls follow), or why the
        answer was stopped.
    `complete`: False if a cancel stopped the answer and only a part was kept.
    """

    text: str
    stop_reason: str
    complete: bool

    def _shown(self) -> Iterator[str]:
        empty = NO_TEXT if self.stop_reason in ENDS else ""
        yield f"{self.turn}.{self.step} ({self.stop_reason}): {_short(self.text) or empty}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived(RecordedEvent):
    """A message is in the session."""

    message_id: str
    text: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.message_id}: {_short(self.text)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTaken(RecordedEvent):
    """A message that was queued behind another turn is now sent to the model."""

    message_id: str

    def _shown(self) -> Iterator[str]:
        yield self.message_id


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEvent(RecordedEvent):
    """The base class of events about a tool call.

    `call`: TURN.STEP.INDEX.
    `tool`: the tool's name.
    """

    call: str
    tool: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.tool} ({self.call})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled(CallEvent):
    """The model calls a tool that needs no approval. `arguments`: as the model wrote them."""

    arguments: Mapping[str, Any]

    def _shown(self) -> Iterator[str]:
        yield f"{self.tool} ({self.call}): {_json(self.arguments)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAsked(CallEvent):
    """A call waits for a person. Pass this event to `Session.approve` or `Session.deny`.

    An approval is valid for exactly these arguments, identified by `arguments_sha256`.
    """

    arguments: Mapping[str, Any]
    arguments_sha256: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.tool} ({self.call}): {_json(self.arguments)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecided(CallEvent):
    """A person approved or denied a call, or the approval expired. `decision`: allow, deny or
    expired."""

    decision: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.tool} ({self.call}): {self.decision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished(CallEvent):
    """A call has an outcome, such as ok, error, timeout, cancelled or denied. `text`: the result
    that the model gets.
    """

    outcome: str
    text: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.tool} ({self.call}) {self.outcome}: {_short(self.text)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt(CallEvent):
    """It is unknown whether a call happened, and the call is never repeated. Find out whether it
    happened, then pass this event to `Session.resolve`.
    """

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
    """The process that streamed an answer died, and another attempt replaces the lost attempt.

    `continued`: whether the new attempt continues the text that was kept.
    """

    reason: str
    continued: bool

    def _shown(self) -> Iterator[str]:
        yield self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded(RecordedEvent):
    """A turn is over.

    `reason`: end_turn if the model finished; otherwise cancelled, failed, max_steps,
        budget_exceeded ...
    `detail`: why the last model call failed, or which limit ended the turn and how much was used;
        "" for other reasons.
    """

    reason: str
    detail: str

    def _shown(self) -> Iterator[str]:
        yield f"{self.turn}: {self.reason}"
        yield f"({self.detail})" if self.detail else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanged(RecordedEvent):
    """The session changed its phase. `trigger`: the name of the transition's trigger."""

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

    This event is not in the log. It is yielded once for each reason.
    """

    reason: str

    def _shown(self) -> Iterator[str]:
        yield self.reason


def demand_event_class(kind: object) -> None:
    """Raise Refused if `kind` is not a class of events."""
    try:
        isinstance(None, kind)  # type: ignore[arg-type]
    except TypeError:
        raise Refused(
            f"until() needs an event class, such as foldlog.ApprovalAsked, not {kind!r}"
        ) from None


def public(
    session_id: str, shown: Shown, offset: int, cursor: str, read: ReadBlob | None, lines: Lines
) -> SessionEvent:
    """Convert an item of the stream for viewers to a public event. offset: the offset of the item's
    record.

    lines: the transcript so far.
    """
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
    """The public event for a line of the transcript `lines`."""
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
            return ApprovalDecided(**call, decision=line.code)
        case "result":
            return ToolFinished(**call, outcome=line.code, text=_text(content))
        case "doubt":
            return InDoubt(**call, reason=line.text)
        case "resolved":
            return DoubtResolved(**call, outcome=line.code, report=_text(content))
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


def repeats_a_doubt(line: Line, lines: Lines) -> bool:
    """Whether a line only reports that a person is asked about a call of which an earlier line of
    the transcript `lines` reported the doubt. Such a line has no public event."""
    if line.kind != "doubt":
        return False
    before = takewhile(lambda other: other is not line, lines)
    kinds = [other.kind for other in before if other.call == line.call]
    return bool(kinds) and kinds[-1] == "doubt"


def _arguments(content: bytes) -> Mapping[str, Any]:
    """The arguments of a call.

    If the model did not write a JSON object, returns {"": value}, where the value is the decoded
    JSON, or the text if it is not JSON.
    """
    try:
        found = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        found = content.decode("utf-8", "replace")
    return found if isinstance(found, dict) else {"": found}


def _text(content: bytes) -> str:
    """The text of a tool's result, which is a list of content blocks or plain text."""
    return text_of(content) or content.decode("utf-8", "replace")


def _json(arguments: Mapping[str, Any]) -> str:
    shown = json.dumps(arguments, ensure_ascii=False)
    return shown if len(shown) <= LINE_CHARS_MAX else f"{shown[:LINE_CHARS_MAX]}..."


def _short(text: str) -> str:
    shown = json.dumps(text, ensure_ascii=False)
    return shown if len(shown) <= LINE_CHARS_MAX else f'{shown[:LINE_CHARS_MAX]}..."'
