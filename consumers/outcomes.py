"""What became of an event: the fold's ruling on it, and the answer that a message was owed.

A receipt says that the log has an event; whether it counted is the fold's word, which any reader
can compute by itself: no worker is needed for it, and two who ask get the same answer. The answer
to a message is a worker's work, so waiting for it has a bound and says what it waits for.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from ..log.errors import Refused, Retry
from ..processors.fold.projections.partition import INITIAL, PartitionView
from ..processors.fold.projections.transcript import Line
from ..processors.fold.sessions import FoldedEvent
from ..processors.fold.views import SessionViews
from ..producers.sessions import Receipt
from ..schemas.events.parts import ReadBlob
from .contents import text_of_body
from .session_fold import SessionFold
from .waiting import what_it_waits_for, who_lacks

PATIENCE_S = 5.0
"""Silence after which somebody who waits is told what for; a claim takes milliseconds."""

ANSWER_S = 600.0
"""How long an answer is waited for by default; the turn goes on when nobody waits."""

NOBODY = (
    "nobody has answered for {seconds:.0f} s: is a worker running that has agent {agent}? `foldlog "
    "worker --agent MODULE:ATTR` or `foldlog dev` is one, `foldlog doctor` looks; what was said is "
    "kept"
)


class Decision(NamedTuple):
    """The fold's word on one event. verdict: accepted, duplicate, refused or ignored.

    `views` are those right after it. `code` is for machines, `detail` for people.
    """

    session_id: str
    offset: int
    verdict: str
    code: str
    detail: str
    views: SessionViews

    @property
    def counted(self) -> bool:
        """Whether what was asked for holds now: it was accepted, or had been before."""
        return self.verdict in ("accepted", "duplicate")


class Answer(NamedTuple):
    """How the turn of a message ended. `offset`: of its TURN_ENDED. `text`: the last thing that
    the model said in it; `note`: why it failed, or the limit that ended it."""

    session_id: str
    message_id: str
    turn: int
    reason: str
    text: str
    offset: int
    note: str = ""


class CommandRefused(Refused):
    """The fold refused a command; no view changed. `decision` has its code and detail."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision.detail)
        self.decision = decision


class NoAnswerYet(Retry):
    """The bound of a wait passed. The message is in the log and will be answered."""


class UnknownMessage(Refused):
    """The session has no message of this id."""


def decision_on(folded: SessionFold, receipt: Receipt) -> Decision:
    """The ruling on the event of a receipt; the fold must not have passed it.

    Raises LogUnreachable when the log can't be read so far.
    """
    assert folded.partition == receipt.partition, "the number of partitions is final"
    assert folded.cursor <= receipt.offset, "the fold has passed this event"
    last = None
    for seen in folded.upto(receipt.offset + 1):
        last = seen
    assert last is not None and last.entry.offset == receipt.offset, "what was acknowledged is read"
    return decision_of(last)


def decision_of(seen: FoldedEvent) -> Decision:
    """The decision in a folded event."""
    ruling, views = seen.ruling, seen.views
    verdict, detail = ruling.verdict, ruling.detail
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
            "event is kept and counts once that record is passed over (`foldlog skip`) or a "
            "version runs that understands it"
        )
    return f"the fold ignored this event ({code})"


def demand(decision: Decision) -> Decision:
    """The decision, if what was asked for holds. Raises CommandRefused."""
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
    lines = [line for line in views.transcript.lines if line.turn == progress.turn]
    return Answer(
        views.session_id,
        message_id,
        progress.turn,
        progress.reason,
        _last_text(lines, read),
        progress.offset,
        _failure(lines) if progress.reason == "failed" else _ended(lines),
    )


def _ended(lines: list[Line]) -> str:
    return next((line.text for line in reversed(lines) if line.kind == "ended"), "")


def _last_text(lines: list[Line], read: ReadBlob | None) -> str:
    for line in reversed(lines):
        if line.kind in ("answer", "partial"):
            text = text_of_body(line.body, read)
            if text:
                return text
    return ""


def _failure(lines: list[Line]) -> str:
    return next((x.text for x in reversed(lines) if (x.kind, x.name) == ("attempt", "failed")), "")


class Patience:
    """Says what a session waits for: at once when it is a person, else after some silence.

    `say` hears each reason once. Silence is the time without an event of any worker.
    """

    def __init__(self, say: Callable[[str], None], patience_s: float = PATIENCE_S) -> None:
        self._say, self._patience_s = say, patience_s
        self._since, self._told = time.monotonic(), ""

    def restart(self) -> None:
        """A person has just acted: silence counts from now on."""
        self._since, self._told = time.monotonic(), ""

    def heard(self, seen: FoldedEvent) -> None:
        """Note an event: a worker's ends the silence."""
        if seen.entry.writer != "producer":
            self._since = time.monotonic()

    def look(self, views: SessionViews, holders: PartitionView = INITIAL) -> None:
        """Say what is waited for, if it is time to, and it was not said before."""
        waits = what_it_waits_for(views, holders)
        text = waits.text
        if not waits.person:
            silent = time.monotonic() - self._since > self._patience_s
            nobody = NOBODY.format(seconds=self._patience_s, agent=views.turn.agent)
            text = (text or nobody) if silent else ""
        if text and text != self._told:
            self._told = text
            self._say(text)


def answer_of(
    folded: SessionFold,
    message_id: str,
    *,
    read: ReadBlob | None = None,
    timeout_s: float = ANSWER_S,
    patience_s: float = PATIENCE_S,
    say: Callable[[str], None] = lambda _line: None,
    stop: Callable[[], bool] = lambda: False,
) -> Answer:
    """Wait until the turn that owns a message has ended (mission row S0.10).

    `say` hears what is waited for: at once when a person is, and after `patience_s` seconds of
    silence. `stop` is asked between looks. Raises NoAnswerYet after `timeout_s` seconds or when
    stopped, UnknownMessage, LogUnreachable.
    """
    folded.to_end()
    deadline = time.monotonic() + timeout_s
    patience = Patience(say, patience_s)
    while True:
        answer = answer_in(folded.views, message_id, read)
        if answer is not None:
            return answer
        patience.look(folded.views, folded.holders)
        if stop() or time.monotonic() > deadline:
            waits = what_it_waits_for(folded.views, folded.holders)
            lacks = who_lacks(folded.views.turn.agent, folded.holders)
            settles = waits.text if waits.person or waits.text == lacks else ""
            when = "that is settled" if settles else "a worker runs"
            raise NoAnswerYet(
                f"message {message_id} of session {folded.session_id} is not answered yet"
                f"{settles and f': {settles}'}. It is kept, and its turn goes on "
                f"when {when}. To wait again: foldlog send {folded.session_id} --message-id "
                f"{message_id} --wait"
            )
        for seen in folded.poll():
            patience.heard(seen)
