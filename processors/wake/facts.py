"""`wake(views, partition, now, rules)`: what a session owes now, and when to check again.

One small function per lane computes the facts that the table names and looks them up. The table
decides. There is no clock: `now` is an argument (Unix ms).
"""

from typing import NamedTuple

from ..fold.calls import ASKS, STARTED
from ..fold.projections.background import Work
from ..fold.projections.delivery import Owed, next_owed
from ..fold.projections.partition import PartitionView, claim_status
from ..fold.projections.turn_view import Call, Claim, generation_deadline, is_open, part_refused
from ..fold.references import (
    CallRef,
    DeliveryRef,
    RefusalRef,
    StepRef,
    Subject,
    TurnRef,
    WorkRef,
)
from ..fold.views import SessionViews
from .budget import Due, Rules, due_works, may_still_come, must_shorten, plan
from .table import REBUILT, Facts, Row, match


class Obligation(NamedTuple):
    """One thing owed. `subject`: what it is about; a property names it where its type is known.
    `due`: Unix ms to look again, on a wait."""

    row: str
    lane: str
    role: str
    owed: str
    subject: Subject
    due: int | None = None

    @property
    def call(self) -> CallRef:
        """The tool call that it is about."""
        assert isinstance(self.subject, CallRef), self
        return self.subject

    @property
    def work(self) -> WorkRef:
        """The background work that it is about."""
        assert isinstance(self.subject, WorkRef), self
        return self.subject

    @property
    def delivery(self) -> DeliveryRef:
        """The delivery that it is about."""
        assert isinstance(self.subject, DeliveryRef), self
        return self.subject

    @property
    def refusal(self) -> RefusalRef:
        """The refusal that it answers."""
        assert isinstance(self.subject, RefusalRef), self
        return self.subject


def wake(
    views: SessionViews, partition: PartitionView, now: int, rules: Rules | None
) -> tuple[Obligation, ...]:
    """Everything owed. `rules` is None if no agent of that name is known: then only refusals and
    the end of a closing turn (rows C) are, which need nothing of an agent."""
    owed: list[Obligation | None] = []
    for refusal in views.turn.refusals:
        row = match("R", {})
        owed.append(None if row is None else _owe(row, RefusalRef(refusal.offset)))
    halted = views.frozen is not None or (views.turn.terminated and not views.turn.open)
    gate = "halted" if halted or rules is None else "live"
    closing = views.turn.closing is not None
    common: Facts = {"gate": gate, "closing": closing}
    ends = closing and rules is None and not halted
    rules = rules or Rules()
    for call in (*views.turn.calls, *views.turn.doubts):
        owed.append(_tool(common, views, partition, now, rules, call))
    if views.turn.open and gate == "live":
        owed.extend(_effects(common, views, partition, now, rules))
        owed.append(_model(common, views, partition, now, rules))
        owed.append(_next(common, views, now, rules))
    if ends and views.turn.open:
        effects = _effects({"gate": "live", "closing": True}, views, partition, now, rules)
        owed.extend(one for one in effects if one.lane == "C")
    if gate == "live":
        for work in views.background.works:
            owed.append(_claimed_work(common, partition, now, rules, work))
        owed.extend(_due_work(common, now, due) for due in due_works(views, rules))
        for delivery in next_owed(views.delivery):
            owed.append(_delivery(common, partition, now, rules, delivery))
    return tuple(obligation for obligation in owed if obligation is not None)


def _owe(row: Row, subject: Subject, due: int | None = None) -> Obligation:
    when = due if row.owed == "wait" else None
    return Obligation(row.id, row.lane, row.role, row.owed, subject, when)


def _standing(
    claim: Claim, role: str, partition: PartitionView, now: int, deadline: int, margin: int
) -> str:
    return claim_status(claim, partition.holder(role), now, deadline, margin)


def _tool(
    common: Facts, views: SessionViews, partition: PartitionView, now: int, rules: Rules, call: Call
) -> Obligation | None:
    margin = rules.limits.margin_ms
    claim = "other"
    due = call.expires_at
    if call.claim is not None and call.status == STARTED:
        claim = _standing(call.claim, "tools", partition, now, call.claim.deadline, margin)
        due = call.claim.deadline + margin
    facts = {
        **common,
        "status": call.status,
        "expired": call.status == ASKS and now >= call.expires_at,
        "claim": claim,
        "repeatable": call.effect != "once",
        "left": call.attempt < rules.limits.tool_attempts,
        "told": call.told,
    }
    row = match("T", facts)
    return None if row is None else _owe(row, CallRef(call.turn, call.step, call.index), due)


def _model(
    common: Facts, views: SessionViews, partition: PartitionView, now: int, rules: Rules
) -> Obligation | None:
    generation = views.turn.generation
    if generation is None:
        return None
    claim, due = "other", generation.retry_at
    if generation.status == "running":
        assert generation.claim is not None, "a running attempt has a claim"
        deadline = generation_deadline(generation, views.stream)
        margin = rules.limits.margin_ms
        claim = _standing(generation.claim, "models", partition, now, deadline, margin)
        due = deadline + margin
    facts = {
        **common,
        "status": "failed" if generation.status == "stopped" else generation.status,
        "claim": claim,
        "left": generation.attempt < rules.limits.model_attempts,
        "permanent": generation.permanent,
        "retry_due": now >= generation.retry_at,
        "rebuilds": due_step(views, rules) in REBUILT,
    }
    row = match("S", facts)
    return None if row is None else _owe(row, StepRef(views.turn.number, views.turn.step), due)


def due_step(views: SessionViews, rules: Rules) -> str:
    """Why a step is due: of DUE; or first, ended, or no (in flight)."""
    turn = views.turn
    if turn.step == 0:
        return "first"
    if must_shorten(views):
        return "too_long" if rules.strategy == "compacted" else "no"
    if part_refused(turn):
        return "part_refused"
    if turn.generation is None or turn.generation.status != "done":
        return "no"
    if turn.calls:
        return "no" if any(is_open(call) for call in turn.calls) else "answered"
    if any(waiting.when_busy == "steer" for waiting in turn.queue):
        return "steer"
    return "pause" if turn.generation.stop_reason == "pause_turn" else "ended"


def stop_reason(views: SessionViews, rules: Rules) -> str | None:
    """The stop condition that holds before another step, or None (S1.F)."""
    turn = views.turn
    if turn.step == 0:
        return None
    done = (call.name for call in turn.calls if call.outcome == "ok")
    if any(name in rules.stop_tools for name in done):
        return "stop_tool"
    if turn.should_stop:
        return "should_stop"
    return "max_steps" if turn.step >= rules.limits.steps else None


def _next(
    common: Facts, views: SessionViews, now: int, rules: Rules
) -> Obligation | None:
    due = due_step(views, rules)
    facts = {**common, "due": due, "stop": False, "over_cap": False, "may_come": False}
    wait_until = None
    if due not in ("no", "ended"):
        planned = plan(views, rules)
        over = planned.tokens > rules.limits.hard_tokens
        facts["stop"] = stop_reason(views, rules) is not None
        facts["over_cap"] = over or (due == "too_long" and not planned.adopts)
        facts["may_come"] = facts["over_cap"] and may_still_come(views, rules, now)
        wait_until = views.turn.due_at + rules.limits.candidate_wait_ms
    row = match("N", facts)
    return None if row is None else _owe(row, TurnRef(views.turn.number), wait_until)


def _claimed_work(
    common: Facts, partition: PartitionView, now: int, rules: Rules, work: Work
) -> Obligation | None:
    margin = rules.limits.margin_ms
    claim = _standing(work.claim, "background", partition, now, work.claim.deadline, margin)
    facts = {
        **common,
        "status": "running",
        "worth": True,
        "retry_due": True,
        "stop": work.stop,
        "claim": "gone" if work.released else claim,
        "left": work.attempt < rules.limits.background_attempts,
    }
    row = match("B", facts)
    due = work.claim.deadline + margin
    return None if row is None else _owe(row, WorkRef(work.kind, work.upto), due)


def _delivery(
    common: Facts, partition: PartitionView, now: int, rules: Rules, owed: Owed
) -> Obligation | None:
    margin = rules.limits.margin_ms
    claim, due = "other", owed.retry_at
    if owed.status == "running":
        assert owed.claim is not None, "a running delivery has a claim"
        claim = _standing(owed.claim, "delivery", partition, now, owed.claim.deadline, margin)
        due = owed.claim.deadline + margin
    facts = {
        **common,
        "status": owed.status,
        "claim": claim,
        "left": owed.attempt < rules.limits.delivery_attempts,
        "retry_due": now >= owed.retry_at,
    }
    row = match("D", facts)
    return None if row is None else _owe(row, DeliveryRef(owed.number), due)


def _due_work(common: Facts, now: int, due: Due) -> Obligation | None:
    facts = {**common, "status": "due", "worth": due.worth, "retry_due": now >= due.at}
    row = match("B", facts)
    return None if row is None else _owe(row, WorkRef(due.kind, due.upto), due.at)


def _effects(
    common: Facts, views: SessionViews, partition: PartitionView, now: int, rules: Rules
) -> list[Obligation]:
    """Lanes A and C: effects that still run while the turn closes, and whether it may end."""
    closing = views.turn.closing
    if closing is None:
        return []
    owed: list[Obligation] = []
    waits = False
    margin = rules.limits.margin_ms
    generation = views.turn.generation
    if generation is not None and generation.status == "running":
        assert generation.claim is not None, "a running attempt has a claim"
        deadline = generation_deadline(generation, views.stream)
        standing = _standing(generation.claim, "models", partition, now, deadline, margin)
        chunks = views.stream.attempt == generation.attempt and _streamed(views)
        lost = "gone" if standing == "gone" else "other"
        effect = "mine" if _is_mine(generation.claim, "models", partition) else lost
        facts: Facts = {**common, "kind": "generation", "effect": effect, "chunks": chunks}
        if (row := match("A", facts)) is not None:
            owed.append(_owe(row, StepRef(views.turn.number, views.turn.step)))
        waits |= standing == "mine" or (standing == "gone" and chunks)
    for call in views.turn.calls:
        if call.status == STARTED:
            assert call.claim is not None, "a started call has a claim"
            standing = _standing(
                call.claim, "tools", partition, now, call.claim.deadline, margin
            )
            effect = "mine" if _is_mine(call.claim, "tools", partition) else "other"
            facts = {**common, "kind": "call", "effect": effect, "chunks": False}
            if (row := match("A", facts)) is not None:
                owed.append(_owe(row, CallRef(call.turn, call.step, call.index)))
            waits |= standing == "mine"
    grace_ends = closing.since + rules.limits.grace_ms
    facts = {**common, "may_end": not waits or now >= grace_ends}
    if (row := match("C", facts)) is not None:
        owed.append(_owe(row, TurnRef(views.turn.number), grace_ends))
    return owed


def _streamed(views: SessionViews) -> bool:
    return (views.stream.turn, views.stream.step) == (views.turn.number, views.turn.step)


def _is_mine(claim: Claim, role: str, partition: PartitionView) -> bool:
    """Claimed by the current holder, in this epoch or in an earlier one of the same incarnation."""
    holder = partition.holder(role)
    return holder is not None and (claim.epoch == holder.epoch or claim.owner == holder.owner)
