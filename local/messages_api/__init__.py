"""A test kit for agents: a scripted server of the Messages API, as strict as the real API.

It serves HTTP and SSE on loopback. Tests of an agent script the server's answers and use the server
through the real client; `foldlog dev`, `worker` and `demo` start it as an offline stand-in when no
API key is set. Like the real API, it sees only requests; it is independent of sessions, folds and
workers.

    with ScriptedServer(replies(Reply([tool_use("charge")]), Reply([text("done")]))) as model:
        os.environ["ANTHROPIC_BASE_URL"] = model.base_url

docs/test-your-agent.md shows how to start it, script it and use it from pytest.

Reading order: script (the replies), faults (what can go wrong), request, shape, conversation,
binding, seal, models and cache (what is checked), errors, answer, distort and delivery (how a reply
is sent), server, hosting, process (where it runs), journal (the record); builtin, obedient, demo,
demo_reading (named scripts).
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
