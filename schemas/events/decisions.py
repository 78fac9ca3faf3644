"""Events: the decisions of the sessions role, and the owners of partitions.

The fields are documented in avro/*.avsc; a test compares the classes with them. An event does not
repeat what its Kafka record has: the session id (the key), the position and the timestamp.
"""

from ..bounds import Count, TimeMs, Tokens
from .parts import AgentDigest, Body, Budget, event


@event
class PartitionTaken:
    """An owner took this partition for a role. The offset of this event is the owner's epoch."""

    role: str
    owner: str
    agents: tuple[AgentDigest, ...] = ()


@event
class OwnerGone:
    """An owner is proven dead: it left cleanly, or its state directory's lock was free."""

    owner: str


@event
class ContextSet:
    """The static prefix of the following requests was set."""

    system: Body
    tools: Body
    sha256: str
    tokens: Tokens = 0
    tokens_old: Tokens = 0


@event
class LlmCalled:
    """The next step of the turn was decided: the model is called. The fields determine the content
    of the request."""

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
    """A decision on a proposed tool call."""

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
    phase: str | None = None
    code: str = ""


@event
class ApprovalExpired:
    """A call was neither approved nor denied in time."""

    call: str


@event
class TurnEnded:
    """A turn ended. This closes everything that was still open in the turn."""

    turn: Count
    reason: str
    limit: Count | None = None
    used: Count | None = None
    basis: Count
    views_sha: bytes


@event
class Refused:
    """The answer to a producer whose event was refused and changed nothing."""

    offset: Count
    code: str
    detail: str


@event
class HumanNeeded:
    """A person must find out what happened to a call."""

    call: str
    why: str


@event
class ReminderAdded:
    """A text that the next request sends to the model, once."""

    reminder_id: str
    text: str


@event
class CompactionSkipped:
    """A compaction was skipped, because it would not have been worth its cost."""

    upto: Count
    why: str
