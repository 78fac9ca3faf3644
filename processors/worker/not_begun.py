"""Builds the outcomes of effects that were claimed but never began, from the claim alone."""

from typing import Any

from ...schemas import events as ev
from ...schemas.tokens import estimate
from ..fold.projections.delivery import Owed, delivery_of
from ..fold.projections.turn_view import Call, TurnView, find_call
from ..fold.views import SessionViews
from ..wake.facts import Obligation
from .claims import claimed_work
from .ports import BeginGeneration, BeginTool

NOT_BEGUN = "not_begun"  # error of a claim that was read back too late


def generation_stopped(turn: TurnView) -> ev.GenStopped:
    """The outcome of a claimed model call whose turn ended before the call began."""
    assert turn.generation is not None
    return ev.GenStopped(
        turn=turn.number,
        step=turn.step,
        attempt=turn.generation.attempt,
        why="the turn ended before the call began",
        content=ev.Body(inline=b"[]"),
    )


def outcome_of_late_claim(views: SessionViews, obligation: Obligation, why: str) -> Any:
    """The outcome of an effect that does not begin because its claim was read back too late. For a
    tool call, this outcome is final; any other effect gets another attempt at once.
    """
    match obligation.role:
        case "background":
            work = claimed_work(views, obligation)
            return work_not_begun(work.kind, work.upto, work.attempt, why)
        case "delivery":
            return delivery_not_begun(delivery_of(views.delivery, obligation.delivery.number), why)
        case "tools":
            call = find_call(views.turn, *obligation.call)
            assert call is not None
            return tool_not_begun(call, why)
    turn = views.turn
    assert turn.generation is not None
    return generation_not_begun(turn.number, turn.step, turn.generation.attempt, why)


def generation_not_begun(turn: int, step: int, attempt: int, why: str) -> ev.GenFailed:
    """The outcome of a model call that was claimed but never sent."""
    detail = f"{why}; nothing was sent and nothing billed"
    return _gen_failed(turn, step, attempt, NOT_BEGUN, detail, permanent=False)


def work_not_begun(kind: str, upto: int, attempt: int, why: str) -> ev.BackgroundDone:
    """The outcome of background work that was claimed but not begun. Another attempt follows."""
    return ev.BackgroundDone(
        kind=kind, upto=upto, attempt=attempt, ok=False, why=why, released=True
    )


def delivery_not_begun(owed: Owed, why: str) -> ev.DeliveryFailed:
    """The outcome of a delivery that was claimed but not begun."""
    return ev.DeliveryFailed(
        turn=owed.turn,
        step=owed.step,
        channel=owed.channel,
        attempt=owed.attempt,
        error=NOT_BEGUN,
        detail=why,
        permanent=False,
    )


def tool_not_begun(call: Call, why: str, *, may_have_run: bool = False) -> ev.ToolResult:
    """The outcome of a claimed tool call whose claimed attempt did not begin: `error` if this or an
    earlier attempt may have run, else `not_run`.
    """
    may_have_run |= call.attempt > 1 and call.effect != "once"
    text = f"An earlier attempt may have run: {why}." if may_have_run else f"Not run: {why}."
    return _tool_result(call, "error" if may_have_run else "not_run", text)


def failed(
    begin: BeginGeneration, error: str, detail: str, *, permanent: bool = True
) -> ev.GenFailed:
    """The outcome of a model call that failed before anything was sent."""
    place = (begin.turn, begin.step, begin.attempt)
    return _gen_failed(*place, error, detail, permanent=permanent)


def _gen_failed(
    turn: int, step: int, attempt: int, error: str, detail: str, *, permanent: bool
) -> ev.GenFailed:
    return ev.GenFailed(
        turn=turn,
        step=step,
        attempt=attempt,
        content=ev.Body(inline=b"[]"),
        error=error,
        detail=detail[:2_000],
        permanent=permanent,
    )


def no_tool(begin: BeginTool) -> ev.ToolResult:
    """The outcome of a call whose tool the agent no longer has."""
    text = f"The agent {begin.agent.name} has no tool {begin.call.name} any more: it was not run."
    return _tool_result(begin.call, "error", text)


def _tool_result(call: Call, outcome: str, text: str) -> ev.ToolResult:
    return ev.ToolResult(
        turn=call.turn,
        step=call.step,
        index=call.index,
        attempt=call.attempt,
        outcome=outcome,
        via="tool",
        content=ev.Body(inline=text.encode()),
        bytes=len(text),
        tokens=estimate(text),
        left_out=0,
    )
