"""One installation under test: topics, a scripted model, and a reader that folds all that happens.

The reader is a process of its own (the test's), folds from offset 0 with the real folds, and keeps
what a viewer of each session sees. It must not know crash points, nor judge what it sees.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from foldlog.consumers import transcript_stream as viewing
from foldlog.local.messages_api import ScriptedServer
from foldlog.log import Settings, open_log
from foldlog.log.blobs import BlobStore
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
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.crash.agents import Ledger, agents
from foldlog.tests.crash.fleet import PATIENCE_S, Hand
from foldlog.tests.crash.script import Said
from foldlog.tests.crash.witnesses_delivery import Desk

PARTITIONS = 4  # a start takes each of them for each role
POLL_S = 0.02


class Happened(NamedTuple):
    """One event of a session, and whether it counted."""

    entry: Entry
    verdict: str
    code: str


class Watched:
    """A session as the test's own fold and its own viewer see it."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.partition = -1
        self.views: SessionViews = initial(session_id)
        self.viewer = viewing.INITIAL
        self.events: list[Happened] = []
        self.shown: dict[viewing.Attempt, list[str]] = {}
        self.settled: dict[viewing.Attempt, str] = {}

    def take(self, entry: Entry, read: Any) -> None:
        """Fold an event, and show it."""
        self.partition = entry.partition
        before = self.views
        self.views, ruling = fold(before, entry)
        self.events.append(Happened(entry, ruling.verdict, ruling.code))
        seen = FoldedEvent(entry, ruling, before, self.views)
        self.viewer, things = viewing.see(self.viewer, seen, read)
        for thing in things:
            match thing:
                case viewing.Token(of=of, kind="text", text=text):
                    self.shown.setdefault(of, []).append(text)
                case viewing.Dropped(of=of):
                    self.shown.pop(of, None)
                case viewing.Settled(of=of):
                    self.settled[of] = "".join(self.shown.get(of, []))

    def counted(self, kind: type) -> list[Any]:
        """The events of a type that counted."""
        return [
            happened.entry.event
            for happened in self.events
            if happened.verdict == "accepted" and isinstance(happened.entry.event, kind)
        ]


class Stage:
    """See the module. Close it; workers are started through `hand`."""

    def __init__(
        self, servers: str, directory: Path, prefix: str, partitions: int = PARTITIONS
    ) -> None:
        self.directory, self.prefix = directory, prefix
        self.said = Said()
        self.desk = Desk(directory)
        self.server = ScriptedServer(self.said, journal=directory / "journal").start()
        self.flags: dict[str, Any] = {
            "bootstrap_servers": servers,
            "topic_prefix": prefix,
            "partitions": partitions,
            "home": str(directory),
            "blobs_dir": str(directory / "blobs"),
            "base_url": self.server.base_url,
            "api_key": "scripted",
            "user": "tester",
        }
        self.settings = self.settings_of("w1")
        self.log = open_log(self.settings)
        self.log.apply_topics(topics(partitions)).demand()
        self.blobs = BlobStore(self.settings.blobs_dir)
        self.sessions = Sessions(self.log, self.settings, ack_s=PATIENCE_S)
        self.watched: dict[str, Watched] = {}
        self.holders: dict[int, PartitionView] = {}
        self.taken_at: dict[str, int] = {}
        self.newest_ms = 0
        self._filled = False
        self.agents = {agent.name: agent for agent in agents(directory)}
        self.ledger = Ledger(directory)
        self.hands: list[Hand] = []
        self._reader = self.log.reader(SESSION_EVENTS, dict.fromkeys(range(partitions), 0))

    # -- workers ---------------------------------------------------------------------------------

    def settings_of(self, worker: str) -> Settings:
        """The settings that a worker of this name runs under."""
        return Settings.load({}, None, self.flags | {"state_dir": str(self.directory / worker)})

    def hand(self, worker: str = "w1") -> Hand:
        """A worker's place: its own state directory, the common ledger."""
        flags = self.flags | {"state_dir": str(self.directory / worker)}
        made = Hand(self.directory, flags, worker)
        self.hands.append(made)
        return made

    @property
    def deaths(self) -> list[float]:
        """When workers ended, Unix ms."""
        return [ended.at * 1000 for hand in self.hands for ended in hand.ends]

    # -- following -------------------------------------------------------------------------------

    def pump(self, timeout_s: float = POLL_S) -> list[Entry]:
        """Fold what came; a broker that is away is silence."""
        records = self._reader.poll(timeout_s)
        entries = [entry_of(r, chunks=True) for r in records if is_foldable(r.key)]
        for entry in entries:
            self.newest_ms = max(self.newest_ms, entry.at)
            if entry.session_id == PARTITION_KEY:
                held = self.holders.get(entry.partition, partition_fold.INITIAL)
                self.holders[entry.partition] = partition_fold.apply(held, entry)
                self.taken_at.setdefault(entry.event.owner, entry.at)
            else:
                self.watch(entry.session_id).take(entry, lambda ref: self.blobs.get(ref.sha256))
        return entries

    def watch(self, session_id: str) -> Watched:
        """A session, known or to come."""
        found = self.watched.get(session_id)
        if found is None:
            found = self.watched[session_id] = Watched(session_id)
        return found

    def follow_until(self, what: str, found: Any, bound_s: float = PATIENCE_S) -> Any:
        """Follow the log until `found()` finds something, and return that."""
        end = time.monotonic() + bound_s
        while not (value := found()):
            if time.monotonic() > end:
                raise TimeoutError(f"not within {bound_s:g} s: {what}\n{self.account()}")
            self.pump()
        return value

    def fill(self, records: int) -> None:
        """Make every partition long, once, with records of a type that nobody knows."""
        if self._filled:
            return
        self._filled = True
        producer = self.log.producer()
        for partition in range(self.settings.partitions):
            for _ in range(records):
                headers = [("t", b"NOT_OF_THIS_VERSION"), ("w", b"producer")]
                producer.append(SESSION_EVENTS, "filler", b"x", headers, partition=partition)
        assert producer.flush(PATIENCE_S) == 0
        producer.close()

    @property
    def cursor(self) -> dict[int, int]:
        """The next offset by partition."""
        return self._reader.positions()

    def owner(self) -> str:
        """Who holds every partition for every role, or '' while that is nobody or several."""
        owners = [holder.owner for view in self.holders.values() for holder in view.holders]
        whole = len(owners) == self.settings.partitions * len(ROLES)
        return owners[0] if whole and len(set(owners)) == 1 else ""

    def owed(self, session_id: str) -> list[Obligation]:
        """What a session owes now, waits included."""
        watched = self.watch(session_id)
        agent = self.agents.get(watched.views.turn.agent)
        holders = self.holders.get(watched.partition, partition_fold.INITIAL)
        now = max(time.time_ns() // 1_000_000, self.newest_ms)
        return list(wake(watched.views, holders, now, rules_of(agent) if agent else None))

    def account(self, session_id: str | None = None) -> str:
        """The last events of the sessions that are not quiet, for a person who must find out."""
        return "\n".join(self._accounts(session_id))

    def _accounts(self, session_id: str | None) -> Iterator[str]:
        for name, watched in self.watched.items():
            if session_id not in (None, name) or (session_id is None and not self.owed(name)):
                continue
            yield f"--- {name} (partition {watched.partition}), owes {self.owed(name)}"
            for happened in watched.events[-60:]:
                entry = happened.entry
                text = str(entry.event)[:200]
                yield f"{entry.offset:5} {entry.at} {happened.verdict:8} {happened.code:10} {text}"

    def close(self) -> None:
        """End the workers first, then what they talked to."""
        for hand in self.hands:
            hand.close()
        self.sessions.close()
        self._reader.close()
        self.log.close()
        self.server.stop()
        self.desk.close()
        assert threading.current_thread() is threading.main_thread()
