"""A session driven for real: the worker's core on a log in memory, effects against an HTTP server.

Model calls, background work and tools run as in a worker, one after the other; the scripted server
is strict about every request. So a test says what people and the model say, and looks at the log,
the views and the server's journal. A test says when background work ends: see `hold`.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

from foldlog.local.messages_api import ScriptedServer
from foldlog.log.blobs import BlobStore
from foldlog.log.memory import MemoryLog
from foldlog.processors.agent import Agent
from foldlog.processors.effects import background
from foldlog.processors.effects.models import call as models
from foldlog.processors.effects.slots import Slots
from foldlog.processors.fold.rulings.producers import RULES
from foldlog.processors.fold.views import SessionViews
from foldlog.processors.store.store import DictBackend, Store
from foldlog.processors.tools import call as tools
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.tools.side_log import SideLogStore
from foldlog.processors.worker.actions import Actions, BeginTool, BeginWork
from foldlog.processors.worker.assemble import ROLES
from foldlog.processors.worker.loop import Mailbox, appender
from foldlog.processors.worker.reports import ROLE_OF
from foldlog.processors.worker.status import status_of
from foldlog.processors.worker.worker import Identity, Worker
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode, entry_of, headers_for
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.laws.request_rules import violations

SESSION, USER = "s", "u"
ROUNDS_MAX = 500


class Driven:
    """See the module. `hold`: kinds of background work that are claimed and not yet done."""

    def __init__(self, agent: Agent, server: ScriptedServer, directory: Path) -> None:
        self.ms = 1_700_000_000_000
        self.agent, self.server = agent, server
        self.log = MemoryLog(topics(1), clock_ms=lambda: self.ms)
        self.blobs = BlobStore(directory / "blobs")
        self.side_log = SideLogStore(directory / "side")
        self.begun: list[tuple[str, Any]] = []
        self.hold: set[str] = set()
        self.held: list[BeginWork] = []
        self.stopped: list[int] = []
        self.said: list[str] = []
        self._messages = 0
        self._runner = asyncio.Runner()
        self._client: Any = None
        self.worker = self._worker("1", {})
        self.reader = self.log.reader(SESSION_EVENTS, {})
        self.reader.add(self.worker.assigned([0]))
        self.write("producer", ev.SessionOpened(user_id=USER, agent=agent.name, rules=RULES))

    def _worker(self, incarnation: str, disk: dict) -> Worker:
        identity = Identity("w", incarnation)
        actions = Actions(
            identity.owner,
            appender(self.log.producer(), Mailbox()),
            self,
            self.blobs.body,
            lambda ref: self.blobs.get(ref.sha256),
            Slots(9),
            Slots(9),
            self,
            self.said.append,
        )

        def open_store(partition: int, *, fresh: bool) -> Store:
            end = self.log.end_offsets(SESSION_EVENTS)[partition]
            return Store(DictBackend(disk), log_end=end)

        return Worker(identity, ROLES, [self.agent], open_store, actions, self, self.said.append)

    def restart(self) -> None:
        """The worker is gone with all that it held; a new one folds the log anew."""
        incarnation = str(int(self.worker.identity.incarnation) + 1)
        self.begun, self.held = [], []
        self.worker = self._worker(incarnation, {})
        self.reader = self.log.reader(SESSION_EVENTS, {})
        self.reader.add(self.worker.assigned([0]))

    # -- the clock -------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    # -- the effects -----------------------------------------------------------------------------

    def generate(self, session_id: str, begin: Any) -> None:
        self.begun.append(("generate", begin))

    def run_tool(self, session_id: str, begin: BeginTool) -> None:
        self.begun.append(("run_tool", begin))

    def work(self, session_id: str, begin: BeginWork) -> None:
        if begin.kind in self.hold:
            self.held.append(begin)
        else:
            self.begun.append(("work", begin))

    def report(self, session_id: str, event: Any) -> None:
        self.write(ROLE_OF[type(event)], event)

    def stop(self, session_id: str, claim_offset: int, why: str) -> bool:
        self.stopped.append(claim_offset)
        return True

    def running(self, role: str) -> int:
        return 0

    # -- the sink --------------------------------------------------------------------------------

    def chunk(self, session_id: str, event: ev.GenChunk) -> None:
        self.write("models", event)

    async def outcome(self, session_id: str, event: Any) -> None:
        self.write(ROLE_OF[type(event)], event)

    # -- what a test does ------------------------------------------------------------------------

    def write(self, writer: str, event: Any) -> int:
        """Somebody writes an event; its offset."""
        self.ms += 1
        headers = tuple(headers_for(event, writer))
        return self.log.store(SESSION_EVENTS, 0, SESSION.encode(), encode(event), headers).offset

    def say(self, words: str, when_busy: str = "queue") -> "Driven":
        """A person says something."""
        self._messages += 1
        content = json.dumps([{"type": "text", "text": words}]).encode()
        self.write(
            "producer",
            ev.MessageReceived(
                message_id=f"m{self._messages}",
                role="user",
                content=self.blobs.body(content, "application/json"),
                tokens=len(words) // 3,
                channel="test",
                when_busy=when_busy,
                by_user=USER,
            ),
        )
        return self

    def run(self, rounds: int = ROUNDS_MAX) -> "Driven":
        """Let the worker and its effects go on until nothing more comes of it."""
        for _ in range(rounds):
            records = self.reader.poll(0, 1000)
            if records:
                self.worker.consume(records)
            elif self.begun:
                self.do(*self.begun.pop(0))
            else:
                self.worker.tick()
                if not self.reader_behind():
                    return self
        raise AssertionError("it never comes to rest")

    def reader_behind(self) -> bool:
        """Whether the log has what the worker has not read."""
        end = self.log.end_offsets(SESSION_EVENTS)[0]
        return self.worker.owned[0].next_offset < end or bool(self.begun)

    def release(self) -> "Driven":
        """Do the background work that was held."""
        self.begun += [("work", begin) for begin in self.held]
        self.held = []
        return self

    def do(self, what: str, begin: Any) -> None:
        """Run one effect to its end."""
        effects = {"generate": self._generate, "run_tool": self._tool, "work": self._work}
        self._runner.run(effects[what](begin))

    async def _get_client(self) -> Any:
        if self._client is None:
            self._client = models.make_client("key", self.server.base_url)
        return self._client

    def close(self) -> None:
        """Close the connections to the server."""
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

    # -- what a test looks at --------------------------------------------------------------------

    @property
    def views(self) -> SessionViews:
        """The session as the worker has it."""
        views = self.worker.owned[0].views(SESSION)
        assert views is not None and views.frozen is None, views and views.frozen
        return views

    def events(self, kind: type) -> list[Any]:
        """Every event of a type in the log."""
        found = map(entry_of, self.log.records(SESSION_EVENTS, 0))
        return [entry.event for entry in found if isinstance(entry.event, kind)]

    def owed(self) -> dict[str, Any]:
        """What the worker says of itself."""
        return status_of(self.worker)

    def check(self) -> None:
        """Every rule of the builder holds of the newest request."""
        assert violations(self.views, lambda ref: self.blobs.get(ref.sha256)) == []
