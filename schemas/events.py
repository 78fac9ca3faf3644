"""The events of the log, as data: type name, class, writers, and whether it is an input.

Read asked.py, decided.py and done.py for the classes. Nothing here knows Avro.
"""

from typing import NamedTuple

from .asked import (
    ApprovalDecided,
    CancelRequested,
    HumanResolved,
    ItemAdded,
    ItemRetracted,
    MessageReceived,
    PhaseTriggered,
    ProjectLocked,
    RecordSkipped,
    SessionOpened,
    SessionTerminated,
)
from .decided import (
    ApprovalExpired,
    CompactionSkipped,
    ContextSet,
    HumanNeeded,
    LlmCalled,
    OwnerGone,
    PartitionTaken,
    Refused,
    ReminderAdded,
    ToolInvoked,
    TurnEnded,
)
from .done import (
    BackgroundDone,
    BackgroundStarted,
    ContextCompacted,
    DeliveryFailed,
    DeliveryStarted,
    GenChunk,
    GenComplete,
    GenFailed,
    GenResumed,
    GenSent,
    GenStart,
    GenStopped,
    ResultCompacted,
    ToolFailedUncertain,
    ToolResult,
    ToolStarted,
)
from .parts import AgentDigest, BlobRef, Body, Budget, ProposedCall, Trigger, Try, Usage


class EventType(NamedTuple):
    """One row of the event table.

    `is_input`: decisions depend on it, so it moves the basis. `must_understand`: a session that has
    one which can not be read is frozen there (law 13). `writers`: who may write it.
    """

    name: str
    cls: type
    is_input: bool
    must_understand: bool
    writers: tuple[str, ...]


_I, _M = True, True
_ROLES = ("sessions", "models", "tools", "background", "delivery")
EVENT_TYPES = (
    EventType("SESSION_OPENED", SessionOpened, not _I, _M, ("producer",)),
    EventType("MESSAGE_RECEIVED", MessageReceived, _I, _M, ("producer",)),
    EventType("PHASE_TRIGGERED", PhaseTriggered, _I, _M, ("producer",)),
    EventType("PROJECT_LOCKED", ProjectLocked, _I, _M, ("producer",)),
    EventType("CANCEL_REQUESTED", CancelRequested, _I, _M, ("producer",)),
    EventType("APPROVAL_DECIDED", ApprovalDecided, _I, _M, ("producer",)),
    EventType("HUMAN_RESOLVED", HumanResolved, _I, _M, ("producer",)),
    EventType("ITEM_ADDED", ItemAdded, _I, _M, ("producer",)),
    EventType("ITEM_RETRACTED", ItemRetracted, _I, _M, ("producer",)),
    EventType("SESSION_TERMINATED", SessionTerminated, _I, _M, ("producer",)),
    EventType("RECORD_SKIPPED", RecordSkipped, not _I, _M, ("producer",)),
    EventType(
        "PARTITION_TAKEN",
        PartitionTaken,
        not _I,
        _M,
        _ROLES,
    ),
    EventType("OWNER_GONE", OwnerGone, not _I, not _M, _ROLES),
    EventType("CONTEXT_SET", ContextSet, not _I, _M, ("sessions",)),
    EventType("LLM_CALLED", LlmCalled, _I, _M, ("sessions",)),
    EventType("TOOL_INVOKED", ToolInvoked, not _I, _M, ("sessions",)),
    EventType("APPROVAL_EXPIRED", ApprovalExpired, _I, _M, ("sessions",)),
    EventType("TURN_ENDED", TurnEnded, _I, _M, ("sessions",)),
    EventType("REFUSED", Refused, not _I, _M, ("sessions",)),
    EventType("HUMAN_NEEDED", HumanNeeded, not _I, _M, ("sessions",)),
    EventType("REMINDER_ADDED", ReminderAdded, not _I, _M, ("sessions",)),
    EventType("COMPACTION_SKIPPED", CompactionSkipped, not _I, _M, ("sessions",)),
    EventType("GEN_START", GenStart, not _I, _M, ("models",)),
    EventType("GEN_RESUMED", GenResumed, not _I, _M, ("models",)),
    EventType("GEN_CHUNK", GenChunk, not _I, not _M, ("models",)),
    EventType("GEN_COMPLETE", GenComplete, not _I, _M, ("models",)),
    EventType("GEN_FAILED", GenFailed, not _I, _M, ("models",)),
    EventType("GEN_STOPPED", GenStopped, not _I, _M, ("models",)),
    EventType("TOOL_STARTED", ToolStarted, not _I, _M, ("tools",)),
    EventType("TOOL_RESULT", ToolResult, not _I, _M, ("tools",)),
    EventType("TOOL_FAILED_UNCERTAIN", ToolFailedUncertain, not _I, _M, ("tools",)),
    EventType("RESULT_COMPACTED", ResultCompacted, not _I, _M, ("background",)),
    EventType("CONTEXT_COMPACTED", ContextCompacted, not _I, _M, ("background",)),
    EventType("BACKGROUND_STARTED", BackgroundStarted, not _I, _M, ("background",)),
    EventType("BACKGROUND_DONE", BackgroundDone, not _I, _M, ("background",)),
    EventType("DELIVERY_STARTED", DeliveryStarted, not _I, _M, ("delivery",)),
    EventType("DELIVERY_FAILED", DeliveryFailed, not _I, _M, ("delivery",)),
    EventType("GEN_SENT", GenSent, not _I, _M, ("delivery", "consumers")),
)
BY_NAME = {row.name: row for row in EVENT_TYPES}
BY_CLASS = {row.cls: row for row in EVENT_TYPES}

__all__ = [
    "BY_CLASS",
    "BY_NAME",
    "EVENT_TYPES",
    "AgentDigest",
    "ApprovalDecided",
    "ApprovalExpired",
    "BackgroundDone",
    "BackgroundStarted",
    "BlobRef",
    "Body",
    "Budget",
    "CancelRequested",
    "CompactionSkipped",
    "ContextCompacted",
    "ContextSet",
    "DeliveryFailed",
    "DeliveryStarted",
    "EventType",
    "GenChunk",
    "GenComplete",
    "GenFailed",
    "GenResumed",
    "GenSent",
    "GenStart",
    "GenStopped",
    "HumanNeeded",
    "HumanResolved",
    "ItemAdded",
    "ItemRetracted",
    "LlmCalled",
    "MessageReceived",
    "OwnerGone",
    "PartitionTaken",
    "PhaseTriggered",
    "ProjectLocked",
    "ProposedCall",
    "RecordSkipped",
    "Refused",
    "ReminderAdded",
    "ResultCompacted",
    "SessionOpened",
    "SessionTerminated",
    "ToolFailedUncertain",
    "ToolInvoked",
    "ToolResult",
    "ToolStarted",
    "Trigger",
    "Try",
    "TurnEnded",
    "Usage",
]
