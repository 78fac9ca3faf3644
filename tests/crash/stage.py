"""One installation under test: topics, a scripted model, and a reader that folds every event.

The reader runs in the test's process, folds from offset 0 with the real folds, and records what a
viewer of each session sees. witnesses.py gives the verdict.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from foldlog.client import transcript_stream as viewing
from foldlog.local.messages_api import ScriptedServer
from foldlog.log import Settings, open_log
from foldlog.log.blobs import BlobStore
from foldlog.processors.advice.prices import list_prices
from foldlog.processors.facts.derive import fact_of
from foldlog.processors.fold.projections import partition as partition_fold
from foldlog.processors.fold.projections.partition import PartitionView
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.sessions import FoldedEvent, is_foldable
from foldlog.processors.fold.views import SessionViews, initial
from foldlog.processors.wake.decide import rules_of
from foldlog.processors.wake.facts import Obligation, wake
from foldlog.processors.worker.assemble import ROLES
from foldlog.producers.sessions import Sessions
from foldlog.schemas.codec import Entry, entry_of
from foldlog.schemas.facts import Fact
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.crash.agents import Ledger, agents
from foldlog.tests.crash.fleet import PATIENCE_S, WorkerHandle
from foldlog.tests.crash.script import ScriptedModel
from foldlog.tests.crash.witnesses_delivery import PushReceiver
from foldlog.tests.crash.witnesses_facts import FactReader

PARTITIONS = 4  # a start takes each of them for each role
POLL_S = 0.05
SNAPSHOT_RECORDS = 10  # every round makes snapshots, and a store that is behind loads one


class RuledEvent(NamedTuple):
    """One event of a session, and the fold's verdict on it."""

    entry: Entry
    verdict: str
    code: str


class WatchedSession:
    """A session as the test's fold and the test's viewer see it."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.partition = -1
        self.views: SessionViews = initial(session_id)
        self.viewer = viewing.INITIAL
        self.events: list[RuledEvent] = []
        self.facts: list[Fact] = []
        self.shown: dict[viewing.Attempt, list[str]] = {}
        self.settled: dict[viewing.Attempt, str] = {}

    def apply(self, entry: Entry, read: Any) -> None:
        """Fold an event, and pass it to the viewer."""
        self.partition = entry.partition
        before = self.views
        self.views, ruling = fold(before, entry)
        self.events.append(RuledEvent(entry, ruling.verdict, ruling.code))
        fact = fact_of(entry, before, self.views, ruling, list_prices())
        self.facts += [] if fact is None else [fact]
        folded = FoldedEvent(entry, ruling, before, self.views)
        self.viewer, items = viewing.see(self.viewer, folded, read)
        for item in items:
            match item:
                case viewing.Token(of=of, kind="text", text=text):
                    self.shown.setdefault(of, []).append(text)
                case viewing.Dropped(of=of):
                    self.shown.pop(of, None)
                case viewing.Settled(of=of):
                    self.settled[of] = "".join(self.shown.get(of, []))

    def counted(self, kind: type) -> list[Any]:
        """The accepted events of a type."""
        return [
            ruled.entry.event
            for ruled in self.events
            if ruled.verdict == "accepted" and isinstance(ruled.entry.event, kind)
        ]


class Stage:
    """One installation, see the module docstring. Close it after use; `handle` starts its
    workers."""

    def __init__(
        self, servers: str, directory: Path, prefix: str, partitions: int = PARTITIONS
    ) -> None:
        self.directory, self.prefix = directory, prefix
        self.model = ScriptedModel()
        self.push_receiver = PushReceiver(directory)
        self.server = ScriptedServer(self.model, journal=directory / "journal").start()
        self.flags: dict[str, Any] = {
            "bootstrap_servers": servers,
            "topic_prefix": prefix,
            "partitions": partitions,
            "home": str(directory),
            "blobs_dir": str(directory / "blobs"),
            "snapshot_records": SNAPSHOT_RECORDS,
            "base_url": self.server.base_url,
            "api_key": "scripted",
            "user": "tester",
        }
        self.settings = self.settings_of("w1")
        self.log = open_log(self.settings)
        self.log.apply_topics(topics(partitions, self.settings.replication)).demand()
        self.blobs = BlobStore(self.settings.blobs_dir)
        self.sessions = Sessions(self.log, self.settings, ack_s=PATIENCE_S)
        self.watched: dict[str, WatchedSession] = {}
        self.holders: dict[int, PartitionView] = {}
        self.taken_at: dict[str, int] = {}
        self.newest_ms = 0
        self._filled = False
        self.agents = {agent.name: agent for agent in agents(directory)}
        self.ledger = Ledger(directory)
        self.handles: list[WorkerHandle] = []
        self._reader = self.log.reader(SESSION_EVENTS, dict.fromkeys(range(partitions), 0))
        self.facts = FactReader(self.log)

    # -- workers ---------------------------------------------------------------------------------

    def settings_of(self, worker: str) -> Settings:
        """The settings of a worker with this name."""
        return Settings.load({}, None, self.flags | {"state_dir": str(self.directory / worker)})

    def handle(self, worker: str = "w1") -> WorkerHandle:
        """A handle of a worker that has its own state directory and writes to the common ledger."""
        flags = self.flags | {"state_dir": str(self.directory / worker)}
        made = WorkerHandle(self.directory, flags, worker)
        self.handles.append(made)
        return made

    @property
    def deaths(self) -> list[float]:
        """The times at which workers ended, in Unix ms."""
        return [ended.at * 1000 for handle in self.handles for ended in handle.ends]

    # -- following -------------------------------------------------------------------------------

    def pump(self, timeout_s: float = POLL_S) -> list[Entry]:
        """Fold the next events, and return them; returns none while the broker is down."""
        records = self._reader.poll(timeout_s)
        entries = [entry_of(r, chunks=True) for r in records if is_foldable(r.key)]
        for entry in entries:
            self.newest_ms = max(self.newest_ms, entry.at)
            if entry.session_id == PARTITION_KEY:
                held = self.holders.get(entry.partition, partition_fold.INITIAL)
                self.holders[entry.partition] = partition_fold.apply(held, entry)
                self.taken_at.setdefault(entry.event.owner, entry.at)
            else:
                self.watch(entry.session_id).apply(entry, lambda ref: self.blobs.get(ref.sha256))
        return entries

    def watch(self, session_id: str) -> WatchedSession:
        """The watched session of this id; the log need not have its events yet."""
        found = self.watched.get(session_id)
        if found is None:
            found = self.watched[session_id] = WatchedSession(session_id)
        return found

    def follow_until(self, what: str, found: Any, bound_s: float = PATIENCE_S) -> Any:
        """Follow the log until `found()` returns a true value, and return this value."""
        end = time.monotonic() + bound_s
        while not (value := found()):
            if time.monotonic() > end:
                raise TimeoutError(f"not within {bound_s:g} s: {what}\n{self.account()}")
            self.pump()
        return value

    def fill(self, records: int) -> None:
        """Append this many records of an unknown type to every partition. Does it only once."""
        if not self._filled:
            self._filled = True
            self.write_fillers(records)

    def write_fillers(self, records: int) -> None:
        """Write records of an unknown type to every partition."""
        producer = self.log.producer()
        for partition in range(self.settings.partitions):
            for _ in range(records):
                headers = [("t", b"NOT_OF_THIS_VERSION"), ("w", b"producer")]
                producer.append(SESSION_EVENTS, "filler", b"x", headers, partition=partition)
        assert producer.flush(PATIENCE_S) == 0
        producer.close()

    @property
    def cursor(self) -> dict[int, int]:
        """The next offset of each partition."""
        return self._reader.positions()

    def owner(self) -> str:
        """The worker that holds every partition for every role, or '' if there is no such
        worker."""
        owners = [holder.owner for view in self.holders.values() for holder in view.holders]
        whole = len(owners) == self.settings.partitions * len(ROLES)
        return owners[0] if whole and len(set(owners)) == 1 else ""

    def owed(self, session_id: str) -> list[Obligation]:
        """The WAKE rows of a session now, including those that wait for a time."""
        watched = self.watch(session_id)
        agent = self.agents.get(watched.views.turn.agent)
        holders = self.holders.get(watched.partition, partition_fold.INITIAL)
        now = max(time.time_ns() // 1_000_000, self.newest_ms)
        return list(wake(watched.views, holders, now, rules_of(agent) if agent else None))

    def account(self, session_id: str | None = None) -> str:
        """The last events of the sessions with pending work, for a person who debugs a failed
        test."""
        return "\n".join(self._accounts(session_id))

    def _accounts(self, session_id: str | None) -> Iterator[str]:
        for name, watched in self.watched.items():
            if session_id not in (None, name) or (session_id is None and not self.owed(name)):
                continue
            yield f"--- {name} (partition {watched.partition}), owes {self.owed(name)}"
            for ruled in watched.events[-60:]:
                entry = ruled.entry
                text = str(entry.event)[:200]
                yield f"{entry.offset:5} {entry.at} {ruled.verdict:8} {ruled.code:10} {text}"

    def close(self) -> None:
        """End the workers first, then close the log and the servers that they used."""
        for handle in self.handles:
            handle.close()
        self.sessions.close()
        self._reader.close()
        self.facts.close()
        self.log.close()
        self.server.stop()
        self.push_receiver.close()
        assert threading.current_thread() is threading.main_thread()
