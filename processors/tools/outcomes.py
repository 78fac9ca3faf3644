"""Builds the outcomes of tool calls, and defines the claim of a tool call.

Code that must end a call without running it (a late claim, attempts used up) uses these functions,
so that the same case always has the same text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ...schemas.enums import Outcome, Via
from ...schemas.events import ToolFailedUncertain, ToolResult
from ...schemas.events.parts import Body, Trigger
from ...schemas.ids import call_key
from ...schemas.tokens import estimate
from .results import Shaped

DETAIL_CHARS_MAX = 2_000  # limit of an exception's text, which may contain a whole response body


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolClaim:
    """A claim that was read back and accepted. effect, approval: from TOOL_INVOKED.

    args_sha256: the hash of the raw arguments in the decision (TOOL_INVOKED).
    timeout_ms: the time that was left until TOOL_STARTED's deadline when this object was made; the
        run may take no longer.
    user_id, project_id: the session's, at the time of the claim.
    claim_offset: the claim's offset in the session's partition.
    refs: the stored results that the call may read.
    """

    session_id: str
    turn: int
    step: int
    index: int
    attempt: int
    name: str
    effect: str
    approval: str
    args_sha256: str
    timeout_ms: int
    user_id: str = ""
    project_id: str | None = None
    claim_offset: int | None = None
    refs: frozenset[str] = frozenset()

    @property
    def call_key(self) -> str:
        """The key of the call, TURN.STEP.INDEX."""
        return call_key(self.turn, self.step, self.index)


class Doubt(StrEnum):
    """How a doubt arose. PROCESS_DIED: the process of an isolated tool; WORKER_DIED: nothing could
    say whether the call happened."""

    RAISED = "raised"
    ABORTED = "aborted"
    TIMED_OUT = "timed_out"
    PROCESS_DIED = "process_died"
    TASK_DIED = "task_died"
    WORKER_DIED = "worker_died"


def not_run(claim: ToolClaim, why: str) -> ToolResult:
    """The outcome of an attempt that did not begin (an
    earlier attempt of the call may have begun)."""
    if claim.attempt > 1:
        text = f"not run again: {why}. An earlier attempt may have run."
        return result(claim, Outcome.ERROR, short(text))
    return result(claim, Outcome.NOT_RUN, short(f"not run: {why}"))


def gave_up(claim: ToolClaim, why: str) -> ToolResult:
    """The outcome of a pure or idempotent call whose attempts are used up."""
    return result(claim, Outcome.ERROR, short(f"given up after attempt {claim.attempt}: {why}"))


def uncertain(claim: ToolClaim, code: Doubt, reason: str) -> ToolFailedUncertain:
    """The outcome of a call that may or may not have had its effect."""
    return ToolFailedUncertain(
        turn=claim.turn,
        step=claim.step,
        index=claim.index,
        attempt=claim.attempt,
        reason=_cut(reason),
        code=code,
    )


def result(
    claim: ToolClaim,
    outcome: Outcome,
    shaped: Shaped,
    *,
    via: Via = Via.TOOL,
    triggers: Sequence[Trigger] = (),
    reminders: Sequence[str] = (),
    cached_at: int | None = None,
) -> ToolResult:
    """The result of a call, with the content that the model sees."""
    return ToolResult(
        turn=claim.turn,
        step=claim.step,
        index=claim.index,
        attempt=claim.attempt,
        outcome=outcome,
        via=via,
        content=shaped.content,
        bytes=shaped.bytes,
        tokens=shaped.tokens,
        left_out=shaped.left_out,
        triggers=tuple(triggers),
        reminders=tuple(reminders),
        cached_at=cached_at,
    )


def short(text: str) -> Shaped:
    """A text that foldlog itself wrote, as content of a result. It is cut to a fixed length, so the
    agent's limit of result tokens is not applied.
    """
    text = _cut(text)
    data = text.encode()
    return Shaped(Body(inline=data), len(data), estimate(text), 0)


def _cut(text: str) -> str:
    text = text if len(text) <= DETAIL_CHARS_MAX else text[: DETAIL_CHARS_MAX - 3] + "..."
    return text.encode("utf-8", "replace").decode()
