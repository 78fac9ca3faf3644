"""Events: the claims, streams and outcomes of effects.

The fields are documented in avro/*.avsc; a test compares the classes with them. An event does not
repeat what its Kafka record has: the session id (the key), the position and the timestamp.
"""

from ..bounds import Bytes, Count, TimeMs, Tokens
from .parts import Body, ProposedCall, Trigger, Try, Usage, event


@event
class GenStart:
    """Attempt n of a model call is claimed."""

    turn: Count
    step: Count
    attempt: Count
    owner: str
    epoch: Count
    deadline: TimeMs
    called: bytes
    request_sha256: str
    builder: str


@event
class GenResumed:
    """A model call of a dead owner was taken over."""

    turn: Count
    step: Count
    attempt: Count
    owner: str
    epoch: Count
    deadline: TimeMs
    called: bytes
    request_sha256: str
    builder: str
    strategy: str
    prior_seq: Count


ALIVE_SEQ = -1
"""The seq of a GEN_CHUNK without text, which only shows that the stream is alive. It extends the
deadline of the claim. Readers skip it, as they skip every chunk that does not come next."""


@event
class GenChunk:
    """A piece of a streaming answer."""

    turn: Count
    step: Count
    attempt: Count
    seq: Count
    block: Count
    kind: str
    delta: str


@event
class GenComplete:
    """An attempt of a model call completed with an answer."""

    turn: Count
    step: Count
    attempt: Count
    content: Body
    calls: tuple[ProposedCall, ...] = ()
    stop_reason: str
    response_id: str
    model: str
    usage: Usage
    refusal_category: str = ""
    refusal_explanation: str = ""


@event
class GenFailed:
    """An attempt of a model call failed."""

    turn: Count
    step: Count
    attempt: Count
    content: Body
    error: str
    detail: str
    status: Count | None = None
    retry_at: TimeMs | None = None
    permanent: bool
    usage: Usage | None = None
    cause: str = ""


@event
class GenStopped:
    """An attempt of a model call was stopped."""

    turn: Count
    step: Count
    attempt: Count
    why: str
    content: Body
    usage: Usage | None = None


@event
class ToolStarted:
    """Attempt n of a tool call is claimed."""

    turn: Count
    step: Count
    index: Count
    attempt: Count
    owner: str
    epoch: Count
    start_by: TimeMs
    deadline: TimeMs


@event
class ToolResult:
    """The outcome of a tool call."""

    turn: Count
    step: Count
    index: Count
    attempt: Count
    outcome: str
    via: str
    content: Body
    bytes: Bytes
    tokens: Tokens
    left_out: Bytes
    triggers: tuple[Trigger, ...] = ()
    reminders: tuple[str, ...] = ()
    cached_at: TimeMs | None = None


@event
class ToolFailedUncertain:
    """A tool call is in doubt: it may or may not have had its effect."""

    turn: Count
    step: Count
    index: Count
    attempt: Count
    reason: str
    code: str = ""


@event
class ResultCompacted:
    """A candidate short form of a tool result."""

    call: str
    short: Body
    tokens: Tokens


@event
class ContextCompacted:
    """A candidate summary of the context."""

    upto: Count
    kept_from: Count
    summary: Body
    tokens: Tokens
    model: str


@event
class BackgroundStarted:
    """Attempt n of background work is claimed."""

    kind: str
    upto: Count
    attempt: Count
    owner: str
    epoch: Count
    deadline: TimeMs


@event
class BackgroundDone:
    """Background work ended."""

    kind: str
    upto: Count
    attempt: Count
    ok: bool
    usage: Usage | None = None
    model: str = ""
    why: str = ""
    released: bool = False
    earlier: tuple[Try, ...] = ()
    code: str = ""


@event
class DeliveryStarted:
    """Attempt n of a delivery is claimed."""

    turn: Count
    step: Count
    channel: str
    attempt: Count
    owner: str
    epoch: Count
    deadline: TimeMs


@event
class DeliveryFailed:
    """An attempt of a delivery failed, or the delivery was given up."""

    turn: Count
    step: Count
    channel: str
    attempt: Count
    error: str
    detail: str
    status: Count | None = None
    retry_at: TimeMs | None = None
    permanent: bool


@event
class GenSent:
    """The answer was delivered to the channel."""

    turn: Count
    step: Count
    channel: str
