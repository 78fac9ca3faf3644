"""Planted faults: each makes one rule of the real code wrong, and the search must find a schedule
that breaks a property. The search imports nothing from here.
"""

from dataclasses import replace as changed
from typing import Any, NamedTuple

from foldlog.processors.fold.call_facts import FACTS
from foldlog.processors.fold.calls import ALLOWED, ASKS
from foldlog.processors.fold.projections import context, partition
from foldlog.processors.fold.ruling import ACCEPTED
from foldlog.processors.fold.rulings import workers as worker_rulings
from foldlog.processors.store.clocks import Anchor
from foldlog.processors.wake import facts as wake
from foldlog.processors.worker import actions, worker
from foldlog.processors.worker.outbox import Outbox
from foldlog.processors.worker.start_window import ClaimTimes
from foldlog.schemas import events as ev
from foldlog.tests.simulation import wrong_rules as wrong
from foldlog.tests.simulation.plants import Plant


class Planted(NamedTuple):
    """A plant (its scenario is a variant), and the bounds within which the search must find it."""

    plant: Plant
    faults: int
    jumps: int


JUDGES = worker_rulings.JUDGES


def accepts_all(right: Any) -> Any:
    """A ruling that accepts every event."""
    return lambda views, event: ACCEPTED


def without_row(*ids: str) -> Any:
    """A WAKE table that lacks some rows."""

    def wrong_match(right: Any) -> Any:
        def match(lane: str, facts: Any) -> Any:
            row = right(lane, facts)
            return None if row is not None and row.id in ids else row

        return match

    return wrong_match


def never_superseded(right: Any) -> Any:
    """Worker.held, in which a role stays held that was ever held in this assignment."""

    def wrong_held(self: Any, owned: Any) -> Any:
        owned.wrongly_held = getattr(owned, "wrongly_held", frozenset()) | right(self, owned)
        return owned.wrongly_held

    return wrong_held


def any_epoch_is_mine(right: Any) -> Any:
    """A claim status in which every claim of the same worker is of this process."""

    def wrong_status(claim: Any, holder: Any, *rest: Any) -> Any:
        same = holder and partition.worker_id(claim.owner) == partition.worker_id(holder.owner)
        return partition.MINE if same else right(claim, holder, *rest)

    return wrong_status


def unheld_claims(right: Any) -> Any:
    """A claim status in which a claim that landed after another owner's take is not void."""

    def wrong_status(claim: Any, holder: Any, *rest: Any) -> Any:
        status = right(claim, holder, *rest)
        return partition.OTHER if status is partition.VOID else status

    return wrong_status


def loses_the_newest(right: Any) -> Any:
    """An outbox that forgets the newest outcome when it is opened again."""
    return lambda self: right(self)[:-1]


def no_margin(right: Any) -> Any:
    """A deadline that ends with the tool's time limit, without the time until the tool begins."""

    def wrong_claim(views: Any, owed: Any, agent: Any, holder: Any, now: int) -> Any:
        return changed(right(views, owed, agent, holder, now), deadline=now)

    return wrong_claim


def always_allowed(right: Any) -> Any:
    """Facts of an approval in which the person always allows the call."""

    def wrong_facts(turn: Any, call: Any, event: Any) -> Any:
        return right(turn, call, changed(event, decision="allow"))

    return wrong_facts


def allowed_for_asks(right: Any) -> Any:
    """A WAKE table in which a call that waits for approval counts as allowed."""

    def match(lane: str, facts: Any) -> Any:
        asks = lane == "T" and facts["status"] == ASKS
        return right(lane, {**facts, "status": ALLOWED} if asks else facts)

    return match


def waits_for_ever(right: Any) -> Any:
    """A producer's report of a loss that leaves the record in flight, and for ever."""

    def wrong_lost(self: Any, session_id: str) -> Any:
        def failed(why: str) -> None:
            for key, one in self._awaited.items():
                self._awaited[key] = one._replace(until_ms=10**15)

        return failed

    return wrong_lost


def produced_when_read(right: Any) -> Any:
    """An anchor that takes a record as produced when it is read."""

    def wrong_anchor(record: Any, read_at: int) -> Any:
        return Anchor(read_at, read_at, record.timestamp_ms)

    return wrong_anchor


PLANTS = tuple(
    Planted(Plant(name, caught_by, variant, where, attribute, make), faults, jumps)
    for name, caught_by, variant, where, attribute, make, faults, jumps in (
        ("a claim begun twice", "OnceRunsOnce", "once",
         actions.Actions, "_on_claim", wrong.begins_again, 1, 0),
        ("TOOL_STARTED in a turn that closes", "NothingStartsWhileClosing", "once",
         FACTS, ev.ToolStarted, wrong.turn_runs, 1, 0),
        ("GEN_START in a turn that closes", "NothingStartsWhileClosing", "once",
         JUDGES, ev.GenStart, wrong.not_closing, 0, 0),
        ("a TURN_ENDED at any time", "TurnsEndOnce", "once",
         JUDGES, ev.TurnEnded, accepts_all, 1, 0),
        ("calls that a turn leaves open", "RequestsAreLegal", "once",
         context, "closed", wrong.forgets_to_close, 0, 0),
        ("a denial taken for an approval", "AskedCallsAreAllowed", "approved",
         FACTS, ev.ApprovalDecided, always_allowed, 0, 0),
        ("a claim before its approval", "WakeAndFoldAgree", "approved",
         wake, "match", allowed_for_asks, 0, 0),
        ("no row for a retry", "Liveness", "once",
         wake, "match", wrong.no_retries, 1, 0),
        ("no row for a takeover", "Liveness", "once",
         wake, "match", without_row("S3", "S4g"), 1, 0),
        ("a lost record that stays in flight", "Liveness", "once",
         actions.Actions, "_lost", waits_for_ever, 1, 0),
        ("a claim that is void is not taken over", "Liveness", "once",
         wake, "claim_status", unheld_claims, 1, 0),
        ("a newer owner is ignored", "WakeAndFoldAgree", "once",
         worker.Worker, "held", never_superseded, 1, 0),
        ("a claim of an earlier incarnation is mine", "OnlyWonClaimsBegin", "once",
         wake, "claim_status", any_epoch_is_mine, 1, 0),
        ("a takeover before the deadline", "TakeoversAreLawful", "once",
         wake, "claim_status", wrong.gone_at_once, 1, 0),
        ("a once tool taken for repeatable", "OnceRunsOnce", "once",
         wake, "match", wrong.with_facts("T", repeatable=True), 1, 0),
        ("a begun claim taken for void", "OnceRunsOnce", "once",
         wake, "claim_status", wrong.void_for_gone, 1, 0),
        ("a reconciler asked early", "ReconcilesLate", "reconciled",
         actions.Actions, "_recover", wrong.asks_early, 1, 0),
        ("an outcome of any attempt", "FoldNeverRaises", "once",
         JUDGES, ev.GenComplete, wrong.accepts, 1, 1),
        ("a second outcome of a call", "DecidedOnce", "once",
         FACTS, ev.ToolResult, wrong.always_contradicts, 1, 0),
        ("a tool begun at any time", "BeginsInTime", "once",
         ClaimTimes, "too_late", wrong.begins_at_any_time, 0, 1),
        ("a deadline that has passed at once", "BeginsInTime", "once",
         actions, "tool_claim", no_margin, 0, 0),
        ("a take paired with another time", "BeginsInTime", "once",
         worker, "anchor_of", produced_when_read, 0, 1),
        ("an outbox that loses an outcome", "KeptOutcomesArrive", "once",
         Outbox, "pending", loses_the_newest, 0, 0),
    )
)
