"""Events: what effects claim, stream and report.

The field docs are in avro/*.avsc, a test holds both equal. The key is the session id, place and
time are the record's: neither is repeated in an event.
"""

from .parts import Body, ProposedCall, Trigger, Try, Usage, event


@event
class GenStart:
    """Attempt n of a model call is claimed."""

    turn: int
    step: int
    attempt: int
    owner: str
    epoch: int
    deadline: int
    called: bytes
    request_sha256: str
    builder: str


@event
class GenResumed:
    """A model call whose owner is gone was taken over."""

    turn: int
    step: int
    attempt: int
    owner: str
    epoch: int
    deadline: int
    called: bytes
    request_sha256: str
    builder: str
    strategy: str
    prior_seq: int


@event
class GenChunk:
    """A piece of a streaming answer."""

    turn: int
    step: int
    attempt: int
    seq: int
    block: int
    kind: str
    delta: str


@event
class GenComplete:
    """The model finished."""

    turn: int
    step: int
    attempt: int
    content: Body
    calls: tuple[ProposedCall, ...] = ()
    stop_reason: str
    response_id: str
    model: str
    usage: Usage


@event
class GenFailed:
    """An attempt failed."""

    turn: int
    step: int
    attempt: int
    content: Body
    error: str
    detail: str
    status: int | None = None
    retry_at: int | None = None
    permanent: bool
    usage: Usage | None = None


@event
class GenStopped:
    """An attempt was stopped."""

    turn: int
    step: int
    attempt: int
    why: str
    content: Body
    usage: Usage | None = None


@event
class ToolStarted:
    """Attempt n of a tool call is claimed."""

    turn: int
    step: int
    index: int
    attempt: int
    owner: str
    epoch: int
    start_by: int
    deadline: int


@event
class ToolResult:
    """What became of a tool call."""

    turn: int
    step: int
    index: int
    attempt: int
    outcome: str
    via: str
    content: Body
    bytes: int
    tokens: int
    left_out: int
    triggers: tuple[Trigger, ...] = ()
    reminders: tuple[str, ...] = ()
    cached_at: int | None = None


@event
class ToolFailedUncertain:
    """A call may or may not have had its effect."""

    turn: int
    step: int
    index: int
    attempt: int
    reason: str


@event
class ResultCompacted:
    """A candidate short form of a tool result."""

    call: str
    short: Body
    tokens: int


@event
class ContextCompacted:
    """A candidate summary of the context."""

    upto: int
    kept_from: int
    summary: Body
    tokens: int
    model: str


@event
class BackgroundStarted:
    """Attempt n of background work is claimed."""

    kind: str
    upto: int
    attempt: int
    owner: str
    epoch: int
    deadline: int


@event
class BackgroundDone:
    """Background work ended."""

    kind: str
    upto: int
    attempt: int
    ok: bool
    usage: Usage | None = None
    model: str = ""
    why: str = ""
    released: bool = False
    earlier: tuple[Try, ...] = ()


@event
class DeliveryStarted:
    """Attempt n of a delivery is claimed."""

    turn: int
    step: int
    channel: str
    attempt: int
    owner: str
    epoch: int
    deadline: int


@event
class DeliveryFailed:
    """An attempt of a delivery failed, or the delivery is given up."""

    turn: int
    step: int
    channel: str
    attempt: int
    error: str
    detail: str
    status: int | None = None
    retry_at: int | None = None
    permanent: bool


@event
class GenSent:
    """The channel really has the answer."""

    turn: int
    step: int
    channel: str
