"""A table of the state that each point of a turn reads and writes.

The file lists eight points of a turn, four buckets by lifetime, and for every item the points that
read and write it. A test plays real histories, records which state the code touches at each point,
and compares the record with this file. The docs are generated from this file; no decision reads it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Point(NamedTuple):
    """A moment of a turn: its letter, its name, and what happens then."""

    letter: str
    name: str
    when: str


POINTS = (
    Point("A", "assembly", "a turn's first step is decided: files and memory are read, the "
          "static prefix is assembled"),
    Point("B", "before a step", "a step is decided and its request is built"),
    Point("C", "streaming", "the model answers, attempt by attempt"),
    Point("D", "tool execution", "a tool call is allowed, claimed, run and reported"),
    Point("E", "a tool finished", "a large result is made shorter in the background"),
    Point("F", "stop conditions", "does another step follow, and does its request fit?"),
    Point("G", "the turn ends", "the answer is complete, and the turn is closed"),
    Point("H", "background", "memory is extracted, the summary for a resume is prepared"),
)

# The effects of background work belong to the point for which the work began.
BY_KIND = {"result": "E", "context": "B", "resume": "H", "memory": "H"}

# The point of a turn at which an event is written and folded. Of two letters, the first is for the
# first step of a turn, the second for later steps. '': outside of a turn.
WRITTEN_AT: dict[str, str | dict[str, str]] = {
    "SESSION_OPENED": "",
    "MESSAGE_RECEIVED": "A",
    "PHASE_TRIGGERED": "",
    "PROJECT_LOCKED": "",
    "CANCEL_REQUESTED": "",
    "APPROVAL_DECIDED": "D",
    "HUMAN_RESOLVED": "D",
    "ITEM_ADDED": "",
    "ITEM_RETRACTED": "",
    "RESULT_REPLACED": "",
    "SESSION_TERMINATED": "",
    "RECORD_SKIPPED": "",
    "PARTITION_TAKEN": "",
    "OWNER_GONE": "",
    "CONTEXT_SET": "A",
    "LLM_CALLED": "AB",
    "TOOL_INVOKED": "D",
    "APPROVAL_EXPIRED": "D",
    "TURN_ENDED": "G",
    "REFUSED": "",
    "HUMAN_NEEDED": "D",
    "REMINDER_ADDED": "D",
    "COMPACTION_SKIPPED": BY_KIND,
    "GEN_START": "C",
    "GEN_RESUMED": "C",
    "GEN_CHUNK": "C",
    "GEN_COMPLETE": "G",
    "GEN_FAILED": "C",
    "GEN_STOPPED": "C",
    "TOOL_STARTED": "D",
    "TOOL_RESULT": "D",
    "TOOL_FAILED_UNCERTAIN": "D",
    "RESULT_COMPACTED": BY_KIND,
    "CONTEXT_COMPACTED": BY_KIND,
    "BACKGROUND_STARTED": BY_KIND,
    "BACKGROUND_DONE": BY_KIND,
    "DELIVERY_STARTED": "",
    "DELIVERY_FAILED": "",
    "GEN_SENT": "",
}

# The point at which a decision or claim reads the views. Two letters have the same meaning as
# above.
DECIDED_AT = {
    "LLM_CALLED": "AB",
    "GEN_START": "B",
    "GEN_RESUMED": "B",
    "TOOL_INVOKED": "D",
    "APPROVAL_EXPIRED": "D",
    "TURN_ENDED": "G",
}


class Item(NamedTuple):
    """One piece of state. bucket: its lifetime: step, turn, session or across (sessions).

    kept_in: fields of the views, or storage outside of the views (`memory.`, `files`).
    cells: R, W or RW for each point that touches the item.
    others: readers and writers outside of all points.
    why_not: why a point where one would expect a read does not read the item.
    """

    name: str
    bucket: str
    kept_in: tuple[str, ...]
    cells: dict[str, str]
    others: str = ""
    why_not: Mapping[str, str] = MappingProxyType({})


BUCKETS = ("step", "turn", "session", "across")

ITEMS = (
    Item(
        "messages",
        "session",
        ("context.fragments", "transcript.lines", "messages.received", "messages.progress"),
        {"A": "RW", "B": "RW", "C": "W", "D": "W", "E": "R", "F": "R", "G": "RW",
         "H": "R"},
    ),
    Item(
        "compaction checkpoint",
        "session",
        ("compaction.checkpoint_at", "compaction.compacted_upto", "context.last_step_tokens"),
        {"A": "RW", "B": "RW", "F": "R", "G": "RW", "H": "R"},
    ),
    Item(
        "cumulative usage",
        "session",
        ("ledger.spent", "ledger.input_tokens", "ledger.output_tokens"),
        {"B": "W", "C": "W", "E": "W", "G": "W", "H": "W"},
        "read by people: `foldlog show --view ledger`",
    ),
    Item(
        "last step tokens",
        "turn",
        ("context.last_step_tokens", "context.anchor_tokens", "context.tail_tokens"),
        {"A": "RW", "B": "RW", "D": "W", "F": "R", "G": "RW", "H": "R"},
    ),
    Item(
        "abort signal",
        "turn",
        ("turn.closing", "turn.opened_offset"),
        {"A": "W", "B": "R", "C": "R", "D": "R", "E": "R", "F": "R", "G": "RW", "H": "R"},
        "set by people: a cancel, an interrupting message, the end of the session",
    ),
    Item(
        "compaction cache",
        "session",
        ("compaction.shorts", "compaction.waiting", "background.results"),
        {"A": "RW", "B": "R", "D": "W", "E": "RW", "F": "R", "G": "R", "H": "R"},
    ),
    Item(
        "reminders",
        "turn",
        ("turn.reminders",),
        {"A": "RW", "B": "RW", "D": "W", "F": "R", "G": "R", "H": "R"},
    ),
    Item(
        "todos",
        "across",
        ("memory.todos",),
        {"A": "R", "D": "RW"},
        "changed ones are sent as a reminder at the first step of a turn",
        {"B": "a later change is in the result of the tool that made it",
         "F": "the tool that marks the last one done moves the phase, which is in the log"},
    ),
    Item(
        "resume summary",
        "session",
        ("compaction.candidate_at", "compaction.summaries"),
        {"A": "RW", "B": "RW", "F": "R", "G": "R", "H": "RW"},
    ),
    Item(
        "auto memory",
        "across",
        ("memory.entries",),
        {"A": "R", "D": "RW", "H": "RW"},
        "read and written by people too, as files",
    ),
    Item("instruction files", "across", ("files",), {"A": "R"}, "written by people"),
    Item(
        "step in flight",
        "step",
        ("turn.generation", "turn.calls", "stream.chunks", "stream.last_at"),
        {"A": "RW", "B": "RW", "C": "W", "D": "RW", "F": "R", "G": "RW", "H": "R"},
    ),
)

# The points to which the lanes of WAKE belong. After an abort, the work of these lanes does not
# begin, or is stopped.
ABORT_LANES = {"N": "BF", "S": "C", "T": "D", "B": "EH"}
ABORT_FACTS = ("closing", "stop")
