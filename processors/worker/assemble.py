"""Assembles the parts of one worker process; host.py runs it.

The order matters: the state directory is locked first, and outcomes that an earlier process left in
the outbox are written before any partition is taken. Modules that only effects need are imported
later.
"""

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from ...log import Settings, open_log
from ...log.blobs import open_blobs
from ...log.door import Log
from ...log.errors import LogUnreachable
from ...log.made import demand_topics, partitions_of
from ...log.partition import partition_for
from ...schemas.enums import Role
from ...schemas.topics import SESSION_EVENTS, SESSION_FACTS, USER_SESSIONS
from .. import crash_points
from ..advice.mistakes import Watch
from ..advice.prices import PriceTable, load_prices
from ..advice.prompt_growth import Growth
from ..agent import Agent
from ..agent_digest import digests_of
from ..effects.delivery import channel_finder
from ..effects.kinds import KINDS
from ..effects.slots import Slots
from ..fold.projections import partition
from ..fold.views import SessionViews
from ..memory.service import MemoryService
from ..outside.tools import OutsideTools
from ..search.embed import load_embedder
from ..store.chunks_reader import chunks_reader
from ..store.opener import StoreOpener
from ..store.snapshots import snapshots_of
from ..store.state_dir import StateDir
from ..store.store import Belongs, Store, version_for
from ..tools.result_cache import ResultCache
from ..tools.side_log import SideLogStore
from .actions import Actions
from .announce import Announcer
from .dead_letters import WrittenLetters
from .deaths import Registry
from .effects_host import REPORTS, EffectsHost
from .fact_sender import FactRows, FactSender
from .layers_reader import LayersReader
from .loop import Loop, Mailbox, appender
from .lost_effects import LostEffects
from .meter import Meter
from .outbox import Outbox
from .reports import Reports
from .same_agents import demand_after_rebalance, demand_same_agents, group_of, label_of
from .snapshot_maker import SnapshotMaker
from .topic_watch import TopicWatch
from .worker import Identity, Worker, WorkerParts

ROLES = partition.ROLES
DECIDERS = {Role.SESSIONS, Role.TOOLS}  # they need an agent's tools, also those of MCP servers
EFFECTS = (*(kind.role for kind in KINDS), REPORTS)
PROMPT_SIZES = "prompt_sizes.json"
OUTBOX_S = 30.0  # limit of writing an earlier process's outcomes, before any partition is taken
_log = logging.getLogger("foldlog.worker")


_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The clocks of this machine."""

    def now_ms(self) -> int:
        """Unix ms."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Ms since an arbitrary start.
        The clock never steps back, and counts during sleep (Linux)."""
        return time.clock_gettime_ns(_MONOTONIC) // 1_000_000


def say(text: str) -> None:
    """Log a line for the operator."""
    _log.info("%s", text)


class TokenAdvisor:
    """Reports costly mistakes in the use of tokens, each finding once per session.

    Findings are reported only for new records. Records that were in the store when it was opened,
    or in the log when the store was created or rebuilt, are skipped, because an earlier worker
    reported on them. If a check fails, the failure is logged once per session and the worker
    continues.

    partition_of: returns the partition of a session.
    sizes: a file in which a process stores the prompt sizes of its sessions for the next process;
        without the file, a process compares only the sessions that it has checked itself.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        partition_of: Callable[[str], int],
        sizes: Path | None = None,
    ) -> None:
        self._say, self._sizes = say, sizes
        self._since: dict[int, int] = {}
        self._growth = Growth(_json_in(sizes))
        self._saved_at = self._growth.checks
        self._watch = Watch(
            lambda session_id: self._since.get(partition_of(session_id), 0), self._growth
        )
        self._failed: set[tuple[str, str]] = set()

    def store_opened(self, partition: int, store: Store) -> None:
        """Called when a partition was assigned to this worker, or its store was rebuilt."""
        self._since[partition] = store.history_end

    def check(self, views: SessionViews) -> None:
        """Report the new findings in a session."""
        try:
            found = self._watch.check(views)
            self._save_sizes()
        except Exception as error:
            self._say_failed(views.session_id, type(error).__name__)
            return
        for mistake in found:
            self._say(f"session {views.session_id}: {mistake}")

    def _save_sizes(self) -> None:
        if self._sizes is None or self._growth.checks == self._saved_at:
            return
        self._saved_at = self._growth.checks
        with suppress(OSError):  # other writes report a full disk
            fresh = self._sizes.with_name(f"{self._sizes.name}.new")
            fresh.write_text(json.dumps(self._growth.to_json()), "utf-8")
            fresh.replace(self._sizes)

    def _say_failed(self, session_id: str, error: str) -> None:
        if (session_id, error) in self._failed:
            return
        if len(self._failed) >= Watch.SESSIONS_MAX:
            self._failed.clear()
        self._failed.add((session_id, error))
        self._say(
            f"session {session_id}: the token advice failed ({error}). The session continues, but "
            "the cost of its latest steps was not checked. Please report this bug."
        )


def _json_in(file: Path | None) -> Any:
    """The JSON in one of this worker's files; None if the file is missing or invalid."""
    try:
        return None if file is None else json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


class LogFacts(NamedTuple):
    """The facts about the log that are needed to open a store."""

    first: Mapping[int, int]
    end: Mapping[int, int]
    belongs: Belongs


class Parts:
    """All parts of one worker process. `close` shuts them down in the right order."""

    _facts: LogFacts | None = None  # set while partitions are assigned

    def __init__(
        self,
        settings: Settings,
        agents: Iterable[Agent],
        roles: tuple[str, ...],
        worker_id: str | None,
        *,
        watch: bool = False,
        rolling: bool = False,
        only: str | None = None,
    ) -> None:
        """rolling: start even if live workers serve other agents.
        only: do the work of this session alone, and join no consumer group.
        """
        self.settings = settings
        channels = settings.demand_channels() if Role.DELIVERY in roles else {}
        self.state = StateDir(settings.state_dir, worker_id)
        crash_points.reach("start.locked")
        self.log: Log = open_log(settings)
        demand_topics(self.log, settings.partitions, settings.replication, notes=True)
        self.identity = Identity(self.state.worker_id, uuid.uuid4().hex[:8])
        agents = self._digest(agents, rolling or only is not None)
        self.blobs = open_blobs(settings)
        self.fatal: list[BaseException] = []
        self.mail = Mailbox()
        self.producer = self.log.producer(on_fatal=self.mail.fail)
        self.outbox = Outbox(self.state.path / "outbox")
        self.reports = Reports(self.producer, self.outbox, say)
        self.reports.emit_pending(OUTBOX_S)
        crash_points.reach("start.emitted")
        model_slots = Slots(settings.model_slots)
        side_log = SideLogStore(self.state.path / "side_log")
        side_log.prune()
        self.outside = OutsideTools(agents, self.state.path / "outside", say)
        agents = self.outside.begin() if DECIDERS & set(roles) else agents
        self.memory = self._memory() if any(agent.memory for agent in agents) else None
        self.results = ResultCache(self.state.path / "tool_results.sqlite", say)
        self.results.prune()
        self.effects = EffectsHost(
            self.reports,
            self.blobs,
            side_log,
            model_slots,
            self._client,
            chunks_reader(self.log),
            say,
            memory=self.memory,
            results=self.results,
            find_channel=channel_finder(channels),
            tool_env=settings.tool_env,
        )
        layers = LayersReader(settings, self.memory, say)
        self.actions = Actions(
            self.identity.owner,
            appender(self.producer, self.mail),
            self.effects,
            self.blobs.body,
            lambda ref: self.blobs.get(ref.sha256),
            model_slots,
            Slots(settings.tool_slots),
            SystemClock(),
            say,
            layers,
            layers.todos,
        )
        prices = load_prices(settings.prices)
        self.meter = Meter(prices)
        self.snapshots = snapshots_of(settings)
        self.opener = StoreOpener(
            self._store_directory, say, self.snapshots, settings.snapshot_records
        )
        self.letters = WrittenLetters(self.log, say)
        self.snapshot_maker = None if only is not None else self._snapshot_maker()
        self.token_advisor = self._token_advisor(watch)
        self.lost_effects = LostEffects(self.log, self.effects, self.actions.read_blob, say)
        self.worker = Worker(
            WorkerParts(
                identity=self.identity,
                roles=roles,
                agents=agents,
                open_store=self._open_store,
                actions=self.actions,
                clock=SystemClock(),
                say=say,
                announced=self.announced,
                session_cache_mb=settings.session_cache_mb,
                is_dead=self._registry().is_dead,
                lost_effects=self.lost_effects,
                announcer=self._announcer() if Role.SESSIONS in roles else None,
                fact_of=FactRows(say, self.meter.add) if Role.SESSIONS in roles else None,
                fact_sender=self._fact_sender(prices) if Role.SESSIONS in roles else None,
                check_tokens=self.token_advisor.check if watch and Role.SESSIONS in roles else None,
                make_snapshots=self.snapshot_maker.check if self.snapshot_maker else None,
                has_letter=self.letters.has,
                meter=self.meter,
                only=only,
            )
        )
        self.loop = self._loop(rolling)
        self.topic_watch = TopicWatch(self.log, self.loop.topic_is)

    def _digest(self, agents: Iterable[Agent], may_differ: bool) -> tuple[Agent, ...]:
        agents = tuple(agents)
        self.announced = digests_of(agents)
        if not may_differ:
            demand_same_agents(self.log, self.identity.worker_id, self.announced, say)
        return agents

    def _token_advisor(self, watch: bool) -> TokenAdvisor:
        spread = partitions_of(self.log)
        sizes = self.state.path / PROMPT_SIZES if watch else None
        return TokenAdvisor(say, lambda session_id: partition_for(session_id, spread), sizes)

    def _announcer(self) -> Announcer:
        partitions, spread = self.log.partitions(USER_SESSIONS), partitions_of(self.log)

        def settled(session_id: str) -> None:
            self.worker.mark_idle(session_id)

        def since(session_id: str) -> int:
            return self.worker.owned_since(partition_for(session_id, spread))

        return Announcer(self.producer, partitions, self.mail.post, settled, say, since)

    def _fact_sender(self, prices: PriceTable) -> FactSender:
        return FactSender(
            self.producer,
            self.log.partitions(SESSION_FACTS),
            self.mail.post,
            prices,
            SystemClock().monotonic_ms,
            say,
            self.meter.add,
        )

    def _registry(self) -> Registry:
        registry = Registry(self.settings.home / "run")
        registry.register(self.identity.worker_id, self.state.path)
        return registry

    def _loop(self, rolling: bool) -> Loop:
        label = label_of(self.announced, rolling=rolling)
        rebalanced = (lambda: None) if rolling else self._demand_same_agents
        group = group_of(self.worker.roles)
        return Loop(
            *(self.log, self.worker, group, self.mail),
            label=label,
            rebalanced=rebalanced,
            opening=self._opening,
        )

    def _demand_same_agents(self) -> None:
        with suppress(LogUnreachable):  # checked again after the next rebalance
            demand_after_rebalance(self.log, self.identity.worker_id, self.announced)

    def _memory(self) -> MemoryService:
        embedder = load_embedder(self.settings.embedder)
        memory = MemoryService(self.log, self.producer, self.state.path, say, embedder)
        memory.begin()
        return memory

    def _client(self):
        from ..effects.models.call import make_client

        return make_client(self.settings.api_key or "none", self.settings.base_url)

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Read the facts of the log once, for all partitions that are opened in the block."""
        self._facts = self._query_log()
        try:
            yield
        finally:
            self._facts = None

    def _query_log(self) -> LogFacts:
        return LogFacts(
            self.log.first_offsets(SESSION_EVENTS),
            self.log.end_offsets(SESSION_EVENTS),
            Belongs(
                self.log.identity(),
                self.log.topic_id(SESSION_EVENTS),
                version_for(self.worker.roles),
            ),
        )

    def _open_store(self, partition: int, *, fresh: bool) -> Store:
        facts = self._facts or self._query_log()
        first, end, belongs = facts.first[partition], facts.end[partition], facts.belongs
        store = self.opener.open(partition, belongs, end, first, fresh=fresh)
        self.letters.forget()
        if self.snapshot_maker is not None:
            self.snapshot_maker.opened(partition, self.opener.newest_snapshot[partition])
        self.token_advisor.store_opened(partition, store)
        return store

    def _store_directory(self, partition: int) -> Path:
        return self.state.store(self.settings.topic(SESSION_EVENTS), partition)

    def _snapshot_maker(self) -> SnapshotMaker | None:
        if self.snapshots is None:
            return None
        return SnapshotMaker(
            self.snapshots,
            self._store_directory,
            self.settings.snapshot_records,
            self.settings.snapshot_minutes * 60_000,
            SystemClock(),
            say,
            lambda outcome: self.mail.post(
                lambda: self.meter.add("foldlog_snapshots", outcome)
            ),
        )

    def _has_running_effect(self) -> bool:
        return any(self.effects.running(role) for role in EFFECTS)

    def has_worked(self) -> bool:
        """Whether the worker has taken its partitions, or begun an effect."""
        return self.loop.has_started or self._has_running_effect()

    def in_flight(self) -> bool:
        """Whether an effect is running, or a produced record is not read back yet."""
        return self._has_running_effect() or self.actions.in_flight_count > 0

    def _leave(self) -> None:
        """Write OWNER_GONE for this owner, if it has no running effect and no pending outcome."""
        if self._has_running_effect() or len(self.outbox) or self.fatal:
            return
        for number in self.loop.held_at_end:
            self.worker.deaths.write(number, self.identity.owner)

    def close(self) -> None:
        """End the effects, flush the producer, and release the state directory.

        If a tool is still running, the lock is kept as long as the process lives, because a free
        lock proves that no effect of this worker runs.
        """
        self.topic_watch.close()
        if self.snapshot_maker is not None:
            self.snapshot_maker.close()
        self.effects.close()
        self._leave()
        self.lost_effects.close()
        self.outside.close()
        if self.memory is not None:
            self.memory.close()
        self.results.close()
        self.producer.close()
        self.outbox.close()
        self.log.close()
        if not self._has_running_effect():
            self.state.close()
