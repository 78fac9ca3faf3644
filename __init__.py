"""foldlog: an LLM-agent session is a sequence of events in a Kafka log, folded into its state.

This file exports the names that users import. Importing it must be fast, so each name is loaded on
first use.

To read the code, read the packages in this order:

1. `schemas/`      what is in the log: one .avsc per event, the dataclasses, the codec, the topics
2. `log/`          the only access to Kafka, and a log in memory with the same interface
3. `producers/`    the write side: open a session, send a message, cancel, decide
4. `processors/`   the interpreter. The pure core is three folders: `fold/` (events to views),
                   `wake/` (what is pending, and the decisions made from it), `request/` (what the
                   model gets). Around it `tools/`, `effects/` (model calls, background work,
                   delivery), `store/` (RocksDB), `worker/`, `memory/`, `search/`, `outside/` (MCP
                   servers, fetching), `advice/`
5. `client/`       what a program uses: connect, sessions, events, commands, forks, history
6. `reports/`      what is made from the log: exports, SQL, search over sessions, traces, replay
7. `web/`          the gateway, the protocols of other clients, the inspector
8. `upkeep/`       what an operator keeps in order: doctor, retention, moves, snapshots, blobs
9. `adapters/`     the log as the session store of other frameworks
10. `testing/`     the test kit for agents: a run in memory, and the pytest plugin
11. `cli/`         the `foldlog` command
12. `local/`       a real Kafka from pinned jars, and a test kit: a scripted Messages API

Imports between packages go one way: schemas <- log <- producers <- processors <- client <- reports
<- {web, upkeep, adapters} <- testing <- cli.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers and editors; loaded by `__getattr__`
    from .adapters.openai_agents import FoldlogSessions as FoldlogSessions
    from .client.aio import (
        AsyncConnection as AsyncConnection,
        AsyncReply as AsyncReply,
        AsyncSession as AsyncSession,
        AsyncStream as AsyncStream,
        aconnect as aconnect,
    )
    from .client.branching import CanNotFork as CanNotFork
    from .client.calls import UnknownCall as UnknownCall
    from .client.connection import Connection as Connection, connect as connect
    from .client.events import (
        Answered as Answered,
        ApprovalAsked as ApprovalAsked,
        ApprovalDecided as ApprovalDecided,
        AttemptFailed as AttemptFailed,
        AttemptReplaced as AttemptReplaced,
        CallEvent as CallEvent,
        Discarded as Discarded,
        DoubtResolved as DoubtResolved,
        InDoubt as InDoubt,
        MessageReceived as MessageReceived,
        MessageTaken as MessageTaken,
        PhaseChanged as PhaseChanged,
        ProjectLocked as ProjectLocked,
        RecordedEvent as RecordedEvent,
        SessionEvent as SessionEvent,
        SessionTerminated as SessionTerminated,
        Thinking as Thinking,
        Token as Token,
        ToolCalled as ToolCalled,
        ToolDrafted as ToolDrafted,
        ToolFinished as ToolFinished,
        TurnEnded as TurnEnded,
        Waiting as Waiting,
    )
    from .client.outcomes import (
        Answer as Answer,
        CommandRefused as CommandRefused,
        NoAnswerYet as NoAnswerYet,
        UnknownMessage as UnknownMessage,
    )
    from .client.session import (
        BadCursor as BadCursor,
        Reply as Reply,
        ReplyEnded as ReplyEnded,
        Session as Session,
        Stream as Stream,
        StreamOverrun as StreamOverrun,
    )
    from .client.session_state import (
        ModelRequest as ModelRequest,
        Reason as Reason,
        SessionState as SessionState,
        Status as Status,
    )
    from .client.show import UnknownSession as UnknownSession, UnknownStep as UnknownStep
    from .client.worker import (
        Worker as Worker,
        WorkerFailed as WorkerFailed,
        run_worker as run_worker,
    )
    from .log.errors import (
        FoldlogError as FoldlogError,
        LogUnreachable as LogUnreachable,
        Refused as Refused,
        SettingsError as SettingsError,
        TopicMissing as TopicMissing,
    )
    from .log.made import apply_topics as apply_topics
    from .log.settings import Settings as Settings
    from .processors.agent import Agent as Agent, Compaction as Compaction, Rule as Rule
    from .processors.limits import Limits as Limits
    from .processors.mcp_server import McpServer as McpServer
    from .processors.outside.fetch import fetch_url as fetch_url
    from .processors.store.state_dir import StateDirTaken as StateDirTaken
    from .processors.tools.builtin import (
        edit_file as edit_file,
        list_directory as list_directory,
        read_file as read_file,
        read_result as read_result,
        run_command as run_command,
        search_files as search_files,
    )
    from .processors.tools.context import (
        IsolatedContext as IsolatedContext,
        ToolContext as ToolContext,
    )
    from .processors.tools.project import build_and_deploy as build_and_deploy
    from .processors.tools.tool import (
        DidNotHappen as DidNotHappen,
        Happened as Happened,
        ToolFailed as ToolFailed,
        tool as tool,
    )
    from .processors.worker.same_agents import AgentsDiffer as AgentsDiffer
    from .processors.worker.wake_once import wake_session as wake_session
    from .producers.checks import Invalid as Invalid
    from .producers.memory import MemoryWriter as MemoryWriter
    from .schemas.origin import TokenRole as TokenRole
    from .web.asgi import asgi as asgi
    from .web.gateway.access import Caller as Caller
    from .web.gateway.mounted import AsgiApp as AsgiApp

# Public name -> module that defines it. Loaded by `__getattr__`, so `import foldlog` costs
# nothing: the anthropic, confluent_kafka and faust packages take seconds to import.
_EXPORTS: dict[str, str] = {
    "aconnect": ".client.aio",
    "Agent": ".processors.agent",
    "AgentsDiffer": ".processors.worker.same_agents",
    "Answer": ".client.outcomes",
    "Answered": ".client.events",
    "apply_topics": ".log.made",
    "ApprovalAsked": ".client.events",
    "ApprovalDecided": ".client.events",
    "asgi": ".web.asgi",
    "AsgiApp": ".web.gateway.mounted",
    "AsyncConnection": ".client.aio",
    "AsyncReply": ".client.aio",
    "AsyncSession": ".client.aio",
    "AsyncStream": ".client.aio",
    "AttemptFailed": ".client.events",
    "AttemptReplaced": ".client.events",
    "BadCursor": ".client.session",
    "build_and_deploy": ".processors.tools.project",
    "CallEvent": ".client.events",
    "Caller": ".web.gateway.access",
    "CanNotFork": ".client.branching",
    "CommandRefused": ".client.outcomes",
    "Compaction": ".processors.agent",
    "connect": ".client.connection",
    "Connection": ".client.connection",
    "DidNotHappen": ".processors.tools.tool",
    "Discarded": ".client.events",
    "DoubtResolved": ".client.events",
    "edit_file": ".processors.tools.builtin",
    "fetch_url": ".processors.outside.fetch",
    "FoldlogError": ".log.errors",
    "FoldlogSessions": ".adapters.openai_agents",
    "Happened": ".processors.tools.tool",
    "InDoubt": ".client.events",
    "Invalid": ".producers.checks",
    "IsolatedContext": ".processors.tools.context",
    "Limits": ".processors.limits",
    "list_directory": ".processors.tools.builtin",
    "LogUnreachable": ".log.errors",
    "McpServer": ".processors.mcp_server",
    "MemoryWriter": ".producers.memory",
    "MessageReceived": ".client.events",
    "MessageTaken": ".client.events",
    "ModelRequest": ".client.session_state",
    "NoAnswerYet": ".client.outcomes",
    "PhaseChanged": ".client.events",
    "ProjectLocked": ".client.events",
    "read_file": ".processors.tools.builtin",
    "read_result": ".processors.tools.builtin",
    "Reason": ".client.session_state",
    "RecordedEvent": ".client.events",
    "Refused": ".log.errors",
    "Reply": ".client.session",
    "ReplyEnded": ".client.session",
    "Rule": ".processors.agent",
    "run_command": ".processors.tools.builtin",
    "run_worker": ".client.worker",
    "search_files": ".processors.tools.builtin",
    "Session": ".client.session",
    "SessionEvent": ".client.events",
    "SessionState": ".client.session_state",
    "SessionTerminated": ".client.events",
    "Settings": ".log.settings",
    "SettingsError": ".log.errors",
    "StateDirTaken": ".processors.store.state_dir",
    "Status": ".client.session_state",
    "Stream": ".client.session",
    "StreamOverrun": ".client.session",
    "Thinking": ".client.events",
    "Token": ".client.events",
    "TokenRole": ".schemas.origin",
    "tool": ".processors.tools.tool",
    "ToolCalled": ".client.events",
    "ToolContext": ".processors.tools.context",
    "ToolDrafted": ".client.events",
    "ToolFailed": ".processors.tools.tool",
    "ToolFinished": ".client.events",
    "TopicMissing": ".log.errors",
    "TurnEnded": ".client.events",
    "UnknownCall": ".client.calls",
    "UnknownMessage": ".client.outcomes",
    "UnknownSession": ".client.show",
    "UnknownStep": ".client.show",
    "Waiting": ".client.events",
    "wake_session": ".processors.worker.wake_once",
    "Worker": ".client.worker",
    "WorkerFailed": ".client.worker",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> object:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
