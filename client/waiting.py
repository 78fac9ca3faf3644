"""Explains to people why a session waits: for a person, a retry or a worker.

The facts come from the turn view.
"""

import difflib
import time
from typing import NamedTuple

from ..processors.facts.waiting_calls import asking, doubtful
from ..processors.fold.calls import CallStatus
from ..processors.fold.projections.partition import ANSWERS, PartitionView, without, worker_id
from ..processors.fold.projections.transcript import Line
from ..processors.fold.views import SessionViews
from .status import Reason, Status, turn_situation, why_unserved

HOW_TO_START = (
    "`foldlog.Worker([agent])`, `foldlog worker --agent MODULE:ATTR` or `foldlog dev`, or find the "
    "reason with `foldlog doctor`"
)
"""How a program, or a person, starts a worker with an agent."""


class Waits(NamedTuple):
    """Why a session waits; `text` is '' if unknown.

    `person`: whether a person has to act.
    `lacks`: whether a worker with the session's agent must start.
    """

    text: str
    person: bool = False
    lacks: bool = False


def note_doubt(lines: dict[str, Line], line: Line) -> None:
    """Keep the line that has the reason of each doubt, by the key of its call, while the lines of a
    transcript are read in order."""
    if line.kind == "doubt":
        lines.setdefault(line.call, line)
    elif line.kind in ("result", "resolved"):
        lines.pop(line.call, None)


def lines_of_doubts(views: SessionViews) -> dict[str, Line]:
    """The line that has the reason of each doubt, by the key of its call."""
    lines: dict[str, Line] = {}
    for line in views.transcript.lines if doubtful(views.turn) else ():
        note_doubt(lines, line)
    return lines


def who_lacks(agent: str, holders: PartitionView | None) -> str:
    """A text for people if no worker serves `agent` in the session's partition, else ''."""
    reason = why_unserved(agent, holders)
    if holders is None or reason is None:
        return ""
    what = f"no worker serves agent {agent} here"
    remedy = f"Start a worker with agent {agent}: {HOW_TO_START}"
    if reason is Reason.NOT_TAKEN:
        return f"no worker has responded yet: none has taken the session's partition. {remedy}"
    found = (holders.holder(role) for role in ANSWERS)
    if reason is Reason.WORKER_ENDED:
        gone = next(holder for holder in found if holder and holder.owner in holder.gone)
        return f"{what}: worker {worker_id(gone.owner)} had its partition and has ended. {remedy}"
    holder = without(holders, agent)
    assert holder is not None, "a holder serves other agents"
    served = ", ".join(named.name for named in holder.agents)
    close = difflib.get_close_matches(agent, [named.name for named in holder.agents], 1)
    start = "Start"
    if close:
        start = f"Did you mean {close[0]}? Then open a new session with it. If not, start"
    return (
        f"{what}: worker {worker_id(holder.owner)} has the session's partition and serves {served}."
        f" {start} every worker with an --agent MODULE:ATTR for each of these agents and for "
        f"{agent}, or with all of them in `foldlog.Worker([...])`"
    )


def what_it_waits_for(views: SessionViews, holders: PartitionView | None = None) -> Waits:
    """Why the open turn does not continue. `holders`: the holders of the session's partition, None
    if they are unknown."""
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
    status, reason, until = turn_situation(views, holders)
    if status is Status.UNSERVED:
        return Waits(who_lacks(turn.agent, holders), lacks=True)
    generation = turn.generation
    match reason:
        case Reason.RETRY | Reason.RATE_LIMIT if generation is not None:
            at = time.strftime(" at %H:%M:%S", time.localtime(until / 1000)) if until else ""
            return Waits(f"the model call failed ({generation.error}) and will be retried{at}")
        case Reason.MODEL if generation is not None:
            return Waits(f"the model is answering (attempt {generation.attempt})")
        case Reason.TOOL:
            call = next(call for call in turn.calls if call.status == CallStatus.STARTED)
            return Waits(f"{call.name} is running ({call.key})")
        case Reason.SUMMARY:
            return Waits("the conversation is being summarized, so that the next request has room")
        case Reason.CLOSING:
            return Waits("the turn was stopped, and is ending")
    return Waits("")
