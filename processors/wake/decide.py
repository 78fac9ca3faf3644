"""Builds the events that discharge obligations. Pure: they depend on the views and the agent.

Each function builds the events of one Action of WAKE. A test folds the events at the views from
which they were built, and checks that the fold accepts them and that the row of WAKE no longer
matches.
"""

from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple, assert_never

from ...schemas import events as ev
from ...schemas.enums import Approval, Effect, EndReason, Outcome, WhenBusy
from ...schemas.events.parts import ReadBlob
from ...schemas.tokens import NEW, OLD, estimate, family_of
from ..agent import Agent
from ..fold.calls import DOUBT
from ..fold.cut_points import is_fixed
from ..fold.grants import granting
from ..fold.projections.background import find_work
from ..fold.projections.delivery import delivery_of
from ..fold.projections.prefixes import prefix_of
from ..fold.projections.turn_view import Call, find_call, part_refused
from ..fold.transitions import WRONG_PHASE
from ..fold.views import SessionViews
from ..request.blocks import whole_of
from ..request.layers import MEMORY, NO_LAYERS, Layers
from ..request.prefix import assemble, layers_of
from ..tools.tiers import resolve
from ..tools.tool import check_args
from .budget import Plan, Rules, held, is_cold, plan
from .facts import Obligation, stop_reason
from .phase_limits import forbids, phase_reminder, why_forbidden
from .table import Action
from .work_ends import WorkEnd, in_words, without_result

StoreBody = Callable[[bytes, str], ev.Body]
ReadLayers = Callable[[Agent, SessionViews], Layers]
ReadTodos = Callable[[Agent, SessionViews], str]
Decision = (
    ev.ApprovalExpired
    | ev.BackgroundDone
    | ev.CompactionSkipped
    | ev.ContextSet
    | ev.DeliveryFailed
    | ev.HumanNeeded
    | ev.LlmCalled
    | ev.Refused
    | ev.ReminderAdded
    | ev.ToolInvoked
    | ev.TurnEnded
)
END_REASONS = {  # reason of TURN_ENDED by the provider's stop_reason
    "end_turn": EndReason.END_TURN,
    "stop_sequence": EndReason.END_TURN,
    "max_tokens": EndReason.MAX_TOKENS,
    "refusal": EndReason.REFUSAL,
    "model_context_window_exceeded": EndReason.BUDGET_EXCEEDED,
}


def rules_of(agent: Agent) -> Rules:
    """The part of an agent that WAKE reads."""
    return Rules(
        agent.limits,
        frozenset(tool.name for tool in agent.tools if tool.stops),
        agent.strategy,
        is_fixed(agent.params_json()),
        agent.memory,
        family_of(agent.model),
    )


def no_layers(agent: Agent, views: SessionViews) -> Layers:
    """The ReadLayers function of an installation without instruction files and memory."""
    return NO_LAYERS


def no_todos(agent: Agent, views: SessionViews) -> str:
    """The ReadTodos function of an installation without memory."""
    return ""


class Sources(NamedTuple):
    """The sources outside the log that a decision may read: blobs, files and memory for a new
    prefix, and the todos of a project. Text from these sources is written to the log before a model
    gets it.
    """

    store_body: StoreBody
    read_blob: ReadBlob
    read_layers: ReadLayers
    read_todos: ReadTodos = no_todos


def decide(
    owed: Obligation, views: SessionViews, agent: Agent | None, sources: Sources
) -> list[Decision]:
    """The events that discharge an obligation, in order. worker/actions.py handles claims, outcomes
    of effects and waits, because they need more than the views."""
    match owed.owed:
        case Action.REFUSED:
            return [_refused(owed, views)]
        case Action.HUMAN_NEEDED:
            return [_human_needed(owed, views)]
        case Action.TURN_ENDED:
            return _end_of_turn(owed, views, agent, sources)
        case Action.TOOL_INVOKED:
            return [_tool_invoked(_call(owed, views), views, _known(agent), sources.read_blob)]
        case Action.APPROVAL_EXPIRED:
            return [ev.ApprovalExpired(call=owed.call.key)]
        case Action.LLM_CALLED:
            return _llm_called(views, _known(agent), sources)
        case Action.COMPACTION_SKIPPED:
            return [ev.CompactionSkipped(upto=owed.work.upto, why=in_words(WorkEnd.TOO_LITTLE))]
        case Action.BACKGROUND_DONE:
            return [_given_up(owed, views)]
        case Action.DELIVERY_FAILED:
            return [_undelivered(owed, views)]
        case (
            Action.BACKGROUND_STARTED
            | Action.DELIVERY_STARTED
            | Action.GEN_RESUMED
            | Action.GEN_START
            | Action.GEN_STOPPED
            | Action.TOOL_FAILED_UNCERTAIN
            | Action.TOOL_RESULT
            | Action.TOOL_STARTED
            | Action.ABORT
            | Action.BEGIN
            | Action.WAIT
        ):
            raise AssertionError(f"no decision for {owed}")
        case _:
            assert_never(owed.owed)


def _known(agent: Agent | None) -> Agent:
    assert agent is not None, "without its agent a session owes answers and the end of a turn"
    return agent


def _end_of_turn(
    owed: Obligation, views: SessionViews, agent: Agent | None, sources: Sources
) -> list[Decision]:
    if owed.lane == "C":
        assert views.turn.closing is not None
        return [_turn_ended(views, views.turn.closing.reason)]
    if owed.row == "N2":
        return _over_cap(owed, views, _known(agent), sources)
    return [_ended_by_itself(owed, views, _known(agent))]


def _call(owed: Obligation, views: SessionViews) -> Call:
    call = find_call(views.turn, *owed.call)
    assert call is not None
    return call


def _refused(owed: Obligation, views: SessionViews) -> ev.Refused:
    refusal = next(r for r in views.turn.refusals if r.offset == owed.refusal.offset)
    return ev.Refused(offset=refusal.offset, code=refusal.code, detail=refusal.detail)


def _human_needed(owed: Obligation, views: SessionViews) -> ev.HumanNeeded:
    call = _call(owed, views)
    if call.status == DOUBT:
        why = f"find out whether {call.name} had its effect"
    else:
        report = "its reconciler said did_not_happen"
        report = f"a person said {call.human}" if call.human else report
        why = f"a late result of {call.name} says {call.outcome}, {report}"
    return ev.HumanNeeded(call=call.key, why=why)


def _given_up(owed: Obligation, views: SessionViews) -> ev.BackgroundDone:
    work = find_work(views.background, *owed.work)
    assert work is not None
    code = WorkEnd.ABORTED if work.stop else WorkEnd.ATTEMPTS_USED_UP
    return without_result(work.kind, work.upto, work.attempt, code)


def _undelivered(owed: Obligation, views: SessionViews) -> ev.DeliveryFailed:
    wanted = delivery_of(views.delivery, owed.delivery.number)
    last = f"; the last: {wanted.error}" if wanted.error else ""
    return ev.DeliveryFailed(
        turn=wanted.turn,
        step=wanted.step,
        channel=wanted.channel,
        attempt=wanted.attempt,
        error="given_up",
        detail=f"its {wanted.attempt} attempts are used up{last}"[:500],
        permanent=True,
    )


def _tool_invoked(
    call: Call, views: SessionViews, agent: Agent, read_blob: ReadBlob
) -> ev.ToolInvoked:
    def invoked(
        effect: str,
        approval: Approval,
        outcome: Outcome | None = None,
        text: str = "",
        code: str = "",
    ) -> ev.ToolInvoked:
        return ev.ToolInvoked(
            turn=call.turn,
            step=call.step,
            index=call.index,
            call_id=call.call_id,
            name=tool.name if tool else call.name,  # the real tool, see tiers.py
            effect=effect,
            approval=approval,
            expires_at=expires_at if approval == Approval.ASK else None,
            outcome=outcome,
            content=ev.Body(inline=text.encode()) if outcome else None,
            basis=views.turn.basis,
            phase=phase if tool and agent.depends_on_phase(tool) else None,
            code=code,
        )

    phase = views.state.phase
    expires_at = call.proposed_at + agent.limits.approval_expiry_ms
    args = read_blob(call.args.ref) if call.args.ref is not None else call.args.inline or b""
    tool, why = resolve(agent, call.name, args)
    if tool is None:
        return invoked(Effect.ONCE, Approval.NONE, Outcome.ERROR, why)
    if forbids(phase, tool):
        text = why_forbidden(phase, tool)
        return invoked(tool.effect, Approval.NONE, Outcome.ERROR, text, WRONG_PHASE)
    error = call.args_error or check_args(tool, args)
    if error is not None:
        return invoked(tool.effect, Approval.NONE, Outcome.ERROR, error)
    approval = agent.approval(tool.name, phase)
    match approval:
        case Approval.DENY:
            text = f"A rule denies {tool.name}: it was not run."
            return invoked(tool.effect, approval, Outcome.ERROR, text)
        case Approval.ASK:
            if granting(views.turn.grants, tool.name, call.args_sha256, args):
                approval = Approval.NONE
        case Approval.NONE:
            pass
        case _:
            assert_never(approval)
    return invoked(tool.effect, approval)


def _ended_by_itself(
    owed: Obligation, views: SessionViews, agent: Agent, tokens: int = 0
) -> ev.TurnEnded:
    """The end of a turn that was not aborted."""
    turn = views.turn
    if owed.lane == "S" or (owed.row == "N2" and part_refused(turn)):
        used = turn.generation.attempt if turn.generation else 0
        return _turn_ended(views, EndReason.FAILED, agent.limits.model_attempts, used)
    if owed.row == "N2":
        return _turn_ended(views, EndReason.BUDGET_EXCEEDED, agent.limits.hard_tokens, tokens)
    if owed.row == "N1s":
        reason = stop_reason(views, rules_of(agent))
        assert reason is not None, "a stop condition holds"
        steps = (agent.limits.steps, turn.step) if reason is EndReason.MAX_STEPS else ()
        return _turn_ended(views, reason, *steps)
    assert turn.generation is not None
    return _turn_ended(views, END_REASONS.get(turn.generation.stop_reason, EndReason.END_TURN))


def _turn_ended(
    views: SessionViews, reason: EndReason, limit: int | None = None, used: int | None = None
) -> ev.TurnEnded:
    turn = views.turn
    return ev.TurnEnded(
        turn=turn.number,
        reason=reason,
        limit=limit,
        used=used,
        basis=turn.basis,
        views_sha=turn.basis_sha,
    )


def context_set_of(
    agent: Agent, store_body: StoreBody, layers: Layers = NO_LAYERS
) -> ev.ContextSet:
    """The static prefix of the agent's requests. It contains no time, id or counter."""
    system, tools = assemble(agent, layers)
    named = sha256(len(system).to_bytes(8, "big") + system + tools).hexdigest()
    return ev.ContextSet(
        system=store_body(system, "application/json"),
        tools=store_body(tools, "application/json"),
        sha256=named,
        tokens=_weight(system, NEW) + _weight(tools, NEW),
        tokens_old=_weight(system, OLD) + _weight(tools, OLD),
    )


@lru_cache(maxsize=32)  # every turn assembles the prefix again, mostly unchanged
def _weight(text: bytes, family: str) -> int:
    return estimate(text, family)


def _context_set(
    views: SessionViews, agent: Agent, sources: Sources, moves: bool
) -> tuple[str, list[ev.ContextSet]]:
    """The sha256 of the next request's prefix, and a CONTEXT_SET if that prefix is not in force.

    A running turn keeps its prefix (see also `held`). An edited file takes effect with the next
    turn. Any turn may change memory. New memory takes effect only when a new prefix costs nothing:
    when no request has contained the prefix in force, when the provider's cache of it has expired,
    or when the next request does not begin with the last one anyway, for example because it adopts
    a compaction (`moves`).
    """
    known = views.context.prefix_sha
    if known and (views.turn.step > 0 or held(views, rules_of(agent)) is not None):
        return known, []
    layers = sources.read_layers(agent, views)
    if known and views.context.request is not None and not moves and not is_cold(views):
        current = layers_of(whole_of(views.context.prefixes[-1].system, sources.read_blob))
        memory = [layer for layer in (current or NO_LAYERS).texts if layer.name in MEMORY]
        files = [layer for layer in layers.texts if layer.name not in MEMORY]
        layers = Layers((*files, *memory))
    prefix = context_set_of(agent, sources.store_body, layers)
    return prefix.sha256, [] if prefix.sha256 == known else [prefix]


def _todos(views: SessionViews, agent: Agent, sources: Sources) -> ev.ReminderAdded | None:
    """A reminder with the open todos, for the first step of a turn; None if the model has seen this
    very list.
    """
    text = sources.read_todos(agent, views) if views.turn.step == 0 else ""
    reminder_id = f"todos-{sha256(text.encode()).hexdigest()[:16]}"
    if not text or reminder_id in views.turn.reminder_ids:
        return None
    return ev.ReminderAdded(reminder_id=reminder_id, text=text)


def _with_prefix(
    views: SessionViews, agent: Agent, sources: Sources
) -> tuple[Plan, str, list[ev.ContextSet]]:
    """The plan of the next request, the sha256 of its prefix, and a CONTEXT_SET if it needs one."""
    rules = rules_of(agent)
    planned = plan(views, rules)
    moves = planned.adopts or planned.tokens > rules.limits.hard_tokens
    prefix_sha, events = _context_set(views, agent, sources, moves)
    for event in events:
        planned = plan(views, rules, prefix_of(event))
    return planned, prefix_sha, events


def _over_cap(
    owed: Obligation, views: SessionViews, agent: Agent, sources: Sources
) -> list[Decision]:
    """The events of row N2: the turn ends, unless a new prefix makes the request short enough."""
    planned, _, events = _with_prefix(views, agent, sources)
    if events and planned.tokens <= agent.limits.hard_tokens:
        return [*events]
    return [*events, _ended_by_itself(owed, views, agent, planned.tokens)]


def _llm_called(views: SessionViews, agent: Agent, sources: Sources) -> list[Decision]:
    turn = views.turn
    rules = rules_of(agent)
    before = held(views, rules)
    planned, prefix_sha, prefixes = _with_prefix(views, agent, sources)
    events: list[Decision] = [*prefixes]
    if events and planned.tokens > rules.limits.hard_tokens:  # WAKE decides again
        return events
    steers = tuple(w.message_id for w in turn.queue if w.when_busy == WhenBusy.STEER)
    includes = turn.owned if turn.step == 0 else steers
    reminders = tuple(reminder.reminder_id for reminder in turn.reminders)
    tokens = planned.tokens
    for notice in (phase_reminder(views, agent, planned.checkpoint), _todos(views, agent, sources)):
        weight = 0 if notice is None else estimate(notice.text, rules.family)
        if notice is not None and tokens + weight <= rules.limits.hard_tokens:  # both are optional
            tokens += weight
            events.append(notice)
            reminders += (notice.reminder_id,)
    events.append(
        ev.LlmCalled(
            turn=turn.number,
            step=turn.step + 1,
            model=agent.model if before is None else before.model,
            params=agent.params_json() if before is None else before.params,
            strategy=planned.strategy,
            budget=ev.Budget(
                soft_tokens=agent.limits.soft_tokens, hard_tokens=agent.limits.hard_tokens
            ),
            includes=includes,
            reminders=reminders,
            checkpoint=planned.checkpoint,
            compacted_upto=planned.compacted_upto,
            prompt_tokens=tokens,
            context_sha256=prefix_sha,
            basis=turn.basis,
        )
    )
    return events
