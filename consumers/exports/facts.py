"""What happened in one session, gathered while it is folded: the source of every export.

The fold's own views say what a person saw and what was spent. What they let go of when it is over
(claims, calls, who decided) is noted here, event by event, as the fold ruled on it. Pure: nothing
is read here, and nothing decided anew. This file must not know any format.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...processors.fold.grants import grant_of, granting
from ...processors.fold.projections import partition as partition_fold
from ...processors.fold.projections.context_view import Fragment
from ...processors.fold.projections.ledger import Spent
from ...processors.fold.projections.partition import PartitionView
from ...processors.fold.projections.turn_view import Call, call_of, closed
from ...processors.fold.ruling import Ruling
from ...processors.fold.sessions import FoldedEvent, FoldedSession
from ...processors.fold.views import SessionViews
from ...schemas import events as ev
from ...schemas.codec import Entry
from ...schemas.ids import call_key
from ...schemas.value import replace

ANSWER, BACKGROUND = "answer", "background"
OUTCOMES = {ev.GenComplete: "complete", ev.GenFailed: "failed", ev.GenStopped: "stopped"}


@dataclass(slots=True)
class Attempt:
    """One claimed try: of a model call, or of background work. `claim`, `end`: the entries;
    `requests`: how many were made to a model, more than one only if it is background work."""

    kind: str
    key: tuple
    claim: Entry
    model: str = ""
    end: Entry | None = None
    outcome: str = ""
    counts: bool = False
    requests: int = 1


@dataclass(slots=True)
class CallFacts:
    """One tool call: the fold's last word on it, and the entries that made it so."""

    call: Call
    proposed: Entry
    invoked: Entry | None = None
    starts: list[Entry] = field(default_factory=list)
    results: list[Entry] = field(default_factory=list)
    doubts: list[Entry] = field(default_factory=list)
    resolved: list[Entry] = field(default_factory=list)
    ended: Entry | None = None
    told: Fragment | None = None


@dataclass(slots=True)
class Approval:
    """A call that asked and what was decided, or a decision that did not count (`ruling`)."""

    call: str
    name: str
    args_sha256: str
    asked: Entry | None
    decided: Entry | None = None
    decision: str = ""
    ruling: Ruling | None = None


@dataclass
class SessionFacts(FoldedSession):
    """One session up to an offset. `models`, `covered`: who was asked at a step, and with how
    many fragments; `answers`, `proposed`: what came of it, and its calls; `inherited`: how many
    lines are of a fork's parent; `holders`: of its partition, at the end of reading. Steps are
    keyed by (turn, step), for what a fork inherits has the offsets of another partition."""

    opened: Entry | None = None
    inherited: int = 0
    holders: PartitionView = partition_fold.INITIAL
    said: dict[str, Entry] = field(default_factory=dict)
    answers: dict[tuple[int, int], Entry] = field(default_factory=dict)
    calls: dict[str, CallFacts] = field(default_factory=dict)
    attempts: dict[tuple, Attempt] = field(default_factory=dict)
    approvals: list[Approval] = field(default_factory=list)
    models: dict[tuple[int, int], str] = field(default_factory=dict)
    covered: dict[tuple[int, int], int] = field(default_factory=dict)
    proposed: dict[tuple[int, int], list[CallFacts]] = field(default_factory=dict)
    people: list[tuple[Entry, Ruling]] = field(default_factory=list)

    def take(self, event: FoldedEvent) -> None:
        """Continue with the views after an event, and note what happened."""
        super().take(event)
        entry, ruling, before, views = event
        kind = type(entry.event)
        if kind in PEOPLE:
            self.people.append((entry, ruling))
        if kind in OUTCOMES or kind is ev.BackgroundDone:
            self._ended(entry, ruling)
        if not ruling.accepted:
            if kind is ev.ApprovalDecided:
                self.approvals.append(_refused(entry, ruling))
            return
        noted = _NOTES.get(kind)
        if noted is not None:
            noted(self, entry, before)
        if views.turn is not before.turn:
            self._follow_calls(entry, before)

    def tries(self) -> Iterator[tuple[Attempt | None, int, Spent | None]]:
        """(attempt, number of its request, what the ledger says of it): each request there was.

        None of both: its claim never counted or is a fork's parent's; nothing of it was paid for.
        """
        spent = {(*row.key[:3], row.request): row for row in self.views.ledger.spent}
        for key, attempt in self.attempts.items():
            for number in range(1, attempt.requests + 1):
                yield attempt, number, spent.pop((*key, number), None)
        for row in spent.values():
            yield None, row.request, row

    def _follow_calls(self, entry: Entry, before: SessionViews) -> None:
        """The fold's word on each call, as it changes; TURN_ENDED closes what it leaves open."""
        for call in (*self.views.turn.calls, *self.views.turn.doubts):
            known = self.calls.get(call.key)
            if known is None:
                self.calls[call.key] = CallFacts(call, entry)
                known = self.calls[call.key]
                self.proposed.setdefault((call.turn, call.step), []).append(known)
            self._became(known, call, entry)
        if isinstance(entry.event, ev.TurnEnded):
            for call in before.turn.calls:
                done = closed(call)
                if done is not None and call.key in self.calls:
                    self._became(self.calls[call.key], done[0], entry)
        self._settled(entry)
        for fragment in self.views.context.fragments.since(len(before.context.fragments)):
            if fragment.kind == "result":
                place = call_key(fragment.turn, fragment.step, fragment.index)
                if place in self.calls:
                    self.calls[place].told = fragment

    def _became(self, known: CallFacts, call: Call, entry: Entry) -> None:
        if call.status == "done" and known.ended is None:
            known.ended = entry
        known.call = call

    def _settled(self, entry: Entry) -> None:
        """A doubt that this event settled, and that the views (they keep few) let go of at once."""
        event = entry.event
        if not isinstance(event, ev.HumanResolved | ev.ToolResult):
            return
        known = self._of(entry)
        if known is None or call_of(self.views.turn, event) is not None:
            return
        outcome = _RESOLVED.get(event.outcome, event.outcome)
        self._became(known, replace(known.call, status="done", outcome=outcome), entry)

    def _ended(self, entry: Entry, ruling: Ruling) -> None:
        """An outcome, accepted or not: the first one of an attempt is what it came to."""
        event = entry.event
        if isinstance(event, ev.BackgroundDone):
            attempt = self.attempts.get((event.kind, event.upto, event.attempt))
            outcome = "complete" if event.ok else "failed"
        else:
            attempt = self.attempts.get((event.turn, event.step, event.attempt))
            outcome = OUTCOMES[type(event)]
        if attempt is None:
            return
        attempt.requests = max(attempt.requests, 1 + len(getattr(event, "earlier", ())))
        if attempt.end is None:
            attempt.end, attempt.outcome = entry, outcome
            attempt.counts = ruling.accepted and outcome != "failed"

    # -- one note per type of event ----------------------------------------------------------------

    def _opened(self, entry: Entry, _before: SessionViews) -> None:
        self.opened = self.opened or entry
        self.inherited = len(self.views.transcript.lines)

    def _said(self, entry: Entry, _before: SessionViews) -> None:
        self.said.setdefault(entry.event.message_id, entry)

    def _called(self, entry: Entry, _before: SessionViews) -> None:
        event = entry.event
        self.models[event.turn, event.step] = event.model
        self.covered[event.turn, event.step] = len(self.views.context.fragments)

    def _answered(self, entry: Entry, _before: SessionViews) -> None:
        self.answers[entry.event.turn, entry.event.step] = entry

    def _claimed(self, entry: Entry, _before: SessionViews) -> None:
        event = entry.event
        key = (event.turn, event.step, event.attempt)
        model = self.models.get(key[:2], "")
        self.attempts[key] = Attempt(ANSWER, key, entry, model)

    def _begun_beside(self, entry: Entry, _before: SessionViews) -> None:
        key = (entry.event.kind, entry.event.upto, entry.event.attempt)
        self.attempts[key] = Attempt(BACKGROUND, key, entry)

    def _invoked(self, entry: Entry, before: SessionViews) -> None:
        event, known = entry.event, self._of(entry)
        if known is None:
            return
        known.invoked = entry
        key, sha = known.call.key, known.call.args_sha256
        if event.approval == "ask":
            self.approvals.append(Approval(key, event.name, sha, entry))
        elif event.outcome is None and event.approval == "none":
            args = known.call.args.inline or b""
            grant = granting(before.turn.grants, event.name, sha, args)
            given = grant and next((a for a in reversed(self.approvals) if _gave(a, grant)), None)
            if given:
                self.approvals.append(Approval(key, event.name, sha, entry, given.decided, "grant"))

    def _happened(self, entry: Entry, _before: SessionViews) -> None:
        known = self._of(entry)
        if known is not None:
            getattr(known, _HAPPENED[type(entry.event)]).append(entry)

    def _decided(self, entry: Entry, _before: SessionViews) -> None:
        event = entry.event
        decision = "expired" if isinstance(event, ev.ApprovalExpired) else event.decision
        asked = [a for a in self.approvals if a.call == event.call and a.ruling is None]
        if asked:
            asked[-1].decided, asked[-1].decision = entry, decision

    def _of(self, entry: Entry) -> CallFacts | None:
        """The call that an event names; None of a call of another session's past (a fork)."""
        event = entry.event
        key = getattr(event, "call", None)
        return self.calls.get(key or call_key(event.turn, event.step, event.index))


PEOPLE = frozenset(
    {
        ev.SessionOpened,
        ev.MessageReceived,
        ev.PhaseTriggered,
        ev.ProjectLocked,
        ev.CancelRequested,
        ev.ApprovalDecided,
        ev.HumanResolved,
        ev.SessionTerminated,
    }
)
"""What people and other programs asked for; kept with the ruling, refused or not."""

_HAPPENED = {
    ev.ToolStarted: "starts",
    ev.ToolResult: "results",
    ev.ToolFailedUncertain: "doubts",
    ev.HumanResolved: "resolved",
}
_RESOLVED = {"happened": "ok", "did_not_happen": "not_run"}
_NOTES: dict[type, Any] = {
    ev.SessionOpened: SessionFacts._opened,
    ev.MessageReceived: SessionFacts._said,
    ev.LlmCalled: SessionFacts._called,
    ev.GenComplete: SessionFacts._answered,
    ev.GenStopped: SessionFacts._answered,
    ev.GenStart: SessionFacts._claimed,
    ev.GenResumed: SessionFacts._claimed,
    ev.BackgroundStarted: SessionFacts._begun_beside,
    ev.ToolInvoked: SessionFacts._invoked,
    ev.ApprovalDecided: SessionFacts._decided,
    ev.ApprovalExpired: SessionFacts._decided,
    **dict.fromkeys(_HAPPENED, SessionFacts._happened),
}


def _refused(entry: Entry, ruling: Ruling) -> Approval:
    event = entry.event
    decision = event.decision
    return Approval(event.call, "", event.args_sha256, None, entry, decision, ruling)


def _gave(approval: Approval, grant: str) -> bool:
    """Whether this decision is the one that allows later calls so."""
    event = approval.decided.event if approval.decided is not None else None
    return (
        isinstance(event, ev.ApprovalDecided)
        and approval.ruling is None
        and event.remember
        and grant_of(approval.name, event) == grant
    )
