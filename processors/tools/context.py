"""The ToolContext: the interface of a running tool to foldlog, passed as the parameter `ctx`.

It identifies the call, signals when to stop, keeps results across attempts, starts processes that
cannot outlive the run, and collects the tool's requests (reminders, triggers, a project lock).
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...schemas.events.parts import Trigger
from ...schemas.ids import is_id, why_not_an_id
from .output_sink import Stop

if TYPE_CHECKING:
    from ...log.blobs import BlobStore
    from ...producers.memory import MemoryWriter, Written
    from .children import Children
    from .side_log import SideLog

REQUESTS_MAX = 16  # limit of triggers, and of reminders, of one call, since the event holds them
REMINDER_CHARS_MAX = 4_000  # a reminder is never cut in the prompt: about 1,500 tokens


class Abort:
    """Signals that the run must end. An Abort is true once the run must end, and a tool can also
    await it.

    Use `if ctx.aborted:` in a loop, or `await ctx.aborted` beside the work. A tool that has used
    its Abort gets time to end by itself; any other tool is cancelled at once.
    """

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self.watched = False

    @property
    def why(self) -> str | None:
        """The reason, or None while the run may continue."""
        return self._stop.why

    def __bool__(self) -> bool:
        self.watched = True
        return self._stop.requested

    def __await__(self) -> Generator[object, None, str]:
        self.watched = True
        return self._stop.wait().__await__()

    def wait_blocking(self, timeout_s: float | None = None) -> bool:
        """Wait in a tool's own thread, at most timeout_s seconds.
        Returns whether the run must end."""
        self.watched = True
        waiting = asyncio.run_coroutine_threadsafe(self._stop.wait(), self._loop)
        try:
            waiting.result(timeout_s)
        except TimeoutError:
            waiting.cancel()
        return self._stop.requested


class ScopeMemory(Protocol):
    """The memory of one scope at one moment. why: the reason of the last refused event, or ''."""

    @property
    def why(self) -> str: ...
    @property
    def loadable(self) -> str: ...
    @property
    def open_todo_ids(self) -> tuple[str, ...]: ...
    def author_of(self, entry_id: str) -> str | None: ...
    def path_of(self, entry_id: str) -> str | None: ...
    def lines(self, path: str) -> str: ...
    def preference(self, name: str) -> str | None: ...
    def todo_status(self, todo_id: str) -> str | None: ...


class MemoryQueries(Protocol):
    """What tools ask of memory. The texts are framed for a model."""

    def scope(self, scope: str) -> ScopeMemory: ...
    def load(self, scopes: Sequence[str], path: str) -> str | None: ...
    def search_text(self, query: str, scopes: Sequence[str]) -> str | None: ...
    def todos(self, scope: str) -> str: ...


class Memory(Protocol):
    """The memory of a worker, as its tools use it; memory/service.py keeps it."""

    @property
    def reader(self) -> MemoryQueries: ...
    def writer(self, user: str, role: str) -> MemoryWriter: ...
    def await_folded(self, written: Written) -> bool: ...
    def await_caught_up(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolatedContext:
    """What an isolated tool gets as its first parameter, if it has one of this type.

    It has the values of ToolContext that another process can have. What belongs to the worker
    (children, blobs, memory, side_log, reminders and triggers) is missing. An isolated tool may
    start processes as any program does: they end with it.
    """

    session_id: str
    call_key: str
    attempt: int
    result_tokens: int
    workdir: Path | None = None
    user_id: str = ""
    project_id: str | None = None
    approved: bool = False

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt of this call, for example for a payment API."""
        return f"{self.session_id}/{self.call_key}"


@dataclass(kw_only=True, eq=False, repr=False)
class ToolContext:
    """One run of one tool call. `call_key` is TURN.STEP.INDEX, `attempt` counts from 1.

    result_tokens: the limit on the result in tokens; a longer result is cut, so a tool that can
    return less should do so. user_id, project_id: the session's. claim_offset: the offset of this
    run's claim in the session's partition. memory: the agent's memory across sessions; None if the
    worker keeps none. refs: references to the stored results that the tool may read. approved: True
    if this call needed approval and was approved.
    """

    session_id: str
    call_key: str
    attempt: int
    aborted: Abort
    side_log: SideLog
    children: Children
    blobs: BlobStore
    result_tokens: int
    workdir: Path | None = None
    user_id: str = ""
    project_id: str | None = None
    claim_offset: int | None = None
    memory: Memory | None = None
    refs: frozenset[str] = frozenset()
    approved: bool = False
    triggers: list[Trigger] = field(default_factory=list, init=False)
    reminders: list[str] = field(default_factory=list, init=False)

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt of this call, for example for a payment API."""
        return f"{self.session_id}/{self.call_key}"

    def remind(self, text: str) -> None:
        """Send a text to the model once, in the next request. Raises ValueError if the text is
        empty or too long, or if the call has requested too many reminders."""
        if not text or len(text) > REMINDER_CHARS_MAX:
            raise ValueError(f"a reminder has 1-{REMINDER_CHARS_MAX} characters, not {len(text)}")
        self._room(self.reminders, "reminders")
        self.reminders.append(text.encode("utf-8", "replace").decode())  # an event is UTF-8

    def trigger(self, name: str) -> None:
        """Request a phase transition, which takes place if the call ends ok. Raises ValueError if
        the name is invalid or the call has requested too many triggers."""
        if not is_id(name):
            raise ValueError(why_not_an_id("a trigger", name))
        self._room(self.triggers, "triggers")
        self.triggers.append(Trigger(trigger=name))

    def lock_project(self, project_id: str) -> None:
        """Request that the session be locked to a project, which happens if the call ends ok.
        Raises ValueError if the id is invalid or the call has requested too many triggers."""
        if not is_id(project_id):
            raise ValueError(why_not_an_id("a project id", project_id))
        self._room(self.triggers, "triggers")
        self.triggers.append(Trigger(project_id=project_id))

    @staticmethod
    def _room(requests: list[Any], what: str) -> None:
        if len(requests) >= REQUESTS_MAX:
            raise ValueError(f"one call may request at most {REQUESTS_MAX} {what}")
