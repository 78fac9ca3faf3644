"""Drives the engine of `foldlog.testing` from synchronous tests, to test what an agent's run never
shows.

A test states the messages and the model's rules, and inspects the log, the views and the server's
journal. The test also decides when tools and background work run: see `hold`.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from foldlog.local.messages_api import ScriptedServer
from foldlog.processors.agent import Agent
from foldlog.processors.effects.ports import (
    Begin,
    BeginGeneration,
    BeginTool,
    BeginWork,
    EffectId,
)
from foldlog.processors.fold.views import SessionViews
from foldlog.schemas.codec import entry_of
from foldlog.testing.engine import Effects, Engine
from foldlog.tests.kit.manual_worker import SESSION, message, opened
from foldlog.tests.laws.request_rules import violations

Held = BeginTool | BeginWork


class Driven(Engine):
    """Drives one session. `hold`: the kinds of background work (or "tool") to claim but not to run;
    `held`: the claimed effects that wait; `generations`: the model calls; `stopped`: the claims of
    the effects that the worker stopped."""

    def __init__(self, agent: Agent, server: ScriptedServer, directory: Path) -> None:
        self.server = server
        self.hold: set[str] = set()
        self.held: list[Held] = []
        self.generations: list[BeginGeneration] = []
        self.stopped: list[int] = []
        self._messages = 0
        self._runner = asyncio.Runner()
        super().__init__([agent], server.base_url, directory)
        self.put("producer", opened(agent.name))

    def new_effects(self) -> "DrivenEffects":
        return DrivenEffects(self)

    def restart(self, agent: Agent | None = None) -> None:
        """Kills the worker and starts another one, which may have another version of the agent."""
        self.agents = [agent or self.agent]
        self.held.clear()
        super().restart()

    @property
    def agent(self) -> Agent:
        """The session's agent."""
        return self.agents[0]

    # -- the actions of a test -------------------------------------------------------------------

    def put(self, writer: str, event: Any) -> None:
        """Appends an event in the name of any writer."""
        self.write(SESSION, writer, event)

    def say(self, text: str, when_busy: str = "queue") -> "Driven":
        """Sends a message in the name of the user."""
        self._messages += 1
        event = message(f"m{self._messages}", when_busy, text, channel="test")
        body = self.blobs.body(event.content.inline, "application/json")
        self.put("producer", replace(event, content=body))
        return self

    def read(self) -> None:
        """Lets the worker read and decide once, and runs no effect."""
        self.worker.consume(self.reader.poll(0, 1000))

    def run(self) -> "Driven":
        """Runs the worker and its effects until no work is left."""
        assert self._runner.run(self.settle()), "the worker never becomes idle"
        return self

    def release(self, *begins: Held) -> "Driven":
        """Queues these held effects, or all of them."""
        for begin in begins or tuple(self.held):
            self.held.remove(begin)
            Effects.begin(self.effects, SESSION, begin)
        return self

    def run_effects(self) -> None:
        """Runs the queued effects; the worker reads nothing."""
        while self.queue:
            self._runner.run(self.queue.pop(0)())

    def close(self) -> None:
        """Closes the event loop."""
        self._runner.close()

    # -- what a test inspects --------------------------------------------------------------------

    @property
    def views(self) -> SessionViews:
        """The session's views in the worker's memory."""
        views = self.worker.owned[0].views(SESSION)
        assert views is not None and views.frozen is None, views and views.frozen
        return views

    def events(self, kind: type) -> list[Any]:
        """Every event of a type in the log."""
        events = (entry_of(record).event for record in self.records())
        return [event for event in events if isinstance(event, kind)]

    def check(self) -> None:
        """Asserts that the newest request obeys every rule of the builder."""
        assert violations(self.views, self.read_blob) == []


class DrivenEffects(Effects):
    """The effects of the engine; a test observes them and can hold them back."""

    _engine: Driven

    def begin(self, session_id: str, begin: Begin) -> None:
        match begin:
            case BeginGeneration(recovers=False):
                self._engine.generations.append(begin)
            case BeginTool(recovers=False) if "tool" in self._engine.hold:
                self._engine.held.append(begin)
                return
            case BeginWork() if begin.kind in self._engine.hold:
                self._engine.held.append(begin)
                return
        super().begin(session_id, begin)

    def stop(self, effect: EffectId, why: str) -> bool:
        self._engine.stopped.append(effect.claim_offset)
        return super().stop(effect, why)
