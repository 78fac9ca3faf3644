"""Waits for what follows an event: the fold's ruling on it, and the answer to a message.

A receipt proves that the log has an event; the fold decides whether the event is accepted. Any
reader can compute this ruling without a worker, and all readers reach the same ruling. Only a
worker produces the answer to a message, so waiting for it has a time limit and reports what the
session waits for.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from ..log.errors import Refused, Retry
from ..processors.effects.failed_turns import Lines, last_failure, way_out
from ..processors.fold.projections.partition import PartitionView
from ..processors.fold.projections.transcript import Line
from ..processors.fold.ruling import DUPLICATE, Verdict
from ..processors.fold.sessions import FoldedEvent
from ..processors.fold.views import SessionViews
from ..producers.sessions import Receipt
from ..schemas.enums import EndReason
from ..schemas.events.parts import ReadBlob
from .printable import no_text, text_of_body
from .session_fold import SessionFold
from .waiting import HOW_TO_START, Waits, what_it_waits_for

PATIENCE_S = 5.0
"""After how many seconds without progress a waiting caller gets the reason."""

SOON_S = 1.5
"""The same, if nothing works on the turn: a worker decides within milliseconds."""

ANSWER_S = 600.0
"""How long to wait for an answer by default, in seconds; after it the turn still continues."""

NO_WORKER = (
    "no worker has responded for {seconds:g} s; the message is kept. Check that a worker with "
    f"agent {{agent}} is running: start one with {HOW_TO_START}"
)


class Decision(NamedTuple):
    """The fold's ruling on one event. `verdict`: accepted, duplicate, refused or ignored.

    `views`: the views right after the event. `code` is for machines, `detail` for people.
    """

    session_id: str
    offset: int
    verdict: str
    code: str
    detail: str
    views: SessionViews

    def __repr__(self) -> str:
        code = self.code and f" ({self.code})"
        return f"<Decision on offset {self.offset} of {self.session_id}: {self.verdict}{code}>"

    @property
    def counted(self) -> bool:
        """Whether the command is in effect, because it or an equal earlier command was accepted."""
        return self.verdict == Verdict.ACCEPTED or self.is_repeated

    @property
    def is_repeated(self) -> bool:
        """Whether an equal earlier command was accepted, so that this one changed nothing."""
        return self.verdict == DUPLICATE.code


class Answer(NamedTuple):
    """How the turn of a message ended. `message_id`: '' if the turn began with a replaced result.

    `offset`: the offset of its TURN_ENDED.
    `text`: the model's last text in the turn.
    `note`: why the turn failed, the limit that ended it, or that the model ended it without a text.
    """

    session_id: str
    message_id: str
    turn: int
    reason: str
    text: str
    offset: int
    note: str = ""

    def __str__(self) -> str:
        return self.text or f"({self.note or self.reason})"


class CommandRefused(Refused):
    """The fold refused a command; no view changed. `decision` has the code and the detail."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.detail)
        self.decision = decision


class NoAnswerYet(Retry):
    """The time limit for an answer passed. The message is in the log and will be answered.

    waits: what its session waits for.
    """

    def __init__(self, text: str, waits: Waits | None = None) -> None:
        super().__init__(text)
        self.waits = waits or Waits("")


class UnknownMessage(Refused):
    """The session has no message with this id."""


def decision_on(folded: SessionFold, receipt: Receipt) -> Decision:
    """Fold up to the event of a receipt and return the ruling on it. `folded` must be before this
    event.

    Raises LogUnreachable if the log cannot be read up to the event.
    """
    assert folded.partition == receipt.partition, "the partition count never changes"
    assert folded.cursor <= receipt.offset, "the fold has passed this event"
    last = None
    for seen in folded.upto(receipt.offset + 1):
        last = seen
    assert last is not None and last.entry.offset == receipt.offset, "an acknowledged event is read"
    return decision_of(last)


def decision_of(seen: FoldedEvent) -> Decision:
    """The ruling on a folded event."""
    ruling, views = seen.ruling, seen.views
    verdict: str = ruling.verdict
    detail = ruling.detail
    if verdict == "ignored" and ruling.code == "duplicate":
        verdict, detail = "duplicate", "this was done before; nothing changed"
    elif verdict == "ignored":
        detail = _why_ignored(ruling.code, views)
    session_id, offset = seen.entry.session_id, seen.entry.offset
    return Decision(session_id, offset, verdict, ruling.code, detail, views)


def _why_ignored(code: str, views: SessionViews) -> str:
    if code == "frozen" and views.frozen is not None:
        return (
            f"the session is frozen at offset {views.frozen.offset} ({views.frozen.why}). This "
            "event is kept and takes effect once that record is skipped (`foldlog skip`) or a "
            "version that understands it runs"
        )
    return f"the fold ignored this event ({code})"


def demand(decision: Decision) -> Decision:
    """Return the ruling if the command is in effect, else raise CommandRefused."""
    if not decision.counted:
        raise CommandRefused(decision)
    return decision


def answer_in(views: SessionViews, message_id: str, read: ReadBlob | None) -> Answer | None:
    """The answer to a message, if its turn has ended. Raises UnknownMessage."""
    if views.messages.received.last(message_id) is None:
        raise UnknownMessage(f"session {views.session_id} has no message {message_id}")
    progress = views.messages.progress.last(message_id)
    if progress is None or not progress.reason:
        return None
    return answer_of_turn(views, progress.turn, read, message_id)


def answer_of_turn(
    views: SessionViews, turn: int, read: ReadBlob | None, message_id: str = ""
) -> Answer | None:
    """The answer of a turn, if it has ended. `message_id`: the message that it answers."""
    lines = [line for line in views.transcript.lines if line.turn == turn]
    ended = next((line for line in reversed(lines) if line.kind == "ended"), None)
    if ended is None:
        return None
    why = why_ended(ended, views.transcript.lines, views.session_id) or _without_text(lines, read)
    text = _last_text(lines, read)
    return Answer(views.session_id, message_id, turn, ended.name, text, ended.offset, why)


def why_ended(ended: Line, lines: Lines, session_id: str = "SESSION") -> str:
    """Why a turn ended and what to do, for people. The reason is the last failure of its model
    call, the limit that it reached, or the model's refusal to answer. '' for any other end.

    `ended`: the line of the turn's end.
    `lines`: the lines of the session's transcript.
    """
    out = way_out(session_id, ended, lines)
    return "; ".join(filter(None, (_why_ended(ended, lines), out)))


def _why_ended(ended: Line, lines: Lines) -> str:
    if ended.name == EndReason.FAILED and (failure := last_failure(ended.turn, lines)):
        of_all = f" of {ended.used}" if ended.used and ended.used == ended.limit else ""
        number = f"attempt {failure.attempt}{of_all}"
        return f"the model call failed ({number}): {failure.code}: {failure.note}"
    return ended.text


def _without_text(lines: list[Line], read: ReadBlob | None) -> str:
    last = next((line for line in reversed(lines) if line.kind in ("answer", "partial")), None)
    return "" if last is None else no_text(last, read)


def _last_text(lines: list[Line], read: ReadBlob | None) -> str:
    for line in reversed(lines):
        if line.kind in ("answer", "partial"):
            text = text_of_body(line.body, read)
            if text:
                return text
    return ""


class Patience:
    """Reports what an open turn waits for. If it waits for a person, this is reported at once; if
    nothing works on it, SOON_S after the last event from a worker; any other reason after
    `patience_s` seconds.

    `report` is called with each reason once.
    """

    def __init__(self, report: Callable[[str], None], patience_s: float = PATIENCE_S) -> None:
        self._report, self._patience_s = report, patience_s
        self._soon_s = min(SOON_S, patience_s)
        self._since, self._reported = time.monotonic(), ""

    def restart(self) -> None:
        """Wait from now on, because a person has acted, and forget the last reason."""
        self._since, self._reported = time.monotonic(), ""

    def note_event(self, seen: FoldedEvent) -> None:
        """Note an event. Wait from now on if a worker wrote it, or has something to do since it."""
        begins = not seen.before.turn.open or what_it_waits_for(seen.before).person
        if seen.entry.writer != "producer" or begins:
            self._since = time.monotonic()

    def report_if_due(self, views: SessionViews, holders: PartitionView | None = None) -> None:
        """Report what the session waits for, if it is time to."""
        waits = what_it_waits_for(views, holders)
        text, after_s = waits.text, self._patience_s
        if waits.lacks or (not text and views.turn.open):
            no_worker = NO_WORKER.format(seconds=self._soon_s, agent=views.turn.agent)
            text, after_s = text or no_worker, self._soon_s
        is_due = waits.person or time.monotonic() - self._since > after_s
        if text and is_due and text != self._reported:
            self._reported = text
            self._report(text)
