"""Builds, from the views, the events by which a worker claims an attempt of an effect."""

from typing import Any

from ...schemas import events as ev
from ...schemas.enums import Recovery
from ..agent import Agent
from ..fold.projections.background import ABORTED, NOTHING_LEFT, Work, find_work
from ..fold.projections.delivery import delivery_of
from ..fold.projections.partition import Holder
from ..fold.projections.turn_view import Claim, find_call
from ..fold.views import SessionViews
from ..request.build import BUILDER
from ..request.continuation import Kept
from ..tools.call import timeout_ms
from ..wake.background_tasks import is_made
from ..wake.facts import Obligation


def generation_claim(
    views: SessionViews,
    obligation: Obligation,
    agent: Agent,
    holder: Holder,
    now: int,
    request_sha256: str,
    kept: Kept | None = None,
) -> ev.GenStart | ev.GenResumed:
    """The claim of the next attempt of a model call."""
    generation = views.turn.generation
    assert generation is not None
    fields: dict[str, Any] = {
        "turn": views.turn.number,
        "step": views.turn.step,
        "attempt": generation.attempt + 1,
        "owner": holder.owner,
        "epoch": holder.epoch,
        "deadline": now + agent.limits.stall_timeout_ms,
        "called": generation.called,
        "request_sha256": request_sha256,
        "builder": BUILDER,
    }
    if obligation.owed == "GEN_START":
        return ev.GenStart(**fields)
    if kept is not None:
        return ev.GenResumed(**fields, strategy=Recovery.RESUME, prior_seq=kept.prior_seq)
    stream, here = views.stream, (views.turn.number, views.turn.step, generation.attempt)
    streamed = stream.chunks if (stream.turn, stream.step, stream.attempt) == here else 0
    return ev.GenResumed(**fields, strategy="replace", prior_seq=streamed - 1)


def tool_claim(
    views: SessionViews, obligation: Obligation, agent: Agent, holder: Holder, now: int
) -> ev.ToolStarted:
    """The claim of the next attempt of a tool call."""
    call = find_call(views.turn, *obligation.call)
    assert call is not None
    limits = agent.limits
    timeout = timeout_ms(agent.tool(call.name), limits)
    return ev.ToolStarted(
        turn=call.turn,
        step=call.step,
        index=call.index,
        attempt=call.attempt + 1,
        owner=holder.owner,
        epoch=holder.epoch,
        start_by=now + limits.start_window_ms,
        # The effect ends before the deadline, so the margin covers only the difference of clocks.
        # The call begins within one window here and one in the effects' loop, runs for its time
        # limit, and ends within the grace period.
        deadline=now + 2 * limits.start_window_ms + timeout + limits.grace_ms,
    )


def delivery_claim(
    views: SessionViews, obligation: Obligation, agent: Agent, holder: Holder, now: int
) -> ev.DeliveryStarted:
    """The claim of the next attempt of a delivery."""
    wanted = delivery_of(views.delivery, obligation.delivery.number)
    return ev.DeliveryStarted(
        turn=wanted.turn,
        step=wanted.step,
        channel=wanted.channel,
        attempt=wanted.attempt + 1,
        owner=holder.owner,
        epoch=holder.epoch,
        deadline=now + agent.limits.delivery_timeout_ms + agent.limits.grace_ms,
    )


def claim_of(views: SessionViews, obligation: Obligation) -> Claim:
    """The claim of the effect that an obligation begins or stops. It is in the views, because it
    was read back before."""
    claim: Claim | None
    match obligation.role:
        case "background":
            claim = claimed_work(views, obligation).claim
        case "delivery":
            claim = delivery_of(views.delivery, obligation.delivery.number).claim
        case "tools":
            call = find_call(views.turn, *obligation.call)
            assert call is not None
            claim = call.claim
        case _:
            assert views.turn.generation is not None
            claim = views.turn.generation.claim
    assert claim is not None, f"{obligation} without a claim"
    return claim


def claimed_work(views: SessionViews, obligation: Obligation) -> Work:
    """The claimed background work that an obligation is about."""
    work = find_work(views.background, *obligation.work)
    assert work is not None
    return work


def work_claim(
    views: SessionViews, obligation: Obligation, agent: Agent, holder: Holder, now: int
) -> ev.BackgroundStarted:
    """The claim of the next attempt of background work."""
    kind, upto = obligation.work
    work = find_work(views.background, kind, upto)
    return ev.BackgroundStarted(
        kind=kind,
        upto=upto,
        attempt=1 if work is None else work.attempt + 1,
        owner=holder.owner,
        epoch=holder.epoch,
        deadline=now + agent.limits.background_timeout_ms + agent.limits.grace_ms,
    )


def work_ended(views: SessionViews, work: Work, lost: str = "") -> ev.BackgroundDone:
    """The outcome of claimed work that need not or cannot begin. lost: the reason why the work
    cannot begin; '' if it need not begin.
    """
    # A session without messages has nothing to extract, and nothing to retry.
    made = not lost and (is_made(views, work) or (work.kind == "memory" and not work.stop))
    why = ABORTED if work.stop else lost or NOTHING_LEFT
    return ev.BackgroundDone(
        kind=work.kind, upto=work.upto, attempt=work.attempt, ok=made, why="" if made else why
    )
