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
5. `consumers/`    the read side: transcripts, search, replay
6. `api/`          the Python API: connect, sessions, events; blocking, and for asyncio
7. `testing/`      the test kit for agents: a run in memory, and the pytest plugin
8. `cli/`          the `foldlog` command
9. `local/`        a real Kafka from pinned jars, and a test kit: a scripted Messages API

Imports between packages go one way: schemas <- log <- producers <- processors <- consumers <- api
<- testing <- cli.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers and editors; loaded by `__getattr__`
    from .api.aio import (
        AsyncConnection as AsyncConnection,
        AsyncReply as AsyncReply,
        AsyncSession as AsyncSession,
        AsyncStream as AsyncStream,
        aconnect as aconnect,
    )
    from .api.asgi import asgi as asgi
    from .api.connection import Connection as Connection, connect as connect
    from .api.events import (
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
    from .api.inside import (
        ModelRequest as ModelRequest,
        SessionState as SessionState,
        Status as Status,
    )
    from .api.session import (
        BadCursor as BadCursor,
        Reply as Reply,
        ReplyEnded as ReplyEnded,
        Session as Session,
        Stream as Stream,
        StreamOverrun as StreamOverrun,
    )
    from .api.worker import (
        Worker as Worker,
        WorkerFailed as WorkerFailed,
        run_worker as run_worker,
    )
    from .consumers.branching import CanNotFork as CanNotFork
    from .consumers.calls import UnknownCall as UnknownCall
    from .consumers.client import Client as Client
    from .consumers.gateway.mounted import AsgiApp as AsgiApp
    from .consumers.outcomes import (
        Answer as Answer,
        CommandRefused as CommandRefused,
        NoAnswerYet as NoAnswerYet,
        UnknownMessage as UnknownMessage,
    )
    from .consumers.show import UnknownSession as UnknownSession, UnknownStep as UnknownStep
    from .log.errors import (
        FoldlogError as FoldlogError,
        LogUnreachable as LogUnreachable,
        Refused as Refused,
        SettingsError as SettingsError,
        TopicMissing as TopicMissing,
    )
    from .log.settings import Settings as Settings
    from .processors.agent import Agent as Agent, Compaction as Compaction, Rule as Rule
    from .processors.limits import Limits as Limits
    from .processors.mcp_server import McpServer as McpServer
    from .processors.store.state_dir import StateDirTaken as StateDirTaken
    from .processors.tools.builtin import read_result as read_result
    from .processors.tools.context import ToolContext as ToolContext
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

# Public name -> module that defines it. Loaded by `__getattr__`, so `import foldlog` costs
# nothing: the anthropic, confluent_kafka and faust packages take seconds to import.
_EXPORTS: dict[str, str] = {
    "aconnect": ".api.aio",
    "Agent": ".processors.agent",
    "AgentsDiffer": ".processors.worker.same_agents",
    "Answer": ".consumers.outcomes",
    "Answered": ".api.events",
    "ApprovalAsked": ".api.events",
    "ApprovalDecided": ".api.events",
    "asgi": ".api.asgi",
    "AsgiApp": ".consumers.gateway.mounted",
    "AsyncConnection": ".api.aio",
    "AsyncReply": ".api.aio",
    "AsyncSession": ".api.aio",
    "AsyncStream": ".api.aio",
    "AttemptFailed": ".api.events",
    "AttemptReplaced": ".api.events",
    "BadCursor": ".api.session",
    "build_and_deploy": ".processors.tools.project",
    "CallEvent": ".api.events",
    "CanNotFork": ".consumers.branching",
    "Client": ".consumers.client",
    "CommandRefused": ".consumers.outcomes",
    "Compaction": ".processors.agent",
    "connect": ".api.connection",
    "Connection": ".api.connection",
    "DidNotHappen": ".processors.tools.tool",
    "Discarded": ".api.events",
    "DoubtResolved": ".api.events",
    "FoldlogError": ".log.errors",
    "Happened": ".processors.tools.tool",
    "InDoubt": ".api.events",
    "Invalid": ".producers.checks",
    "Limits": ".processors.limits",
    "LogUnreachable": ".log.errors",
    "McpServer": ".processors.mcp_server",
    "MessageReceived": ".api.events",
    "MessageTaken": ".api.events",
    "ModelRequest": ".api.inside",
    "NoAnswerYet": ".consumers.outcomes",
    "PhaseChanged": ".api.events",
    "ProjectLocked": ".api.events",
    "read_result": ".processors.tools.builtin",
    "RecordedEvent": ".api.events",
    "Refused": ".log.errors",
    "Reply": ".api.session",
    "ReplyEnded": ".api.session",
    "Rule": ".processors.agent",
    "run_worker": ".api.worker",
    "Session": ".api.session",
    "SessionEvent": ".api.events",
    "SessionState": ".api.inside",
    "SessionTerminated": ".api.events",
    "Settings": ".log.settings",
    "SettingsError": ".log.errors",
    "StateDirTaken": ".processors.store.state_dir",
    "Status": ".api.inside",
    "Stream": ".api.session",
    "StreamOverrun": ".api.session",
    "Thinking": ".api.events",
    "Token": ".api.events",
    "tool": ".processors.tools.tool",
    "ToolCalled": ".api.events",
    "ToolContext": ".processors.tools.context",
    "ToolDrafted": ".api.events",
    "ToolFailed": ".processors.tools.tool",
    "ToolFinished": ".api.events",
    "TopicMissing": ".log.errors",
    "TurnEnded": ".api.events",
    "UnknownCall": ".consumers.calls",
    "UnknownMessage": ".consumers.outcomes",
    "UnknownSession": ".consumers.show",
    "UnknownStep": ".consumers.show",
    "Waiting": ".api.events",
    "wake_session": ".processors.worker.wake_once",
    "Worker": ".api.worker",
    "WorkerFailed": ".api.worker",
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
