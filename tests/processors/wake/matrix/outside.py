"""Records which parts of instruction files, memory and todos are read and written."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foldlog.processors.memory.service import MemoryService
from foldlog.processors.request.layers import FILES, Layers
from foldlog.processors.tools.memory import MEMORY_TOOLS
from foldlog.processors.worker.instruction_files import read_layers
from foldlog.schemas.topics import MEMORY_EVENTS
from foldlog.tests.processors.tools.tool_bench import make_host, run_once

FIELDS = {
    "MEMORY_WRITTEN": "memory.entries",
    "MEMORY_RETIRED": "memory.entries",
    "PREFERENCE_SET": "memory.entries",
    "TODO_ADDED": "memory.todos",
    "TODO_MARKED": "memory.todos",
}
READS = {
    "core": "memory.entries",
    "index": "memory.entries",
    "load": "memory.entries",
    "scope": "memory.entries",
    "search": "memory.entries",
    "search_text": "memory.entries",
    "view": "memory.entries",
    "todos": "memory.todos",
}


class RecordingReader:
    """The real memory reader. Each call reports to `note` which field the method reads."""

    def __init__(self, reader: Any, note: Callable[[str], None]) -> None:
        self._reader, self._note = reader, note

    def __getattr__(self, name: str) -> Any:
        if name in READS:
            self._note(READS[name])
        return getattr(self._reader, name)


def layers_for(memory: MemoryService, note: Callable[[str], None]) -> Callable[..., Layers]:
    """The function that a worker's decision uses to read layers."""

    def read(agent: Any, views: Any) -> Layers:
        reader = RecordingReader(memory.reader, note)
        user = views.state.user_id
        layers = read_layers(agent, memory=reader, user_id=user, project_id="shop")
        if any(layer.name in FILES for layer in layers.texts):
            note("files")
        return layers

    return read


def todos_for(memory: MemoryService, note: Callable[[str], None]) -> Callable[..., str]:
    """The function that a worker's decision uses to read todos."""
    reader = RecordingReader(memory.reader, note)
    return lambda agent, views: reader.todos("project:shop")


def tools_used(memory: MemoryService, directory: Path, note: Callable[[str], None]) -> None:
    """Run the tools of an agent that read and write memory and todos."""
    plain, memory.reader = memory.reader, RecordingReader(memory.reader, note)
    host = dataclasses.replace(make_host(directory), memory=memory)
    calls = [
        ("remember", {"text": "likes tea", "kind": "core"}),
        ("load_memory", {"path": "core.md"}),
        ("todo_add", {"todos": ["paint"]}),
        ("todo_list", {}),
    ]
    for index, (name, arguments) in enumerate(calls):
        tool = next(tool for tool in MEMORY_TOOLS if tool.name == name)
        args = json.dumps(arguments).encode()
        reports = run_once(
            tool, host, args, index=index, user_id="ana", project_id="shop", claim_offset=1
        )
        assert reports.only.outcome == "ok", reports.only
    memory.reader = plain


def remember_for(memory: MemoryService, note: Callable[[str], None]) -> Callable[..., int]:
    """The function that a worker's extraction uses to write memory."""

    def remember(scope: str, events: list[Any]) -> int:
        plain, memory.reader = memory.reader, RecordingReader(memory.reader, note)
        known = memory.keep(scope, events, at=0)
        memory.reader = plain
        return known

    return remember


def written_by(log: Any, role: str) -> set[str]:
    """The fields of memory that a role has written to the log."""
    records = [record for number in range(2) for record in log.records(MEMORY_EVENTS, number)]
    return {FIELDS[r.header("t").decode()] for r in records if r.header("w") == role.encode()}
