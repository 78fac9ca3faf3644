"""Decides what a session is doing, and why. Every list, page, export and message shows this.

Pure: computed from the session's views and the holders of its partition. JSON has the codes; people
read the words of `Situation.words`.
"""

from enum import StrEnum
from typing import NamedTuple

from ..processors.facts.waiting_calls import asking, doubtful
from ..processors.fold.calls import STARTED
from ..processors.fold.projections.partition import ANSWERS, PartitionView, without
from ..processors.fold.projections.turn_view import FAILED, RUNNING
from ..processors.fold.rulings.workers import step_is_due
from ..processors.fold.views import SessionViews
from ..schemas.enums import EndReason

RATE_LIMITS = ("rate_limit", "rate_limit_bare")
"""The errors of a model call that a rate limit refused."""

LINES_READ_MAX = 200
"""How many of the newest lines are searched for the end of the newest turn."""


class Status(StrEnum):
    """What a session is doing.

    idle: no turn runs.
    busy: a turn runs.
    asks: it waits for an approval.
    doubt: a person must report whether a call happened.
    unserved: no worker serves its agent.
    frozen: a record could not be folded.
    terminated: it was ended permanently.
    """

    IDLE = "idle"
    BUSY = "busy"
    ASKS = "asks"
    DOUBT = "doubt"
    UNSERVED = "unserved"
    FROZEN = "frozen"
    TERMINATED = "terminated"


class Reason(StrEnum):
    """Why a session is idle, busy or unserved; any other status is its own reason.

    idle: `new` had no turn of its own yet; `done`, `stopped`, `over_budget` and `failed` tell how
        the newest turn ended.
    busy: `model` and `tool` run; `worker` waits for a worker; `retry` and `rate_limit` wait for
        the next attempt of the model call; `summary` waits for room in the request; `closing` was
        stopped, and is ending.
    unserved: the partition was `not_taken` by any worker; its worker has ended (`worker_ended`), or
        serves only `other_agents`.
    """

    OWN = ""
    NEW = "new"
    DONE = "done"
    STOPPED = "stopped"
    OVER_BUDGET = "over_budget"
    FAILED = "failed"
    MODEL = "model"
    TOOL = "tool"
    WORKER = "worker"
    RETRY = "retry"
    RATE_LIMIT = "rate_limit"
    SUMMARY = "summary"
    CLOSING = "closing"
    NOT_TAKEN = "not_taken"
    WORKER_ENDED = "worker_ended"
    OTHER_AGENTS = "other_agents"


FAILED_ENDS = ("failed", "max_steps", "max_tokens", "budget_exceeded", "refusal")
"""Reasons for the end of a turn that are errors for an operator."""

ENDS: dict[str, Reason] = {
    **dict.fromkeys(FAILED_ENDS, Reason.FAILED),
    EndReason.BUDGET_EXCEEDED: Reason.OVER_BUDGET,
    EndReason.CANCELLED: Reason.STOPPED,
    EndReason.INTERRUPTED: Reason.STOPPED,
}
"""The reasons of idle sessions by the end of the newest turn; any other end is `done`."""

FAILURES = (Reason.FAILED, Reason.OVER_BUDGET)
"""The reasons of an idle session that lists show as failed."""


WORDS: dict[str, str] = {
    Status.IDLE: "idle",
    Status.BUSY: "working",
    Status.ASKS: "waits for approval",
    Status.DOUBT: "call in doubt",
    Status.UNSERVED: "no worker",
    Status.FROZEN: "frozen",
    Status.TERMINATED: "ended",
}
"""The words for each status."""

REASON_WORDS: dict[str, str] = {
    Reason.FAILED: "failed",
    Reason.STOPPED: "stopped",
    Reason.OVER_BUDGET: "over budget",
    Reason.WORKER: "waits for worker",
    Reason.RETRY: "tries again",
    Reason.RATE_LIMIT: "rate limit",
    Reason.SUMMARY: "summarizing",
    Reason.CLOSING: "stopping",
}
"""The words for reasons that say more than the status."""


class Situation(NamedTuple):
    """The status of a session with its reason. `until`: when it changes by itself (Unix ms): the
    next attempt of the model call, or the end of an approval."""

    status: Status
    reason: Reason = Reason.OWN
    until: int | None = None

    @property
    def words(self) -> str:
        """What the session is doing, for people."""
        return REASON_WORDS.get(self.reason, WORDS[self.status])

    @property
    def has_failed(self) -> bool:
        """Whether lists show the session as failed: it is idle, and its newest turn failed."""
        return self.status is Status.IDLE and self.reason in FAILURES


def first_status(
    *, frozen: bool, doubt: bool, ended: bool, asks: bool, works: bool, unserved: bool
) -> Status:
    """The status that is shown if several apply."""
    if frozen:
        return Status.FROZEN
    if doubt:
        return Status.DOUBT
    if ended:
        return Status.TERMINATED
    if asks:
        return Status.ASKS
    if not works:
        return Status.IDLE
    return Status.UNSERVED if unserved else Status.BUSY


def why_unserved(agent: str, holders: PartitionView | None) -> Reason | None:
    """Why no worker serves the agent's sessions of a partition; None if one does, or if the holders
    are unknown (None)."""
    if holders is None:
        return None
    found = [holders.holder(role) for role in ANSWERS]
    if any(holder is not None and holder.owner in holder.gone for holder in found):
        return Reason.WORKER_ENDED
    if without(holders, agent) is not None:
        return Reason.OTHER_AGENTS
    return Reason.NOT_TAKEN if None in found else None


def situation_of(views: SessionViews, holders: PartitionView | None = None) -> Situation:
    """What a session is doing, and why. `holders`: the holders of its partition, None if they are
    unknown; then the status is never unserved."""
    turn, asks, of_turn = views.turn, asking(views.turn), turn_situation(views, holders)
    status = first_status(
        frozen=views.frozen is not None, doubt=bool(doubtful(turn)),
        ended=turn.terminated and not turn.open, asks=bool(asks), works=turn.open,
        unserved=of_turn.status is Status.UNSERVED,
    )  # fmt: skip
    if status is of_turn.status:
        return of_turn
    if status is Status.ASKS:
        ends = [call.expires_at for call in asks if call.expires_at]
        return Situation(status, until=min(ends, default=None))
    return Situation(status)


def turn_situation(views: SessionViews, holders: PartitionView | None = None) -> Situation:
    """What the newest turn is doing, apart from what a person must do: idle, busy or unserved."""
    turn = views.turn
    if not turn.open:
        return Situation(Status.IDLE, _how_it_ended(views))
    lacks = why_unserved(turn.agent, holders)
    if lacks is Reason.NOT_TAKEN and turn.generation is not None:
        lacks = None  # a worker wrote the step: this log lacks the record that names the worker
    if lacks is not None:
        return Situation(Status.UNSERVED, lacks)
    return _busy(views)


def _busy(views: SessionViews) -> Situation:
    turn, generation = views.turn, views.turn.generation
    until, reason = None, Reason.WORKER
    works = views.background.works
    if turn.closing is not None:
        reason = Reason.CLOSING
    elif generation is not None and generation.status is FAILED and not generation.permanent:
        reason = Reason.RATE_LIMIT if generation.error in RATE_LIMITS else Reason.RETRY
        until = generation.retry_at or None
    elif generation is not None and generation.status is RUNNING:
        reason = Reason.MODEL
    elif any(call.status is STARTED for call in turn.calls):
        reason = Reason.TOOL
    elif any(work.kind != "memory" and not work.released for work in works) and step_is_due(views):
        reason = Reason.SUMMARY  # row N2w; any other step is decided at once
    return Situation(Status.BUSY, reason, until)


def _how_it_ended(views: SessionViews) -> Reason:
    lines = views.transcript.lines
    inherited = -1 if views.origin is None else views.origin.opened
    for line in reversed(lines.since(max(0, len(lines) - LINES_READ_MAX))):
        if line.offset <= inherited:
            return Reason.NEW
        if line.kind == "ended":
            return ENDS.get(line.name, Reason.DONE)
    return Reason.DONE if views.turn.number else Reason.NEW
