"""A worker ends while one of its tools is still running."""

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
from foldlog.tests.kit.played import settings_in
from foldlog.tests.processors.worker.test_effects_host import begin_tool


def test_law6_the_lock_is_held_while_a_tool_that_ignores_its_abort_runs(tmp_path, monkeypatch):
    """A free lock proves that its owner is dead. If the lock were free, another worker would run
    the tool at the same time."""
    monkeypatch.setattr(assemble, "open_log", lambda _settings: MemoryLog(topics(1)))
    monkeypatch.setattr(effects_host, "SHUTDOWN_S", 0.05)
    settings = replace(settings_in(tmp_path), partitions=1)
    parts = Parts(settings, [Agent(name="a", model="m")], ("tools",), None)
    began, release = threading.Event(), threading.Event()

    def ignores_abort() -> str:
        """Runs until the test ends it."""
        began.set()
        release.wait(60)
        return "done"

    parts.effects.begin("s", begin_tool(ignores_abort, "once"))
    assert began.wait(10)
    try:
        parts.close()
        with pytest.raises(StateDirTaken):
            StateDir(settings.state_dir)
    finally:
        release.set()
        loop = parts.effects._loop  # here the process continues, so the loop must be ended
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks))
        loop.close()
