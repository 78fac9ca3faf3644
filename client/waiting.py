"""Explains to people why a session waits: for a person, a retry or a worker.

The facts come from the turn view.
"""

import difflib
from typing import NamedTuple

from ..processors.facts.waiting_calls import asking, doubtful
from ..processors.fold.calls import CallStatus
from ..processors.fold.projections.partition import INITIAL, PartitionView, without, worker_id
from ..processors.fold.projections.turn_view import FAILED, RUNNING
from ..processors.fold.rulings.workers import step_is_due
from ..processors.fold.views import SessionViews


class Waits(NamedTuple):
    """Why a session waits; `text` is '' if unknown.

    `person`: whether a person has to act.
    `lacks`: whether a worker with the session's agent must start.
    """

    text: str
    person: bool = False
    lacks: bool = False


def who_lacks(agent: str, holders: PartitionView) -> str:
    """A text for people if the worker of the session's partition does not serve `agent`, else ''.
    """
    holder = without(holders, agent)
    if holder is None:
        return ""
    served = ", ".join(named.name for named in holder.agents)
    close = difflib.get_close_matches(agent, [named.name for named in holder.agents], 1)
    start = "Start"
    if close:
        start = f"Did you mean {close[0]}? Then open a new session with it. If not, start"
    return (
        f"no worker serves agent {agent} here: worker {worker_id(holder.owner)} has the session's "
        f"partition and serves {served}. {start} every worker with an --agent "
        f"MODULE:ATTR for each of these agents and for {agent}"
    )


def what_it_waits_for(views: SessionViews, holders: PartitionView = INITIAL) -> Waits:
    """Why the open turn does not continue. `holders`: the holders of the session's partition."""
    session_id, turn = views.session_id, views.turn
    if views.frozen is not None:
        return Waits(f"the session is frozen at offset {views.frozen.offset}: see `foldlog doctor`")
    for call in asking(turn):
        return Waits(
            f"{call.name} waits for approval: `foldlog approve {session_id} {call.key}` or `deny`",
            person=True,
        )
    for call in doubtful(turn):
        if call in turn.calls:
            return Waits(
                f"it is unknown whether {call.name} happened: `foldlog resolve {session_id} "
                f"{call.key} --happened TEXT` or `--did-not-happen`",
                person=True,
            )
    if turn.open and (lacks := who_lacks(turn.agent, holders)):
        return Waits(lacks, lacks=True)
    generation = turn.generation
    if turn.open and generation is not None:
        if generation.status is FAILED:
            return Waits(f"the model call failed ({generation.error}) and will be retried")
        if generation.status is RUNNING:
            return Waits(f"the model is answering (attempt {generation.attempt})")
    started = [call for call in turn.calls if call.status == CallStatus.STARTED]
    if started:
        return Waits(f"{started[0].name} is running ({started[0].key})")
    works = views.background.works
    is_compacting = any(work.kind != "memory" and not work.released for work in works)
    if is_compacting and step_is_due(views):  # row N2w; any other step is decided at once
        return Waits("the conversation is being summarized, so that the next request has room")
    return Waits("")
