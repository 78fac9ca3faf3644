"""The table of event types: name, class, writers, and whether decisions depend on the event."""

from typing import NamedTuple

from ..enums import Role
from . import commands, decisions, effects


class EventType(NamedTuple):
    """One row of the event table.

    `is_input`: decisions depend on the event, so it becomes the basis of the next decision, and a
        decision with an older basis is stale.
    `must_understand`: a record of this type that cannot be decoded freezes its session.
    `writers`: the roles that may write the event.
    """

    name: str
    cls: type
    is_input: bool
    must_understand: bool
    writers: tuple[str, ...]


_I, _M = True, True
_ROLES = tuple(Role)
EVENT_TYPES = (
    EventType("SESSION_OPENED", commands.SessionOpened, not _I, _M, ("producer",)),
    EventType("MESSAGE_RECEIVED", commands.MessageReceived, _I, _M, ("producer",)),
    EventType("PHASE_TRIGGERED", commands.PhaseTriggered, _I, _M, ("producer",)),
    EventType("PROJECT_LOCKED", commands.ProjectLocked, _I, _M, ("producer",)),
    EventType("CANCEL_REQUESTED", commands.CancelRequested, _I, _M, ("producer",)),
    EventType("APPROVAL_DECIDED", commands.ApprovalDecided, _I, _M, ("producer",)),
    EventType("HUMAN_RESOLVED", commands.HumanResolved, _I, _M, ("producer",)),
    EventType("ITEM_ADDED", commands.ItemAdded, _I, _M, ("producer",)),
    EventType("ITEM_RETRACTED", commands.ItemRetracted, _I, _M, ("producer",)),
    EventType("RESULT_REPLACED", commands.ResultReplaced, _I, _M, ("producer",)),
    EventType("SESSION_TERMINATED", commands.SessionTerminated, _I, _M, ("producer",)),
    EventType("RECORD_SKIPPED", commands.RecordSkipped, not _I, _M, ("producer",)),
    EventType("PARTITION_TAKEN", decisions.PartitionTaken, not _I, _M, _ROLES),
    EventType("OWNER_GONE", decisions.OwnerGone, not _I, not _M, _ROLES),
    EventType("CONTEXT_SET", decisions.ContextSet, not _I, _M, ("sessions",)),
    EventType("LLM_CALLED", decisions.LlmCalled, _I, _M, ("sessions",)),
    EventType("TOOL_INVOKED", decisions.ToolInvoked, not _I, _M, ("sessions",)),
    EventType("APPROVAL_EXPIRED", decisions.ApprovalExpired, _I, _M, ("sessions",)),
    EventType("TURN_ENDED", decisions.TurnEnded, _I, _M, ("sessions",)),
    EventType("REFUSED", decisions.Refused, not _I, _M, ("sessions",)),
    EventType("HUMAN_NEEDED", decisions.HumanNeeded, not _I, _M, ("sessions",)),
    EventType("REMINDER_ADDED", decisions.ReminderAdded, not _I, _M, ("sessions",)),
    EventType("COMPACTION_SKIPPED", decisions.CompactionSkipped, not _I, _M, ("sessions",)),
    EventType("GEN_START", effects.GenStart, not _I, _M, ("models",)),
    EventType("GEN_RESUMED", effects.GenResumed, not _I, _M, ("models",)),
    EventType("GEN_CHUNK", effects.GenChunk, not _I, not _M, ("models",)),
    EventType("GEN_COMPLETE", effects.GenComplete, not _I, _M, ("models",)),
    EventType("GEN_FAILED", effects.GenFailed, not _I, _M, ("models",)),
    EventType("GEN_STOPPED", effects.GenStopped, not _I, _M, ("models",)),
    EventType("TOOL_STARTED", effects.ToolStarted, not _I, _M, ("tools",)),
    EventType("TOOL_RESULT", effects.ToolResult, not _I, _M, ("tools",)),
    EventType("TOOL_FAILED_UNCERTAIN", effects.ToolFailedUncertain, not _I, _M, ("tools",)),
    EventType("RESULT_COMPACTED", effects.ResultCompacted, not _I, _M, ("background",)),
    EventType("CONTEXT_COMPACTED", effects.ContextCompacted, not _I, _M, ("background",)),
    EventType("BACKGROUND_STARTED", effects.BackgroundStarted, not _I, _M, ("background",)),
    EventType("BACKGROUND_DONE", effects.BackgroundDone, not _I, _M, ("background",)),
    EventType("DELIVERY_STARTED", effects.DeliveryStarted, not _I, _M, ("delivery",)),
    EventType("DELIVERY_FAILED", effects.DeliveryFailed, not _I, _M, ("delivery",)),
    EventType("GEN_SENT", effects.GenSent, not _I, _M, ("delivery", "consumers")),
)
BY_NAME = {row.name: row for row in EVENT_TYPES}
BY_CLASS = {row.cls: row for row in EVENT_TYPES}
