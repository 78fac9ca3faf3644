"""A worker that ends while a tool of it runs on: what others may conclude, and what not."""

import asyncio
import threading
from dataclasses import replace

import pytest

from foldlog.log.memory import MemoryLog
from foldlog.processors.agent import Agent
from foldlog.processors.store.state_dir import StateDir, StateDirTaken
from foldlog.processors.worker import assemble, effects_host
from foldlog.processors.worker.assemble import Parts
from foldlog.schemas.topics import topics
from foldlog.tests.consumers.played import settings_in
from foldlog.tests.processors.worker.test_effects_host import begin_tool


def test_law6_a_lock_is_not_free_while_a_tool_runs_that_ignores_its_abort(tmp_path, monkeypatch):
    """A free lock is proof that its owner is dead: its tool would be run again beside it."""
    monkeypatch.setattr(assemble, "open_log", lambda _settings: MemoryLog(topics(1)))
    monkeypatch.setattr(effects_host, "FAREWELL_S", 0.05)
    settings = replace(settings_in(tmp_path), partitions=1)
    parts = Parts(settings, [Agent(name="a", model="m")], ("tools",), None)
    began, goes_on = threading.Event(), threading.Event()

    def stubborn() -> str:
        """Runs on."""
        began.set()
        goes_on.wait(60)
        return "done"

    parts.effects.run_tool("s", begin_tool(stubborn, "once"))
    assert began.wait(10)
    try:
        parts.close()
        with pytest.raises(StateDirTaken):
            StateDir(settings.state_dir)
    finally:
        goes_on.set()
        loop = parts.effects._loop  # the process would have ended
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks))
        loop.close()
