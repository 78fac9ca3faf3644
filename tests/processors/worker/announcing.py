"""The core of a worker for the role `sessions` that tells tabs of its sessions, over any log.

Its disk outlives it: `restart` is a new incarnation, with or without what was on its way.
"""

from foldlog.log.door import Log
from foldlog.log.errors import LogBusy
from foldlog.processors.effects.slots import Slots
from foldlog.processors.store.store import DictBackend, Store
from foldlog.processors.worker.actions import Actions
from foldlog.processors.worker.announce import announce
from foldlog.processors.worker.assemble import SystemClock
from foldlog.processors.worker.loop import Mailbox, appender
from foldlog.processors.worker.worker import Identity, Worker
from foldlog.schemas.topics import SESSION_EVENTS, USER_SESSIONS
from foldlog.tests.laws.agents import AGENT
from foldlog.tests.laws.recorded_actions import RecordedEffects


class Announcing:
    """See the module. deaf: what it tells tabs never comes to a broker; full: so many records of
    it find no room at first."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.disk: dict[int, dict[bytes, bytes]] = {}
        self.incarnation = 0
        self.said: list[str] = []
        self.restart()

    def restart(
        self, *, deaf: bool = False, new_disk: bool = False, full: int = 0
    ) -> "Announcing":
        """A new process; the one before is gone with what it remembered."""
        self.incarnation += 1
        self.disk = {} if new_disk else self.disk
        self.mail, producer = Mailbox(), self.log.producer()
        actions = Actions(
            f"w/{self.incarnation}", appender(producer, self.mail), RecordedEffects(), None, None,
            Slots(1), Slots(1), SystemClock(), self.said.append,
        )
        identity = Identity("w", str(self.incarnation))
        self.worker = Worker(
            identity, ("sessions",), [AGENT], self._open, actions, SystemClock(), self.said.append
        )
        heard = Deaf() if deaf else Full(producer, full)
        partitions = self.log.partitions(USER_SESSIONS)
        announce(self.worker, heard, partitions, self.mail.post, self.said.append)
        self.reader = self.log.reader(SESSION_EVENTS, {})
        self.reader.add(self.worker.assigned(range(self.log.partitions(SESSION_EVENTS))))
        return self

    def _open(self, partition: int, *, fresh: bool) -> Store:
        end = self.log.end_offsets(SESSION_EVENTS)[partition]
        return Store(DictBackend(self.disk.setdefault(partition, {})), log_end=end)

    def run(self, batch: int = 1_000) -> "Announcing":
        """Let it go on until it has read all, and what it produced."""
        quiet = 0
        while quiet < 3:
            records = self.reader.poll(0.02, batch)
            quiet = 0 if records else quiet + 1
            if records:
                self.worker.consume(records)
            self.mail.drain()
        return self


class Deaf:
    """A producer whose records are lost with the process."""

    def append(self, *args, **named) -> None:
        """Nothing comes of it."""


class Full:
    """A producer that has no room for its first records."""

    def __init__(self, producer, refusals: int) -> None:
        self._producer, self._refusals = producer, refusals

    def append(self, *args, **named) -> None:
        """Refuse, or pass it on."""
        if self._refusals:
            self._refusals -= 1
            raise LogBusy("the producer's queue is full")
        self._producer.append(*args, **named)
