"""Events: what the sessions role decides, and who holds a partition.

The field docs are in avro/*.avsc, a test holds both equal. The key is the session id, place and
time are the record's: neither is repeated in an event.
"""

from ..bounds import Count, TimeMs, Tokens
from .parts import AgentDigest, Body, Budget, event


@event
class PartitionTaken:
    """An owner took this partition for a role; this event's offset is its epoch."""

    role: str
    owner: str
    agents: tuple[AgentDigest, ...] = ()


@event
class OwnerGone:
    """An owner is dead for certain: it left cleanly, or its state directory's lock was free."""

    owner: str


@event
class ContextSet:
    """The static prefix of the requests that follow."""

    system: Body
    tools: Body
    sha256: str
    tokens: Tokens = 0
    tokens_old: Tokens = 0


@event
class LlmCalled:
    """A step was decided: the model is to be called with what this names."""

    turn: Count
    step: Count
    model: str
    params: bytes
    strategy: str
    budget: Budget
    includes: tuple[str, ...] = ()
    reminders: tuple[str, ...] = ()
    checkpoint: Count | None = None
    compacted_upto: Count
    prompt_tokens: Count
    context_sha256: str
    basis: Count


@event
class ToolInvoked:
    """A proposed call was decided."""

    turn: Count
    step: Count
    index: Count
    call_id: str
    name: str
    effect: str
    approval: str
    expires_at: TimeMs | None = None
    outcome: str | None = None
    content: Body | None = None
    basis: Count


@event
class ApprovalExpired:
    """Nobody decided in time."""

    call: str


@event
class TurnEnded:
    """A turn ended, and with it everything it left open."""

    turn: Count
    reason: str
    limit: Count | None = None
    used: Count | None = None
    basis: Count
    views_sha: bytes


@event
class Refused:
    """The answer owed to a producer whose event changed nothing."""

    offset: Count
    code: str
    detail: str


@event
class HumanNeeded:
    """A call needs a person."""

    call: str
    why: str


@event
class ReminderAdded:
    """A text to be said once to the model."""

    reminder_id: str
    text: str


@event
class CompactionSkipped:
    """A compaction was not worth it."""

    upto: Count
    why: str
