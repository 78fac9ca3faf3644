"""The reference fold of the facts of a session, for every reader of `session-facts`."""

from collections import Counter
from dataclasses import dataclass, field

from foldlog.processors.facts.derive import title_of
from foldlog.processors.facts.waiting_calls import asking, doubtful
from foldlog.processors.fold.views import SessionViews
from foldlog.schemas import facts
from foldlog.schemas.facts import Fact


@dataclass
class KnownSession:
    """What a reader of the facts knows about one session."""

    is_open: bool = False
    is_closed: bool = False
    is_frozen: bool = False
    title: str = ""
    phase: str = ""
    project_id: str | None = None
    turn: int = 0
    approvals: dict[str, tuple[str, int]] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    turns: Counter = field(default_factory=Counter)
    usage: Counter = field(default_factory=Counter)
    unpriced: int = 0

    @property
    def status(self) -> str:
        """The status, as a list of sessions shows it."""
        if self.is_frozen:
            return "frozen"
        if self.is_closed:
            return "ended"
        return "working" if self.is_open else "idle"

    def take(self, fact: Fact) -> None:
        """Fold one fact."""
        match fact:
            case facts.SessionOpened():
                self.title, self.turn = fact.title, fact.turn
                self.phase, self.project_id = fact.phase, fact.project_id
            case facts.SessionTitled():
                self.title, self.turn, self.is_open = fact.title, fact.turn, True
            case facts.TurnBegun():
                self.turn, self.is_open = fact.turn, True
            case facts.PhaseChanged():
                self.phase, self.project_id = fact.phase, fact.project_id
                for call in fact.settled:
                    self.approvals.pop(call, None)
                    self.doubts.pop(call, None)
                self._doubt(fact.doubts)
            case facts.TurnEnded():
                self.turns[fact.reason] += 1
                self.approvals.clear()
                self._doubt(fact.doubts)
                self.is_open = fact.next_turn > 0
                self.turn = fact.next_turn or self.turn
                self._pay(fact.usage)
            case facts.ApprovalAsked():
                self.approvals[fact.call] = fact.tool, fact.expires_at
            case facts.ApprovalAnswered():
                if fact.answer == "withdrawn":
                    self.approvals.clear()
                self.approvals.pop(fact.call, None)
            case facts.DoubtOpened():
                self.doubts[fact.call] = fact.tool
            case facts.DoubtSettled():
                self.doubts.pop(fact.call, None)
            case facts.SessionFailed():
                self.is_frozen = True
            case facts.SessionRepaired():
                self.is_frozen, self.is_open = False, fact.is_working
                self.is_closed, self.turn, self.title = fact.is_closed, fact.turn, fact.title
                self.phase, self.project_id = fact.phase, fact.project_id
                self.approvals = {c.call: (c.tool, c.expires_at) for c in fact.approvals}
                self.doubts = {c.call: c.tool for c in fact.doubts}
                self._pay(fact.usage)
            case facts.SessionClosed():
                self.is_closed = True
                self.approvals.clear()
                self._pay(fact.usage)
            case _:
                raise AssertionError(fact)

    def _doubt(self, calls: tuple[facts.WaitingCall, ...]) -> None:
        self.doubts.update({each.call: each.tool for each in calls})

    def _pay(self, usage: tuple[facts.ModelUsage, ...]) -> None:
        for each in usage:
            of = each.model, str(each.work)
            self.usage[*of, "requests"] += each.requests
            self.usage[*of, "input"] += each.input_tokens
            self.usage[*of, "read"] += each.cache_read_tokens
            self.usage[*of, "5m"] += each.cache_write_5m_tokens
            self.usage[*of, "1h"] += each.cache_write_1h_tokens
            self.usage[*of, "output"] += each.output_tokens
            self.usage["picodollars"] += each.picodollars or 0
            self.unpriced += each.requests if each.picodollars is None else 0


def status_of(views: SessionViews) -> str:
    """The status by the views."""
    if views.frozen is not None:
        return "frozen"
    if views.turn.terminated:
        return "ended"
    return "working" if views.turn.open else "idle"


def title_in(views: SessionViews) -> str:
    """The title by the views."""
    messages = (line for line in views.transcript.lines if line.kind == "message")
    return next((title_of(line.body) for line in messages), "")


def demand_agreement(known: KnownSession, views: SessionViews) -> None:
    """Demand that what the facts say equals the views, except sums."""
    if not views.turn.known:
        assert known == KnownSession()
        return
    assert known.status == status_of(views)
    assert (known.phase, known.project_id) == (views.state.phase, views.state.project_id)
    assert (known.turn, known.title) == (views.turn.number, title_in(views))
    assert known.approvals == {c.key: (c.name, c.expires_at) for c in asking(views.turn)}
    assert known.doubts == {c.key: c.name for c in doubtful(views.turn)}
