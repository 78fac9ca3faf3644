"""A scripted Messages API server: real HTTP and SSE on loopback, strict where the real API is.

It stands in when there is no API key, and it is what tests talk to, through the real client.
It knows nothing of sessions, folds or workers; it sees requests, as the real one does.

Reading order: script (what can be said), faults (what can go wrong), request, shape, conversation,
binding and cache (what is checked), answer, distort and delivery (how it is said), server,
hosting, process (where it runs), journal (the witness); builtin, obedient, demo (named scripts).
"""

from .faults import FAULTS, Fault, Stage, fault
from .hosting import ScriptedServer, as_script
from .journal import Journal, read_journal
from .process import ServerProcess, spawn
from .request import ATTEMPT_HEADER, Request
from .script import (
    Reply,
    Rule,
    Script,
    block,
    compaction,
    redacted_thinking,
    replies,
    server_tool_use,
    text,
    thinking,
    tool_use,
)

__all__ = [
    "ScriptedServer",
    "Script",
    "Rule",
    "Reply",
    "replies",
    "text",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "server_tool_use",
    "compaction",
    "block",
    "Request",
    "ATTEMPT_HEADER",
    "FAULTS",
    "Fault",
    "Stage",
    "fault",
    "Journal",
    "read_journal",
    "as_script",
    "ServerProcess",
    "spawn",
]
