"""`wake(views, partition, now, rules)`: the obligations of a session now, and when to check again.

For each lane, a small function computes the facts that the table uses, and looks up the row. The
functions read no clock: `now` is an argument (Unix ms).
"""

from collections.abc import Iterator
from typing import NamedTuple

from ...schemas.enums import EndReason, Role, WhenBusy
from ..fold.calls import ASKS, STARTED
from ..fold.projections.background import Work
from ..fold.projections.delivery import DeliveryStatus, Owed, next_owed
from ..fold.projections.partition import GONE, MINE, OTHER, ClaimStatus, PartitionView, claim_status
from ..fold.projections.turn_view import (
    ANSWERED,
    FAILED,
    OK,
    ONCE,
    PARTS,
    RUNNING,
    STOPPED,
    Call,
    Claim,
    Generation,
    error_to_mend,
    generation_deadline,
    is_open,
    to_rebuild,
)
from ..fold.references import (
    CallRef,
    DeliveryRef,
    RefusalRef,
    StepRef,
    Subject,
    TurnRef,
    WorkRef,
)
from ..fold.refused_content import to_leave_out
from ..fold.views import SessionViews
from .budget import Budget, Due, Rules, must_shorten
from .table import REBUILT, Action, Facts, StepDue, match

# Python 3.11 looks enum members up slowly.
NO, FIRST, CALLS_ANSWERED, STEERED, PAUSED, TOO_LONG, PART_REFUSED, ENDED = StepDue
WAIT, STEER = Action.WAIT, WhenBusy.STEER


class Obligation(NamedTuple):
    """One obligation.

    `subject`: the turn, step, call or work that the obligation is about; each property returns the
        subject with its type.
    `due`: for a wait, when to check again (Unix ms).
    """

    row: str
    lane: str
    role: Role
    owed: Action
    subject: Subject
    due: int | None = None

    @property
    def call(self) -> CallRef:
        """The subject, if it is a tool call."""
        assert isinstance(self.subject, CallRef), self
        return self.subject

    @property
    def work(self) -> WorkRef:
        """The subject, if it is background work."""
        assert isinstance(self.subject, WorkRef), self
        return self.subject

    @property
    def delivery(self) -> DeliveryRef:
        """The subject, if it is a delivery."""
        assert isinstance(self.subject, DeliveryRef), self
        return self.subject

    @property
    def refusal(self) -> RefusalRef:
        """The subject, if it is a refusal."""
        assert isinstance(self.subject, RefusalRef), self
        return self.subject


class Inputs(NamedTuple):
    """The inputs from which facts are computed.

    `common`: the facts that all subjects share.
    `may_ask`: whether a reconciler may be asked, also in a terminated session.
    """

    views: SessionViews
    partition: PartitionView
    now: int
    rules: Rules
    common: Facts
    budget: Budget
    may_ask: bool = False

    def claim_status(self, claim: Claim, role: Role, deadline: int) -> ClaimStatus:
        """The relation of the current holder to a claim that runs until a deadline."""
        holder, margin = self.partition.holder(role), self.rules.limits.margin_ms
        return claim_status(claim, holder, self.now, deadline, margin)

    def takeover_at(self, deadline: int) -> int:
        """The time from which another worker may take over a claim."""
        return deadline + self.rules.limits.margin_ms


def wake(
    views: SessionViews, partition: PartitionView, now: int, rules: Rules | None
) -> tuple[Obligation, ...]:
    """All obligations of a session. `rules` is None if the session's agent is unknown; then only
    refusals and the end of a closing turn (rows C) are owed, which need no agent."""
    turn = views.turn
    halted = views.frozen is not None or (turn.terminated and not turn.open)
    is_live = not halted and rules is not None
    common: Facts = {"gate": "live" if is_live else "halted", "closing": turn.closing is not None}
    may_ask = views.frozen is None and rules is not None
    known = rules or Rules()
    inputs = Inputs(views, partition, now, known, common, Budget(views, known), may_ask)
    owed = list(_always(inputs))
    if is_live:
        owed += _live(inputs)
    elif turn.open and not halted:
        effects = _effects(inputs._replace(common={**common, "gate": "live"}))
        owed += [one for one in effects if one is not None and one.lane == "C"]
    return tuple([obligation for obligation in owed if obligation is not None])


def owed_to_end(
    views: SessionViews, partition: PartitionView, now: int
) -> tuple[Obligation, ...]:
    """The obligations that remain if the others cannot be computed or discharged, because of a bug
    or of lost content: answers to refused producers, and the end of a closing turn."""
    turn, common = views.turn, Facts(gate="live", closing=views.turn.closing is not None)
    rules = Rules()
    inputs = Inputs(views, partition, now, rules, common, Budget(views, rules))
    owed = [_owe("R", {}, RefusalRef(refusal.offset)) for refusal in turn.refusals]
    if turn.open and views.frozen is None:
        owed += [one for one in _effects(inputs) if one is not None and one.lane == "C"]
    return tuple([obligation for obligation in owed if obligation is not None])


def _always(inputs: Inputs) -> Iterator[Obligation | None]:
    """The obligations of lanes R and T, also for a frozen session and an unknown agent."""
    turn = inputs.views.turn
    for refusal in turn.refusals:
        yield _owe("R", {}, RefusalRef(refusal.offset))
    for call in turn.calls:
        yield _tool(inputs, call)
    for call in turn.doubts:
        yield _tool(inputs, call)


def _live(inputs: Inputs) -> Iterator[Obligation | None]:
    """The obligations of the other lanes, in a live session."""
    views = inputs.views
    if views.turn.open:
        if views.turn.closing is not None:
            yield from _effects(inputs)
        yield _model(inputs)
        yield _next(inputs)
    for work in views.background.works:
        yield _claimed_work(inputs, work)
    for due in inputs.budget.works:
        yield _due_work(inputs, due)
    for delivery in next_owed(views.delivery):
        yield _delivery(inputs, delivery)


def _owe(lane: str, facts: Facts, subject: Subject, due: int | None = None) -> Obligation | None:
    """The obligation from the table, or None. `due`: when to check again, if it is a wait."""
    row = match(lane, facts)
    if row is None:
        return None
    when = due if row.owed is WAIT else None
    return Obligation(row.id, row.lane, row.role, row.owed, subject, when)


def _tool(inputs: Inputs, call: Call) -> Obligation | None:
    claim, due = OTHER, call.expires_at
    unasked = call.unasked and inputs.may_ask
    if call.claim is not None and (call.status == STARTED or unasked):
        claim = inputs.claim_status(call.claim, Role.TOOLS, call.claim.deadline)
        due = inputs.takeover_at(call.claim.deadline)
    facts = {
        **inputs.common,
        "status": call.status,
        "expired": call.status == ASKS and inputs.now >= call.expires_at,
        "claim": claim,
        "repeatable": call.effect != ONCE,
        "left": call.attempt < inputs.rules.limits.tool_attempts,
        "told": call.told,
        "unasked": unasked,
    }
    return _owe("T", facts, CallRef(call.turn, call.step, call.index), due)


def _model(inputs: Inputs) -> Obligation | None:
    turn = inputs.views.turn
    generation = turn.generation
    if generation is None:
        return None
    claim, due = OTHER, generation.retry_at
    if generation.status is RUNNING:
        claim, deadline = _running(inputs, generation)
        due = inputs.takeover_at(deadline)
    facts = {
        **inputs.common,
        "status": FAILED if generation.status is STOPPED else generation.status,
        "claim": claim,
        "left": generation.attempt < inputs.rules.limits.model_attempts,
        "permanent": generation.permanent,
        "retry_due": inputs.now >= generation.retry_at,
        "rebuilds": step_due(inputs.views, inputs.rules) in REBUILT,
    }
    return _owe("S", facts, StepRef(turn.number, turn.step), due)


def _running(inputs: Inputs, generation: Generation) -> tuple[ClaimStatus, int]:
    """The status of a running attempt's claim, and its deadline."""
    assert generation.claim is not None, "a running attempt has a claim"
    deadline = generation_deadline(generation, inputs.views.stream)
    return inputs.claim_status(generation.claim, Role.MODELS, deadline), deadline


def step_due(views: SessionViews, rules: Rules) -> StepDue:
    """Whether a step is due, and why."""
    turn = views.turn
    if turn.step == 0:
        return FIRST
    if to_rebuild(turn):
        request, fragments = views.context.request, views.context.fragments
        if to_leave_out(turn, request, fragments) is not None:
            return PART_REFUSED
        if not must_shorten(views):
            return PART_REFUSED if error_to_mend(turn) in PARTS else NO
        return TOO_LONG if rules.strategy == "compacted" else NO
    if turn.generation is None or turn.generation.status is not ANSWERED:
        return NO
    if turn.calls:
        return NO if any(is_open(call) for call in turn.calls) else CALLS_ANSWERED
    if any(waiting.when_busy == STEER for waiting in turn.queue):
        return STEERED
    return PAUSED if turn.generation.stop_reason == "pause_turn" else ENDED


def _may_leave_out(views: SessionViews) -> bool:
    """Whether content can be left out of a request that was too long and has no summary."""
    context = views.context
    left_out = to_leave_out(views.turn, context.request, context.fragments, shortened=False)
    return left_out is not None


def stop_reason(views: SessionViews, rules: Rules) -> EndReason | None:
    """The reason to end the turn instead of making another step, or None."""
    turn = views.turn
    if turn.step == 0:
        return None
    succeeded = (call.name for call in turn.calls if call.outcome == OK)
    if any(name in rules.stop_tools for name in succeeded):
        return EndReason.STOP_TOOL
    if turn.should_stop:
        return EndReason.SHOULD_STOP
    return EndReason.MAX_STEPS if turn.step >= rules.limits.steps else None


def _next(inputs: Inputs) -> Obligation | None:
    views, rules = inputs.views, inputs.rules
    due = step_due(views, rules)
    facts = {**inputs.common, "due": due, "stop": False, "over_cap": False, "may_come": False}
    wait_until = None
    if due not in (NO, ENDED):
        planned = inputs.budget.plan
        lacks = due is TOO_LONG and not planned.adopts
        over = planned.tokens > rules.limits.hard_tokens
        may_come = (over or lacks) and inputs.budget.may_still_come(inputs.now)
        if lacks and not may_come and _may_leave_out(views):
            facts["due"], lacks = PART_REFUSED, False
        facts["stop"] = stop_reason(views, rules) is not None
        facts["over_cap"], facts["may_come"] = over or lacks, may_come
        wait_until = views.turn.due_at + rules.limits.candidate_wait_ms
    return _owe("N", facts, TurnRef(views.turn.number), wait_until)


def _claimed_work(inputs: Inputs, work: Work) -> Obligation | None:
    deadline = work.claim.deadline
    claim = inputs.claim_status(work.claim, Role.BACKGROUND, deadline)
    facts = {
        **inputs.common,
        "status": RUNNING,
        "worth": True,
        "retry_due": True,
        "stop": work.stop,
        "claim": GONE if work.released else claim,
        "left": work.attempt < inputs.rules.limits.background_attempts,
    }
    return _owe("B", facts, WorkRef(work.kind, work.upto), inputs.takeover_at(deadline))


def _due_work(inputs: Inputs, due: Due) -> Obligation | None:
    retry_due = inputs.now >= due.at
    facts = {**inputs.common, "status": "due", "worth": due.worth, "retry_due": retry_due}
    return _owe("B", facts, WorkRef(due.kind, due.upto), due.at)


def _delivery(inputs: Inputs, owed: Owed) -> Obligation | None:
    claim, due = OTHER, owed.retry_at
    if owed.status is DeliveryStatus.RUNNING:
        assert owed.claim is not None, "a running delivery has a claim"
        claim = inputs.claim_status(owed.claim, Role.DELIVERY, owed.claim.deadline)
        due = inputs.takeover_at(owed.claim.deadline)
    facts = {
        **inputs.common,
        "status": owed.status,
        "claim": claim,
        "left": owed.attempt < inputs.rules.limits.delivery_attempts,
        "retry_due": inputs.now >= owed.retry_at,
    }
    return _owe("D", facts, DeliveryRef(owed.number), due)


def _effects(inputs: Inputs) -> Iterator[Obligation | None]:
    """The obligations of lanes A (effects that still run while the turn closes) and C (its end)."""
    views, turn = inputs.views, inputs.views.turn
    if turn.closing is None:
        return
    waits = False
    generation = turn.generation
    if generation is not None and generation.status is RUNNING:
        assert generation.claim is not None, "a running attempt has a claim"
        claim, _ = _running(inputs, generation)
        streamed = (views.stream.turn, views.stream.step) == (turn.number, turn.step)
        chunks = streamed and views.stream.attempt == generation.attempt
        effect = GONE if claim == GONE else OTHER
        effect = MINE if _is_mine(generation.claim, Role.MODELS, inputs.partition) else effect
        facts: Facts = {**inputs.common, "kind": "generation", "effect": effect, "chunks": chunks}
        yield _owe("A", facts, StepRef(turn.number, turn.step))
        waits |= claim == MINE or (claim == GONE and chunks)
    for call in turn.calls:
        if call.status == STARTED:
            assert call.claim is not None, "a started call has a claim"
            effect = MINE if _is_mine(call.claim, Role.TOOLS, inputs.partition) else OTHER
            facts = {**inputs.common, "kind": "call", "effect": effect, "chunks": False}
            yield _owe("A", facts, CallRef(call.turn, call.step, call.index))
            waits |= inputs.claim_status(call.claim, Role.TOOLS, call.claim.deadline) == MINE
    grace_ends = turn.closing.since + inputs.rules.limits.grace_ms
    facts = {**inputs.common, "may_end": not waits or inputs.now >= grace_ends}
    yield _owe("C", facts, TurnRef(turn.number), grace_ends)


def _is_mine(claim: Claim, role: Role, partition: PartitionView) -> bool:
    """Whether the process that now holds the partition made the claim, under its current epoch or
    an earlier one."""
    holder = partition.holder(role)
    return holder is not None and (claim.epoch == holder.epoch or claim.owner == holder.owner)
