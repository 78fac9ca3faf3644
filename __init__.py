"""foldlog: an LLM-agent session is a run of events in one Kafka partition; the rest is folded.

This file is the front door: the few names a user imports. It must stay fast to import, so each
name is loaded on first use.

If you are here to read the code, read the rooms in this order:

1. `schemas/`      what is in the log: one .avsc per event, the dataclasses, the codec, the topics
2. `log/`          the only door to Kafka, and its in-memory twin
3. `producers/`    the write side: open, say, cancel, decide
4. `processors/`   the interpreter. The pure core is three folders: `fold/` (events to views),
                   `wake/` (what is pending next, and the decisions made from it), `request/` (what
                   a model is shown). Around it `tools/`, `effects/` (model calls, background work,
                   delivery), `store/` (RocksDB), `worker/`, `memory/`, `search/`, `outside/` (MCP
                   servers, fetching), `advice/`
5. `consumers/`    the read side: transcripts, search, replay
6. `cli/`          the `foldlog` command
7. `local/`        a real Kafka from pinned jars, and a test kit: a scripted Messages API

Arrows between rooms go one way: schemas <- log <- producers <- processors <- consumers <- cli.
"""

from importlib import import_module

# Public name -> module that defines it. Loaded by `__getattr__`, so `import foldlog` costs
# nothing: the anthropic, confluent_kafka and faust packages take seconds to import.
_EXPORTS: dict[str, str] = {
    "Agent": ".processors.agent",
    "Client": ".consumers.client",
    "Compaction": ".processors.agent",
    "DidNotHappen": ".processors.tools.tool",
    "FoldlogError": ".log.errors",
    "Happened": ".processors.tools.tool",
    "Limits": ".processors.limits",
    "McpServer": ".processors.outside.server",
    "Rule": ".processors.agent",
    "Settings": ".log.settings",
    "ToolContext": ".processors.tools.context",
    "ToolFailed": ".processors.tools.tool",
    "read_result": ".processors.tools.builtin",
    "build_and_deploy": ".processors.tools.project",
    "tool": ".processors.tools.tool",
    "wake_session": ".processors.worker.wake_once",
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
