"""Collects the facts of one session while it is folded; every export uses them.

The views contain what people saw and what was spent. This file records what the views drop at the
end of a turn: the claims, the calls and who approved or denied them, with the fold's ruling on each
event. It is pure: it gets folded events and does no I/O.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...processors.fold.calls import CallStatus
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
from ...schemas.enums import Approval as Needed
from ...schemas.ids import call_key
from ...schemas.value import replace

ANSWER, BACKGROUND = "answer", "background"
OUTCOMES = {ev.GenComplete: "complete", ev.GenFailed: "failed", ev.GenStopped: "stopped"}


@dataclass(slots=True)
class Attempt:
    """One claimed attempt at a model call or background work.

    `claim`, `end`: the entries that began and ended it.
    `requests`: the number of model requests, which may exceed 1 only in background work.
    """

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
    """One tool call: its latest state in the fold, the entries about it, and the context fragment
    with its result.
    """

    call: Call
    proposed: Entry
    invoked: Entry | None = None
    starts: list[Entry] = field(default_factory=list)
    results: list[Entry] = field(default_factory=list)
    doubts: list[Entry] = field(default_factory=list)
    resolved: list[Entry] = field(default_factory=list)
    ended: Entry | None = None
    fragment: Fragment | None = None


@dataclass(slots=True)
class Approval:
    """A call that needed approval, with the person's answer; or a person's answer that the fold did
    not accept (`ruling`).
    """

    call: str
    name: str
    args_sha256: str
    asked: Entry | None
    decided: Entry | None = None
    decision: str = ""
    ruling: Ruling | None = None


@dataclass
class SessionFacts(FoldedSession):
    """One session up to an offset.

    `messages`: the entries of messages by id.
    `models`, `covered`: the model that each step called, and the number of context fragments in the
        step's request.
    `answers`, `proposed`: the answer of each step, and the calls in the answer.
    `inherited`: how many transcript lines a fork inherited from its parent.
    `holders`: the holders of the partition when reading ended.

    Steps are keyed by (turn, step), because inherited steps have offsets of another partition.
    """

    opened: Entry | None = None
    inherited: int = 0
    holders: PartitionView = partition_fold.INITIAL
    messages: dict[str, Entry] = field(default_factory=dict)
    answers: dict[tuple[int, int], Entry] = field(default_factory=dict)
    calls: dict[str, CallFacts] = field(default_factory=dict)
    attempts: dict[tuple, Attempt] = field(default_factory=dict)
    approvals: list[Approval] = field(default_factory=list)
    models: dict[tuple[int, int], str] = field(default_factory=dict)
    covered: dict[tuple[int, int], int] = field(default_factory=dict)
    proposed: dict[tuple[int, int], list[CallFacts]] = field(default_factory=dict)
    people: list[tuple[Entry, Ruling]] = field(default_factory=list)

    def take(self, event: FoldedEvent) -> None:
        """Record an event: its facts, and the views after it."""
        super().take(event)
        entry, ruling, before, views = event
        kind = type(entry.event)
        if kind in PEOPLE:
            self.people.append((entry, ruling))
        if kind in OUTCOMES or kind is ev.BackgroundDone:
            self._attempt_ended(entry, ruling)
        if not ruling.accepted:
            if kind is ev.ApprovalDecided:
                decided = entry.event
                self.approvals.append(Approval(
                    decided.call, "", decided.args_sha256, None, entry, decided.decision, ruling
                ))
            return
        self._note(entry, before)
        if views.turn is not before.turn:
            self._follow_calls(entry, before)

    def _note(self, entry: Entry, before: SessionViews) -> None:
        """Record the facts in an accepted event."""
        event = entry.event
        match event:
            case ev.SessionOpened():
                self.opened = self.opened or entry
                self.inherited = len(self.views.transcript.lines)
            case ev.MessageReceived():
                self.messages.setdefault(event.message_id, entry)
            case ev.LlmCalled():
                self.models[event.turn, event.step] = event.model
                self.covered[event.turn, event.step] = len(self.views.context.fragments)
            case ev.GenStart() | ev.GenResumed():
                key = (event.turn, event.step, event.attempt)
                self.attempts[key] = Attempt(ANSWER, key, entry, self.models.get(key[:2], ""))
            case ev.GenComplete() | ev.GenStopped():
                self.answers[event.turn, event.step] = entry
            case ev.BackgroundStarted():
                work = (event.kind, event.upto, event.attempt)
                self.attempts[work] = Attempt(BACKGROUND, work, entry)
            case ev.ToolInvoked():
                self._invoked(entry, before)
            case ev.ToolStarted() | ev.ToolResult() | ev.ToolFailedUncertain() | ev.HumanResolved():
                if (known := self._of(entry)) is not None:
                    getattr(known, _CALL_LISTS[type(event)]).append(entry)
            case ev.ApprovalDecided() | ev.ApprovalExpired():
                self._decided(entry)

    def tries(self) -> Iterator[tuple[Attempt | None, int, Spent | None]]:
        """Each model request, as (attempt, number of the request within the attempt, ledger row).

        The attempt is None if its claim was not accepted or belongs to a fork's parent. The row is
        None if nothing was paid.
        """
        spent = {(*row.key[:3], row.request): row for row in self.views.ledger.spent}
        for key, attempt in self.attempts.items():
            for number in range(1, attempt.requests + 1):
                yield attempt, number, spent.pop((*key, number), None)
        for row in spent.values():
            yield None, row.request, row

    def _follow_calls(self, entry: Entry, before: SessionViews) -> None:
        """Track the state of each call. TURN_ENDED closes the calls that are still open."""
        for call in (*self.views.turn.calls, *self.views.turn.doubts):
            known = self.calls.get(call.key)
            if known is None:
                known = self.calls[call.key] = CallFacts(call, entry)
                self.proposed.setdefault((call.turn, call.step), []).append(known)
            self._update_call(known, call, entry)
        if isinstance(entry.event, ev.TurnEnded):
            for call in before.turn.calls:
                closing = closed(call)
                if closing is not None and call.key in self.calls:
                    self._update_call(self.calls[call.key], closing[0], entry)
        self._settle_doubt(entry)
        for fragment in self.views.context.fragments.since(len(before.context.fragments)):
            if fragment.kind == "result":
                place = call_key(fragment.turn, fragment.step, fragment.index)
                if place in self.calls:
                    self.calls[place].fragment = fragment

    def _update_call(self, known: CallFacts, call: Call, entry: Entry) -> None:
        if call.status == CallStatus.DONE and known.ended is None:
            known.ended = entry
        known.call = call

    def _settle_doubt(self, entry: Entry) -> None:
        """Record the outcome of a call in doubt that this event resolved, if the views no longer
        contain the call. (They keep only the newest resolved calls.)
        """
        event = entry.event
        if not isinstance(event, ev.HumanResolved | ev.ToolResult):
            return
        known = self._of(entry)
        if known is None or call_of(self.views.turn, event) is not None:
            return
        outcome = _RESOLVED.get(event.outcome, event.outcome)
        settled = replace(known.call, status=CallStatus.DONE, outcome=outcome)
        self._update_call(known, settled, entry)

    def _attempt_ended(self, entry: Entry, ruling: Ruling) -> None:
        """Record the first outcome of an attempt, whether it was accepted or not."""
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

    def _invoked(self, entry: Entry, before: SessionViews) -> None:
        event, known = entry.event, self._of(entry)
        if known is None:
            return
        known.invoked = entry
        key, sha = known.call.key, known.call.args_sha256
        if event.approval == Needed.ASK:
            self.approvals.append(Approval(key, event.name, sha, entry))
        elif event.outcome is None and event.approval == Needed.NONE:
            args = known.call.args.inline or b""
            grant = granting(before.turn.grants, event.name, sha, args)
            given = grant and next((a for a in reversed(self.approvals) if _gave(a, grant)), None)
            if given:
                self.approvals.append(Approval(key, event.name, sha, entry, given.decided, "grant"))

    def _decided(self, entry: Entry) -> None:
        event = entry.event
        decision = "expired" if isinstance(event, ev.ApprovalExpired) else event.decision
        requests = [a for a in self.approvals if a.call == event.call and a.ruling is None]
        if requests:
            requests[-1].decided, requests[-1].decision = entry, decision

    def _of(self, entry: Entry) -> CallFacts | None:
        """The call that an event names, or None if the call belongs to a fork's parent."""
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
        ev.ResultReplaced,
        ev.SessionTerminated,
    }
)
"""The commands of people and other programs, which are recorded with their rulings even if
refused."""

_CALL_LISTS = {
    ev.ToolStarted: "starts",
    ev.ToolResult: "results",
    ev.ToolFailedUncertain: "doubts",
    ev.HumanResolved: "resolved",
}
_RESOLVED = {"happened": "ok", "did_not_happen": "not_run"}


def _gave(approval: Approval, grant: str) -> bool:
    """Whether this approval gave the grant `grant` for later calls."""
    event = approval.decided.event if approval.decided is not None else None
    return (
        isinstance(event, ev.ApprovalDecided)
        and approval.ruling is None
        and event.remember
        and grant_of(approval.name, event) == grant
    )
