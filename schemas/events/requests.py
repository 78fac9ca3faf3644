"""Events: what producers ask for: the inputs of people and other programs.

The field docs are in avro/*.avsc, a test holds both equal. The key is the session id, place and
time are the record's: neither is repeated in an event.
"""

from ..bounds import Count, Items, Tokens
from .parts import BlobRef, Body, event


@event
class SessionOpened:
    """A session begins."""

    user_id: str
    agent: str
    rules: Count
    parent_session: str | None = None
    parent_offset: Count | None = None
    seed_ref: BlobRef | None = None


@event
class MessageReceived:
    """Somebody said something to the session."""

    message_id: str
    role: str
    content: Body
    tokens: Tokens
    channel: str
    when_busy: str
    by_user: str


@event
class PhaseTriggered:
    """A phase transition was asked for."""

    command_id: str
    trigger: str
    by_user: str


@event
class ProjectLocked:
    """The session was asked to lock a project."""

    command_id: str
    project_id: str
    by_user: str


@event
class CancelRequested:
    """Somebody asked to stop."""

    cancel_id: str
    mode: str
    turn: Count | None = None
    seen_phase: str | None = None
    reason: str
    by_user: str


@event
class ApprovalDecided:
    """A person decided on a call that asked."""

    call: str
    args_sha256: str
    decision: str
    remember: bool
    by_user: str
    grant: str = ""


@event
class HumanResolved:
    """A person says what happened to a call in doubt."""

    call: str
    outcome: str
    content: Body
    by_user: str


@event
class ItemAdded:
    """A batch of items: history written by another framework through an adapter."""

    item_id: str
    content: Body
    items: Items = 0
    by_user: str = ""


@event
class ItemRetracted:
    """An adapter took its last item back, or all of them."""

    item_id: str
    index: Count = 0
    all: bool = False
    seen: Count = 0
    command_id: str = ""
    by_user: str = ""


@event
class SessionTerminated:
    """The session ends for good."""

    reason: str
    by_user: str


@event
class RecordSkipped:
    """A record that froze the session is passed over: the session is folded without it."""

    offset: Count
    seed_ref: BlobRef
    reason: str
    by_user: str
