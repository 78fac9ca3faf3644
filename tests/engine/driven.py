"""A session driven for real: the worker's core on a log in memory, effects against an HTTP server.

Model calls, background work and tools run as in a worker, one after the other; the scripted server
is strict about every request. A test states the messages and the model's replies, and inspects the
log, the views and the server's journal. It also decides when background work ends: see `hold`.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from foldlog.local.messages_api import ScriptedServer
from foldlog.log.blobs import BlobStore
from foldlog.processors.agent import Agent
from foldlog.processors.effects import background
from foldlog.processors.effects.models import call as models
from foldlog.processors.fold.views import SessionViews
from foldlog.processors.tools import call as tools
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.tools.side_log import SideLogStore
from foldlog.processors.worker.actions import BeginTool, BeginWork
from foldlog.processors.worker.assemble import ROLES
from foldlog.processors.worker.reports import ROLE_OF
from foldlog.processors.worker.status import status_of
from foldlog.schemas import events as ev
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.laws.manual_worker import SESSION, ManualWorker, message, opened
from foldlog.tests.laws.request_rules import violations

ROUNDS_MAX = 500


class Driven(ManualWorker):
    """See the module. `hold`: the kinds of background work that are claimed but not run."""

    def __init__(self, agent: Agent, server: ScriptedServer, directory: Path) -> None:
        self.server = server
        self.blobs = BlobStore(directory / "blobs")
        self.side_log = SideLogStore(directory / "side")
        self.hold: set[str] = set()
        self.held: list[BeginWork] = []
        self._messages = 0
        self._runner = asyncio.Runner()
        self._client: Any = None
        super().__init__(
            agent,
            roles=ROLES,
            store_body=self.blobs.body,
            read_blob=lambda ref: self.blobs.get(ref.sha256),
        )
        self.assign()
        self.write("producer", opened(agent.name))

    def restart(self) -> None:
        """Kills the worker with its memory and store; a new one folds the log from its start."""
        self.begins, self.held, self.disk = [], [], {}
        self._start(str(int(self.worker.identity.incarnation) + 1))
        self.assign()

    # -- the effects -----------------------------------------------------------------------------

    def work(self, session_id: str, begin: BeginWork) -> None:
        if begin.kind in self.hold:
            self.held.append(begin)
        else:
            super().work(session_id, begin)

    def report(self, session_id: str, event: Any) -> None:
        self.write(ROLE_OF[type(event)], event)

    # -- the sink --------------------------------------------------------------------------------

    def chunk(self, session_id: str, event: ev.GenChunk) -> None:
        self.write("models", event)

    async def outcome(self, session_id: str, event: Any) -> None:
        self.write(ROLE_OF[type(event)], event)

    # -- the actions of a test -------------------------------------------------------------------

    def write(self, writer: str, event: Any, key: str = SESSION) -> int:
        """Appends an event one ms later and returns its offset."""
        self.ms += 1
        return super().write(writer, event, key)

    def say(self, text: str, when_busy: str = "queue") -> "Driven":
        """Sends a message of the user."""
        self._messages += 1
        event = message(f"m{self._messages}", when_busy, text, channel="test")
        body = self.blobs.body(event.content.inline, "application/json")
        self.write("producer", replace(event, content=body))
        return self

    def run(self, rounds: int = ROUNDS_MAX) -> "Driven":
        """Runs the worker and its effects until no work is left."""
        for _ in range(rounds):
            records = self.reader.poll(0, 1000)
            if records:
                self.worker.consume(records)
            elif self.begins:
                self.do(*self.begins.pop(0))
            else:
                self.worker.tick()
                if not self.reader_behind():
                    return self
        raise AssertionError("the worker never becomes idle")

    def reader_behind(self) -> bool:
        """Reports whether the worker has unread records or effects to run."""
        end = self.log.end_offsets(SESSION_EVENTS)[0]
        return self.worker.owned[0].next_offset < end or bool(self.begins)

    def release(self) -> "Driven":
        """Queues the background work that was held back."""
        self.begins += [("work", begin) for begin in self.held]
        self.held = []
        return self

    def do(self, what: str, begin: Any) -> None:
        """Runs one effect to its end."""
        effects = {"generate": self._generate, "run_tool": self._tool, "work": self._work}
        self._runner.run(effects[what](begin))

    async def _get_client(self) -> Any:
        if self._client is None:
            self._client = models.make_client("key", self.server.base_url)
        return self._client

    def close(self) -> None:
        """Closes the connections to the server."""
        if self._client is not None:
            self._runner.run(self._client.close())
        self._runner.close()

    async def _generate(self, begin: Any) -> None:
        claim = models.GenClaim(
            session_id=SESSION,
            turn=begin.turn,
            step=begin.step,
            attempt=begin.attempt,
            claimed_at=begin.claim.at,
        )
        await models.generate(
            claim,
            begin.request,
            self,
            Stop(),
            await self._get_client(),
            limits=begin.agent.limits,
            store_body=self.blobs.body,
        )

    async def _tool(self, begin: BeginTool) -> None:
        call, tool = begin.call, begin.agent.tool(begin.call.name)
        claim = tools.ToolClaim(
            session_id=SESSION,
            turn=call.turn,
            step=call.step,
            index=call.index,
            attempt=call.attempt,
            name=call.name,
            effect=call.effect,
            approval="none",
            args_sha256=call.args_sha256,
            timeout_ms=begin.agent.limits.tool_timeout_ms,
            refs=begin.refs,
        )
        host = tools.ToolHost.of(begin.agent, self.blobs, self.side_log)
        await tools.run(claim, tool, begin.args, self, Stop(), host)

    async def _work(self, begin: BeginWork) -> None:
        claim = background.WorkClaim(
            SESSION, begin.kind, begin.upto, begin.attempt, begin.claim.at
        )
        await background.work(
            claim,
            begin.task,
            begin.agent,
            self,
            Stop(),
            self._get_client,
            blobs=self.blobs,
        )

    # -- what a test inspects --------------------------------------------------------------------

    @property
    def views(self) -> SessionViews:
        """The session's views in the worker."""
        views = self.worker.owned[0].views(SESSION)
        assert views is not None and views.frozen is None, views and views.frozen
        return views

    def owed(self) -> dict[str, Any]:
        """The status that the worker reports."""
        return status_of(self.worker)

    def check(self) -> None:
        """Asserts that the newest request obeys every rule of the builder."""
        assert violations(self.views, lambda ref: self.blobs.get(ref.sha256)) == []
