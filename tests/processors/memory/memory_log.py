"""Memory events as entries, records and views, and a MemoryService on an in-memory log."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foldlog.log import MemoryLog
from foldlog.processors.memory.fold import MemoryView, apply, initial
from foldlog.processors.memory.service import MemoryService
from foldlog.producers.memory import MemoryWriter
from foldlog.schemas import memory as ev
from foldlog.schemas.codec import Entry, encode, headers_for
from foldlog.schemas.record import Record
from foldlog.schemas.topics import MEMORY_EVENTS, topics

ANA, SHOP = "user:ana", "project:shop"
NOON = 1_795_262_400_000  # 2026-11-21T12:00:00Z


def wrote(entry_id: str, text: str, path: str = "core.md", **more: Any) -> ev.MemoryWritten:
    return ev.MemoryWritten(entry_id=entry_id, path=path, text=text, by_user="ana", **more)


def retired(entry_id: str) -> ev.MemoryRetired:
    return ev.MemoryRetired(entry_id=entry_id, why="", by_user="ana")


def todo(todo_id: str, text: str = "do it") -> ev.TodoAdded:
    return ev.TodoAdded(todo_id=todo_id, text=text, by_user="ana")


def marked(todo_id: str, status: str, command_id: str) -> ev.TodoMarked:
    return ev.TodoMarked(todo_id=todo_id, status=status, command_id=command_id, by_user="ana")


def preferred(name: str, value: str | None, command_id: str) -> ev.PreferenceSet:
    return ev.PreferenceSet(name=name, value=value, command_id=command_id, by_user="ana")


def entries(events: Iterable[Any], scope: str = ANA, writer: str = "producer") -> list[Entry]:
    return [Entry(scope, 0, n, NOON + n, writer, event) for n, event in enumerate(events)]


def folded(events: Iterable[Any], scope: str = ANA, writer: str = "producer") -> MemoryView:
    view = initial(scope)
    for entry in entries(events, scope, writer):
        view = apply(view, entry)
    return view


def record(offset: int, event: Any, scope: str = ANA, writer: str = "producer") -> Record:
    headers = tuple(headers_for(event, writer))
    return Record(MEMORY_EVENTS, 0, offset, NOON, scope.encode(), encode(event), headers)


def new_log(cluster_id: str = "memory") -> MemoryLog:
    return MemoryLog(topics(2), threaded=True, cluster_id=cluster_id)


@contextmanager
def serving(
    log: Any,
    directory: Path,
    output: list[str] | None = None,
    embedder: Any = None,
    *,
    caught_up: bool = True,
) -> Iterator[MemoryService]:
    """Run a memory service on a log until the block ends. At the start of the block it has read the
    log to its end, unless `caught_up` is false."""
    say = (output if output is not None else []).append
    service = MemoryService(log, log.producer(), directory, say, embedder)
    service.begin()
    try:
        assert not caught_up or service.await_caught_up(10)
        yield service
    finally:
        service.close()


def writer_of(log: Any, user: str = "ana") -> MemoryWriter:
    return MemoryWriter(log.producer(), user)
