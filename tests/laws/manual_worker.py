"""One real worker on an in-memory log, driven by hand: for histories that a law was broken by.

Effects are only noted; the test writes their outcomes. The clock stands still until it is moved.
"""

from typing import Any

from foldlog.log.memory import MemoryLog
from foldlog.processors.agent import Agent
from foldlog.processors.effects.slots import Slots
from foldlog.processors.fold.rulings.producers import RULES
from foldlog.processors.store.store import DictBackend, Store
from foldlog.processors.worker.actions import Actions
from foldlog.processors.worker.loop import Mailbox, appender
from foldlog.processors.worker.worker import Identity, Worker
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode, entry_of, headers_for
from foldlog.schemas.events.parts import ReadBlob
from foldlog.schemas.topics import SESSION_EVENTS, topics

SESSION, USER = "s", "u"
ROLES = ("sessions", "models", "tools")


class Rig:
    """`began`: (what, begin) of effects; `reported`: outcomes that no effect makes."""

    def __init__(
        self,
        agent: Agent,
        incarnation: str = "1",
        log: MemoryLog | None = None,
        read_blob: ReadBlob = lambda ref: b"",
        roles: tuple[str, ...] = ROLES,
        slots: int = 9,
    ) -> None:
        self.ms = 1_000_000
        self.log = log or MemoryLog(topics(1), clock_ms=lambda: self.ms)
        self.began: list[tuple[str, Any]] = []
        self.reported: list[Any] = []
        self.disk: dict[bytes, bytes] = {}
        identity = Identity("w", incarnation)
        actions = Actions(
            identity.owner,
            appender(self.log.producer(), Mailbox()),
            self,
            lambda data, media_type: ev.Body(inline=data),
            read_blob,
            Slots(slots),
            Slots(slots),
            self,
            lambda text: None,
        )
        self.worker = Worker(
            identity, roles, [agent], self._open, actions, self, lambda text: None
        )
        self.reader = self.log.reader(SESSION_EVENTS, {})

    def _open(self, partition: int, *, fresh: bool) -> Store:
        if fresh:
            self.disk.clear()
        end = self.log.end_offsets(SESSION_EVENTS)[partition]
        return Store(DictBackend(self.disk), log_end=end)

    # -- the clock -------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    # -- the effects -----------------------------------------------------------------------------

    def generate(self, session_id: str, begin: Any) -> None:
        self.began.append(("generate", begin))

    def run_tool(self, session_id: str, begin: Any) -> None:
        self.began.append(("run_tool", begin))

    def reconcile(self, session_id: str, begin: Any) -> None:
        self.began.append(("reconcile", begin))

    def work(self, session_id: str, begin: Any) -> None:
        self.began.append(("work", begin))

    def deliver(self, session_id: str, begin: Any) -> None:
        self.began.append(("deliver", begin))

    def recover_chunks(self, session_id: str, partition: int, begin: Any) -> None:
        self.began.append(("recover_chunks", begin))

    def report(self, session_id: str, event: Any) -> None:
        self.reported.append(event)

    def stop(self, session_id: str, claim_offset: int, why: str) -> bool:
        return False

    def running(self, role: str) -> int:
        return 0

    # -- what a test does ------------------------------------------------------------------------

    def assign(self) -> None:
        """The group gives it the partition."""
        self.reader.add(self.worker.assigned([0]))

    def revoke(self) -> None:
        """The group takes the partition away."""
        self.reader.drop([0])
        self.worker.revoked([0])

    def write(self, writer: str, event: Any, key: str = SESSION) -> int:
        """Somebody writes an event; its offset."""
        told = self.log.store(
            SESSION_EVENTS, 0, key.encode(), encode(event), tuple(headers_for(event, writer))
        )
        return told.offset

    def read(self, records_max: int = 1000) -> None:
        """One poll of so many records."""
        self.worker.consume(self.reader.poll(0, records_max))

    def settle(self) -> None:
        """Read until nothing new comes of it."""
        end = -1
        while end != self.log.end_offsets(SESSION_EVENTS)[0]:
            end = self.log.end_offsets(SESSION_EVENTS)[0]
            self.read()

    def settle_takes(self) -> None:
        """Read up to its takes, and nothing that it writes then."""
        self.read(self.log.end_offsets(SESSION_EVENTS)[0])

    def entries(self, kind: type) -> list[Any]:
        """Every entry of a type in the log."""
        entries = map(entry_of, self.log.records(SESSION_EVENTS, 0))
        return [entry for entry in entries if isinstance(entry.event, kind)]

    def events(self, kind: type) -> list[Any]:
        """Every event of a type in the log."""
        return [entry.event for entry in self.entries(kind)]


def opened(agent: str) -> ev.SessionOpened:
    """A session of the user."""
    return ev.SessionOpened(user_id=USER, agent=agent, rules=RULES)


def said(message_id: str = "m1", when_busy: str = "queue") -> ev.MessageReceived:
    """A message of the user."""
    return ev.MessageReceived(
        message_id=message_id,
        role="user",
        content=ev.Body(inline=b'[{"type":"text","text":"hi"}]'),
        tokens=1,
        channel="c",
        when_busy=when_busy,
        by_user=USER,
    )


def answered(*calls: ev.ProposedCall, turn: int = 1, step: int = 1, attempt: int = 1):
    """A whole answer that asks for these calls, or ends the turn."""
    uses = ",".join(
        f'{{"type":"tool_use","id":"{c.call_id}","name":"{c.name}","input":{{}}}}' for c in calls
    )
    text = f"[{uses}]" if calls else '[{"type":"text","text":"done"}]'
    zero = ev.Usage(
        input_tokens=1,
        cache_read_tokens=0,
        cache_write_5m_tokens=0,
        cache_write_1h_tokens=0,
        output_tokens=1,
        raw=b"{}",
    )
    return ev.GenComplete(
        turn=turn,
        step=step,
        attempt=attempt,
        content=ev.Body(inline=text.encode()),
        calls=calls,
        stop_reason="tool_use" if calls else "end_turn",
        response_id="r",
        model="m",
        usage=zero,
    )


def call(name: str, index: int = 0) -> ev.ProposedCall:
    """One call without arguments."""
    return ev.ProposedCall(
        index=index,
        call_id=f"c{index}",
        name=name,
        args=ev.Body(inline=b"{}"),
        args_sha256="0" * 64,
    )
