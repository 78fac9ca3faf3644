"""A worker for the role `sessions` that announces its sessions. It runs without a process, on any
log.

Its disk survives a restart: `restart` starts a new incarnation with the same disk.
"""

from time import monotonic

from foldlog.log.door import Log
from foldlog.log.errors import LogBusy
from foldlog.log.partition import partition_for
from foldlog.processors.effects.slots import Slots
from foldlog.processors.store.store import DictBackend, Store
from foldlog.processors.worker.actions import Actions
from foldlog.processors.worker.announce import Announcer
from foldlog.processors.worker.assemble import SystemClock
from foldlog.processors.worker.loop import Mailbox, appender
from foldlog.processors.worker.worker import Identity, Worker, WorkerParts
from foldlog.schemas.topics import SESSION_EVENTS, USER_SESSIONS
from foldlog.tests.kit.agents import AGENT
from foldlog.tests.kit.recorded_actions import RecordedEffects
from foldlog.tests.kit.waiting import PATIENCE_S


class Announcing:
    """One such worker, see the module docstring."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.disk: dict[int, dict[bytes, bytes]] = {}
        self.incarnation = 0
        self.output: list[str] = []
        self.restart()

    def restart(
        self, *, loses: bool = False, new_disk: bool = False, refusals: int = 0
    ) -> "Announcing":
        """Replace the worker by a new incarnation that has nothing in memory. loses: no broker
        receives its announcements; refusals: how many announcements the full queue of its producer
        refuses."""
        self.incarnation += 1
        self.disk = {} if new_disk else self.disk
        self.mail, producer = Mailbox(), self.log.producer()
        actions = Actions(
            f"w/{self.incarnation}", appender(producer, self.mail), RecordedEffects(), None, None,
            Slots(1), Slots(1), SystemClock(), self.output.append,
        )
        identity = Identity("w", str(self.incarnation))
        partitions = self.log.partitions(USER_SESSIONS)
        announcer = Announcer(
            Loses() if loses else Full(producer, refusals), partitions, self.mail.post,
            lambda name: self.worker.mark_idle(name), self.output.append,
            lambda name: self.worker.owned_since(partition_for(name, partitions)),
        )
        self.worker = Worker(
            WorkerParts(
                identity=identity, roles=("sessions",), agents=[AGENT], open_store=self._open,
                actions=actions, clock=SystemClock(), say=self.output.append, announcer=announcer,
            )
        )
        self.reader = self.log.reader(SESSION_EVENTS, {})
        self.reader.add(self.worker.assigned(range(self.log.partitions(SESSION_EVENTS))))
        return self

    def _open(self, partition: int, *, fresh: bool) -> Store:
        end = self.log.end_offsets(SESSION_EVENTS)[partition]
        return Store(DictBackend(self.disk.setdefault(partition, {})), log_end=end)

    def run(self, batch: int = 1_000) -> "Announcing":
        """Run rounds until the worker has read the whole log, including its own records."""
        quiet, deadline = 0, monotonic() + PATIENCE_S
        while quiet < 3:
            assert monotonic() < deadline, "records still arrive"
            records = self.reader.poll(0.02, batch)
            quiet = 0 if records else quiet + 1
            if records:
                self.worker.consume(records)
            self.mail.drain()
        return self


class Loses:
    """A producer that loses its records, as if the process had died."""

    def append(self, *args, **named) -> None:
        """Drop the record."""


class Full:
    """A producer whose queue is full at first."""

    def __init__(self, producer, refusals: int) -> None:
        self._producer, self._refusals = producer, refusals

    def append(self, *args, **named) -> None:
        """Refuse the record while the queue is full, then produce records."""
        if self._refusals:
            self._refusals -= 1
            raise LogBusy("the producer's queue is full")
        self._producer.append(*args, **named)
