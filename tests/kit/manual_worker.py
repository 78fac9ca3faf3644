"""One real worker on an in-memory log, run by hand, for histories in which the order matters.

Effects are recorded and never run; the test writes their outcomes. The clock advances only when a
test advances it.
"""

from typing import Any

from foldlog.log.memory import MemoryLog
from foldlog.processors.agent import Agent
from foldlog.processors.effects.slots import Slots
from foldlog.processors.fold.rulings.producers import RULES
from foldlog.processors.store.store import DictBackend, Store
from foldlog.processors.worker.actions import Actions
from foldlog.processors.worker.loop import Mailbox, appender
from foldlog.processors.worker.worker import Identity, Worker, WorkerParts
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode, entry_of, headers_for
from foldlog.schemas.events.parts import ReadBlob
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.kit import answers
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.blobs import MemoryBlobs
from foldlog.tests.kit.recorded_actions import RecordedEffects

SESSION, USER = "s", "u"
ROLES = ("sessions", "models", "tools")
INLINE = MemoryBlobs(inline_max=2**30)


class ManualWorker(RecordedEffects):
    """One worker, see the module docstring. `lines`: the worker's log lines."""

    def __init__(
        self,
        agent: Agent,
        incarnation: str = "1",
        log: MemoryLog | None = None,
        read_blob: ReadBlob = lambda ref: b"",
        roles: tuple[str, ...] = ROLES,
        slots: int = 9,
        **parts: Any,
    ) -> None:
        """parts: further WorkerParts."""
        super().__init__()
        self._parts = parts
        self.ms = 1_700_000_000_000
        self.agent = agent
        self.log = log or MemoryLog(topics(1), clock_ms=lambda: self.ms)
        self.disk: dict[bytes, bytes] = {}
        self.lines: list[str] = []
        self._actions_of = lambda owner: Actions(
            owner, appender(self.log.producer(), Mailbox()), self, INLINE.body, read_blob,
            Slots(slots), Slots(slots), self, self.lines.append,
        )
        self._roles = roles
        self._start(incarnation)

    def _start(self, incarnation: str) -> None:
        identity = Identity("w", incarnation)
        actions, say = self._actions_of(identity.owner), self.lines.append
        self.worker = Worker(
            WorkerParts(
                identity=identity, roles=self._roles, agents=[self.agent], open_store=self._open,
                actions=actions, clock=self, say=say, **self._parts,
            )
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

    # -- the actions of a test -------------------------------------------------------------------

    def assign(self) -> None:
        """Assign the partition to the worker, as the consumer group would."""
        self.reader.add(self.worker.assigned([0]))

    def revoke(self) -> None:
        """Revoke the partition, as the consumer group would."""
        self.reader.drop([0])
        self.worker.revoked([0])

    def write(self, writer: str, event: Any, key: str = SESSION) -> int:
        """Append an event in the name of any writer, and return its offset."""
        headers = tuple(headers_for(event, writer))
        return self.log.store(SESSION_EVENTS, 0, key.encode(), encode(event), headers).offset

    def read(self, records_max: int = 1000) -> None:
        """Poll once, for at most `records_max` records."""
        self.worker.consume(self.reader.poll(0, records_max))

    def settle(self) -> None:
        """Poll until the worker writes nothing more."""
        end = -1
        while end != self.log.end_offsets(SESSION_EVENTS)[0]:
            end = self.log.end_offsets(SESSION_EVENTS)[0]
            self.read()

    def settle_takes(self) -> None:
        """Poll the records that are in the log now, including the worker's PARTITION_TAKEN, and
        none that are written later."""
        self.read(self.log.end_offsets(SESSION_EVENTS)[0])

    def entries(self, kind: type) -> list[Any]:
        """Every entry in the log whose event has this type."""
        entries = map(entry_of, self.log.records(SESSION_EVENTS, 0))
        return [entry for entry in entries if isinstance(entry.event, kind)]

    def events(self, kind: type) -> list[Any]:
        """Every event of a type in the log."""
        return [entry.event for entry in self.entries(kind)]


def opened(agent: str) -> ev.SessionOpened:
    """The event that opens a session of the user."""
    return ev.SessionOpened(user_id=USER, agent=agent, rules=RULES)


def message(
    message_id: str = "m1", when_busy: str = "queue", words: str = "hi", channel: str = "c"
) -> ev.MessageReceived:
    """The event of a message from the user."""
    content = f"[{answers.text(words)}]".encode()
    return ev.MessageReceived(
        message_id=message_id,
        role="user",
        content=ev.Body(inline=content),
        tokens=len(content) // 3,
        channel=channel,
        when_busy=when_busy,
        by_user=USER,
    )


def answered(*calls: Use, turn: int = 1, step: int = 1, attempt: int = 1) -> ev.GenComplete:
    """A whole answer that makes these calls. Without calls, it ends the turn."""
    blocks, stop = (list(calls), "tool_use") if calls else ([answers.text("done")], "end_turn")
    return answers.complete((turn, step, attempt), blocks, stop, INLINE)


def call(name: str, index: int = 0) -> Use:
    """A tool call without arguments."""
    return Use(name, id=f"c{index}")
