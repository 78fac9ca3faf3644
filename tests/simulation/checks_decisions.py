"""Invariants of decisions and outcomes: a decision is made on the newest input, a call that needs
approval was approved, and outcomes are kept."""

from collections import defaultdict
from typing import Any

from foldlog.processors.fold.projections.ledger import OUTCOMES
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode
from foldlog.schemas.ids import parse_call_key
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.invariants import calls_of, decisions_name_their_basis, is_refold
from foldlog.tests.simulation.invariant import Invariant

PAID = ("superseded", "late", "duplicate")  # rulings of outcomes that cost tokens, but lost
INPUTS = tuple(row.cls for row in ev.EVENT_TYPES if row.is_input)


class DecisionsNameTheirBasis(Invariant):
    """Law 8, with the newest input as this check determines it, independently of the fold."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.newest: dict[str, int] = {}

    def on_seen(self, seen: Any) -> None:
        if not seen.ruling.accepted:
            return
        session, event = seen.entry.session_id, seen.entry.event
        decisions_name_their_basis.demand(seen, self.newest.get(session))
        if isinstance(event, INPUTS) or self._shortens(seen):
            self.newest[session] = seen.entry.offset
        if is_refold(event):
            self.newest[session] = seen.views.turn.basis

    def _shortens(self, seen: Any) -> bool:
        """Whether the event is a short form that changes the next request. It does if no request
        has sent its result yet."""
        if not isinstance(seen.entry.event, ev.ResultCompacted):
            return False
        sent = seen.before.context.request.fragments
        place = parse_call_key(seen.entry.event.call)
        rows = seen.before.context.fragments.since(sent)
        return any((f.turn, f.step, f.index) == place for f in rows if f.kind == "result")


class AskedCallsAreAllowed(Invariant):
    """S2.6: a call that needs approval begins only if a person allowed exactly these arguments, or
    (in old approvals) this tool."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.allowed: set[tuple[str, str]] = set()
        self.remembered: set[tuple[str, str, str]] = set()

    def on_seen(self, seen: Any) -> None:
        event, session = seen.entry.event, seen.entry.session_id
        if not isinstance(event, ev.ApprovalDecided) or not seen.ruling.accepted:
            return
        call = calls_of(seen.before)[event.call]
        if event.decision == "allow" and event.args_sha256 == call.args_sha256:
            self.allowed.add((session, event.call))
            if event.remember:
                what = call.args_sha256 if event.grant == "same" else ""
                self.remembered.add((session, call.name, what))

    def on_begun(self, role: str, process: Any, session_id: str, begin: Any) -> None:
        call = begin.call if role == "tools" else None
        tool = call and begin.agent.tool(call.name)
        if tool is None or tool.approval == "none":
            return
        allowed = (session_id, call.key) in self.allowed
        grants = ((session_id, call.name, what) for what in ("", call.args_sha256))
        remembered = not self.remembered.isdisjoint(grants)
        self.demand(allowed or remembered, f"{session_id} {call.key} {call.name} was not allowed")


class KeptOutcomesArrive(Invariant):
    """Every outcome in an outbox reaches the log, whatever dies. If the log does not accept an
    outcome at one start of the worker, the outcome waits for the next start."""

    def at_end(self) -> None:
        records = [
            record.value
            for partition in self.world.log.topic(SESSION_EVENTS).partitions
            for record in partition.records
        ]
        in_log = set(records)
        for node in self.world.nodes:
            pending = [event for _, event in node.disk.outbox.values()]
            for session, event in node.disk.kept:
                if encode(event) not in in_log and event not in pending:
                    self.fail(f"{node.name} kept {event} of {session}, which is not in the log")


class LedgerCountsOnce(Invariant):
    """S0.5: every paid request is counted once, even if the outcome of its attempt was superseded
    or late."""

    def at_end(self) -> None:
        paid: dict[str, dict[tuple, Any]] = defaultdict(dict)
        for seen in self.world.witness.seen.values():
            event = seen.entry.event
            counts = seen.ruling.accepted or seen.ruling.code in PAID
            if type(event) not in OUTCOMES or not counts:
                continue
            background = isinstance(event, ev.BackgroundDone)
            place = (event.kind, event.upto) if background else (event.turn, event.step)
            for number, one in enumerate((*getattr(event, "earlier", ()), event)):
                if one.usage is not None:
                    name, tokens = (*place, event.attempt, number), one.usage.output_tokens
                    paid[seen.entry.session_id].setdefault(name, tokens)
        for session, views in self.world.witness.views.items():
            want = sum(paid[session].values())
            have = views.ledger.output_tokens
            self.demand(want == have, f"{session} paid {want} output tokens, the ledger has {have}")
            self.demand(len(views.ledger.spent) == len(paid[session]), f"{session}: {views.ledger}")


DECIDED = (
    DecisionsNameTheirBasis,
    AskedCallsAreAllowed,
    KeptOutcomesArrive,
    LedgerCountsOnce,
)
