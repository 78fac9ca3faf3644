"""Events: the commands of people and other programs, which producers write.

The fields are documented in avro/*.avsc; a test compares the classes with them. An event does not
repeat what its Kafka record has: the session id (the key), the position and the timestamp.
"""

from ..bounds import Count, Items, Tokens
from .parts import BlobRef, Body, event


@event
class SessionOpened:
    """A session was opened."""

    user_id: str
    agent: str
    rules: Count
    parent_session: str | None = None
    parent_offset: Count | None = None
    seed_ref: BlobRef | None = None


@event
class MessageReceived:
    """A message was sent to the session."""

    message_id: str
    role: str
    content: Body
    tokens: Tokens
    channel: str
    when_busy: str
    by_user: str


@event
class PhaseTriggered:
    """A phase transition was requested."""

    command_id: str
    trigger: str
    by_user: str


@event
class ProjectLocked:
    """A lock of the session to a project was requested."""

    command_id: str
    project_id: str
    by_user: str


@event
class CancelRequested:
    """A cancel was requested."""

    cancel_id: str
    mode: str
    turn: Count | None = None
    seen_phase: str | None = None
    reason: str
    by_user: str


@event
class ApprovalDecided:
    """A person allowed or denied a call that needs approval."""

    call: str
    args_sha256: str
    decision: str
    remember: bool
    by_user: str
    grant: str = ""


@event
class HumanResolved:
    """A person reported what happened to a call in doubt."""

    call: str
    outcome: str
    content: Body
    by_user: str


@event
class ItemAdded:
    """An adapter added a batch of items, which are the history of another framework."""

    item_id: str
    content: Body
    items: Items = 0
    by_user: str = ""


@event
class ItemRetracted:
    """An adapter removed the session's last item, or all of its items."""

    item_id: str
    index: Count = 0
    all: bool = False
    seen: Count = 0
    command_id: str = ""
    by_user: str = ""


@event
class ResultReplaced:
    """A person replaced a call's result, which a fork inherited and no request has contained."""

    call: str
    outcome: str
    content: Body
    tokens: Tokens
    reason: str
    by_user: str


@event
class SessionTerminated:
    """The session was terminated."""

    reason: str
    by_user: str


@event
class RecordSkipped:
    """A record that froze the session was skipped: the session is folded without the record."""

    offset: Count
    seed_ref: BlobRef
    reason: str
    by_user: str
