"""Reads the prompt layers of a worker's sessions: instruction files, and memory.

It reads no memory if the worker has no memory service.

A problem with a file is reported to the operator once, and never stops a turn.
"""

from collections.abc import Callable

from ...log.settings import Settings
from ...schemas.memory_paths import PROJECT, scope_of
from ..agent import Agent
from ..fold.views import SessionViews
from ..memory.service import MemoryService
from ..request.layers import Layers
from .instruction_files import places_of, read_layers

REPORTED_MAX = 1_000  # notices remembered as reported; further notices are not reported


class LayersReader:
    """Reads the layers of a session's prefix, for its user and project."""

    def __init__(
        self, settings: Settings, memory: MemoryService | None, say: Callable[[str], None]
    ) -> None:
        self._places = places_of(settings)
        self._memory = memory
        self._say = say
        self._reported: set[str] = set()

    def __call__(self, agent: Agent, views: SessionViews) -> Layers:
        """The current content of the files and the memory. A bad file causes no exception."""
        memory = self._memory_of(agent)
        layers = read_layers(
            agent,
            places=self._places,
            memory=memory.reader if memory is not None else None,
            user_id=views.state.user_id or "",
            project_id=views.state.project_id,
        )
        for notice in layers.notices:
            if notice not in self._reported and len(self._reported) < REPORTED_MAX:
                self._reported.add(notice)
                self._say(f"prompts of agent {agent.name}: {notice}")
        return layers

    def todos(self, agent: Agent, views: SessionViews) -> str:
        """The open todos of the session's project, framed as data; '' if there are none."""
        project_id = views.state.project_id
        memory = self._memory_of(agent)
        if memory is None or project_id is None:
            return ""
        return memory.reader.todos(scope_of(PROJECT, project_id))

    def _memory_of(self, agent: Agent) -> MemoryService | None:
        """The memory for an agent, or None if the agent has no memory. Waits until the memory store
        has folded the records that existed when the worker started.
        """
        if self._memory is None or not agent.memory:
            return None
        self._memory.await_start()
        return self._memory
