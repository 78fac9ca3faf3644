"""One member of the fleet: a Faust application that folds facts into tables.

A member folds a fact in this order: rows into the store, rows to the producer, Kafka confirms the
rows, the fact's offset is committed. A member that was killed in between folds the fact again, and
rows.py makes that harmless. If the last heartbeat is too old, it waits for the next one. If a row
cannot be stored or sent, or if the group has removed the member, the process ends at once, before
it commits; the next one continues from the last commit.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import faust
from aiokafka import AIOKafkaConsumer
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth
from faust.types import TP

from ..log import Settings
from ..log.partition import partition_for
from ..schemas.facts import UnknownFact, decode_fact
from ..schemas.topics import SESSION_FACTS
from . import rows
from .book import Book
from .consumer import CONFIRM_S, FleetConsumer, FleetProducer
from .crash_points import CrashPoints
from .credentials import faust_credentials
from .logs import filter_logs
from .order import Orders
from .tables import FleetTable, FleetTables, store_options

SESSION_S, HEARTBEAT_S = 6.0, 1.0
"""After SESSION_S without a heartbeat the group gives a member's partitions away: the broker's
least by default."""
FENCE_S = SESSION_S - HEARTBEAT_S
COMMIT_S = 1.0
PENDING_MAX = 2_000
"""Rows on their way to Kafka before the member waits."""
TICK_S, STALL_TICKS = 0.5, 3
END_S = 8.0
STUCK_S = 90.0
FAILED, PAUSED = 1, 5
"""Exit codes: a row could not be stored or sent; the group removed the member, after a pause."""
TYPES_MAX = 50
"""The most types of unknown facts that are counted by name."""


class Member(NamedTuple):
    """Who this process is. `url`: where other members reach it. `directory`: of its stores."""

    name: str
    url: str
    directory: Path
    crash: str = ""


class FleetApp(faust.App):
    """The application. `book` has its state; its tables are those of rows.TABLES."""

    book: Book
    facts_topic: str

    def __init__(self, settings: Settings, member: Member, say: Callable[[str], None]) -> None:
        self.settings, self.member, self.say = settings, member, say
        self.book, self.orders = Book(FENCE_S), Orders()
        self.facts_topic = settings.topic(SESSION_FACTS)
        self.reach = CrashPoints(member.crash).reach
        super().__init__(f"{settings.topic_prefix}foldlog-fleet", **options(settings, member))
        transport: Any = self.transport
        transport.Consumer, transport.Producer = FleetConsumer, FleetProducer
        self.stores = {name: self._fleet_table(name) for name in rows.TABLES}
        self._declare()

    def _fleet_table(self, name: str) -> Any:
        changelog = self.topic(
            self.settings.topic(changelog_of(name)), key_type=bytes, value_type=bytes,
            key_serializer="raw", value_serializer="raw", partitions=self.settings.partitions,
        )  # fmt: skip
        return self.Table(
            name, partitions=self.settings.partitions, key_type=bytes, value_type=bytes,
            changelog_topic=changelog, options=store_options(),
        )  # fmt: skip

    def _declare(self) -> None:
        facts = self.topic(
            self.facts_topic, key_type=bytes, value_type=bytes, key_serializer="raw",
            value_serializer="raw",
        )  # fmt: skip
        self.sensors.add(_Loud(self))

        @self.agent(facts, name="facts")
        async def fold(stream: Any) -> None:
            async for event in stream.events():
                try:
                    await self._take(event.message)
                except Exception as error:
                    self.end(f"a fact could not be folded ({type(error).__name__}: {error})")

        @self.task
        async def watch() -> None:
            await self._rewind_when_stalled()

    async def _take(self, message: Any) -> None:
        """Fold the record of a fact, if it is the next one of its partition."""
        await self.book.wait_for_time()
        partition, offset = message.partition, message.offset
        following = self.book.next.get(partition)
        if following is None or offset < following:
            return
        if offset > following:
            if self.book.may_rewind(partition):
                await cast(FleetConsumer, self.consumer).rewind(partition)
            return
        self.reach("fact.read")
        self._fold(partition, message)
        self.book.folded_to(partition, offset + 1)
        self.reach("rows.stored")
        if self.book.pending > PENDING_MAX and not await self.book.confirmed(CONFIRM_S):
            self.end("Kafka did not confirm the rows in time")

    def _fold(self, partition: int, message: Any) -> None:
        headers = message.headers
        fact = decode_fact(message.value, headers.items() if isinstance(headers, dict) else headers)
        if isinstance(fact, UnknownFact):
            self._count_unknown(fact.type or "none", message)
        elif partition_for(fact.user_id, self.settings.partitions) != partition:
            self._count_unknown("misplaced", message)
        else:
            for write in rows.writes(fact, partition, self._reader(partition)):
                self.book.damaged[write.table] += write.lost
                self.stores[write.table][write.key] = write.value
                if write.table == rows.SESSIONS:
                    self.orders.put(partition, write.key, write.value)

    def _reader(self, partition: int) -> Callable[[str, bytes], bytes | None]:
        return lambda table, key: self.stores[table].store.partition_db(partition).get(key)

    def _count_unknown(self, name: str, message: Any) -> None:
        if message.offset < self.book.counted.get(message.partition, 0):
            return  # read again, after a rebalance
        self.book.counted[message.partition] = message.offset + 1
        known = name in self.book.unknown or len(self.book.unknown) < TYPES_MAX
        self.book.unknown[name[:64] if known else "others"] += 1

    async def _rewind_when_stalled(self) -> None:
        """Read facts again that Faust dropped, if no later fact reveals it."""
        folded, ticks = -1, 0
        while not self.should_stop:
            await asyncio.sleep(TICK_S)
            behind = [] if self.rebalancing or self.in_recovery else self._behind()
            ticks = ticks + 1 if behind and folded == self.book.folded else 0
            folded = self.book.folded
            if ticks >= STALL_TICKS:
                ticks = 0
                for partition in behind:
                    await cast(FleetConsumer, self.consumer).rewind(partition)

    def _behind(self) -> list[int]:
        return [
            partition for partition, following in self.book.owned().items()
            if following < max(self.end_of(partition), self.book.goals.get(partition, 0))
        ]  # fmt: skip

    def end_of(self, partition: int) -> int:
        """The end of a partition of facts, as the consumer last saw it; 0 if it has not."""
        if self._consumer is None:  # Faust must not create it in the thread of a request
            return 0
        try:
            return int(self._consumer.highwater(TP(self.facts_topic, partition)) or 0)
        except Exception:  # the partition is not assigned
            return 0

    def is_busy(self) -> bool:
        """Whether the group is rebalancing, or the member restores tables or has facts to fold."""
        return bool(self.rebalancing or self.in_recovery or self._behind())

    def owners(self) -> dict[int, str]:
        """The URL of the member that owns each partition, as of the last rebalance."""
        if self._consumer is None:
            return {}
        topic = self.settings.topic(changelog_of(rows.SESSIONS))
        return {
            partition: url
            for url, topics in self.assignor.tables_metadata().items()
            for partition in topics.get(topic, ())
        }

    @asynccontextmanager
    async def client(self) -> AsyncIterator[AIOKafkaConsumer]:
        """A client that reads partitions without a group."""
        client = AIOKafkaConsumer(
            bootstrap_servers=str(self.settings.bootstrap_servers).split(","),
            enable_auto_commit=False, auto_offset_reset="earliest",
            **credentials_to_aiokafka_auth(self.conf.broker_credentials, None),
        )  # fmt: skip
        await client.start()
        try:
            yield client
        finally:
            await client.stop()

    def removed(self) -> NoReturn:
        """End the process, because the group has given its partitions away."""
        self.end("this member was paused or cut off for too long, and the group removed it", PAUSED)

    def end(self, why: str, code: int = FAILED) -> NoReturn:
        """End the process at once, before it commits or writes anything more."""
        self.say(f"{why}. This process ends; nothing is lost, the next one continues")
        sys.stderr.flush()
        os._exit(code)


class _Loud(faust.Sensor):
    """Ends the process when Kafka refuses a row. Faust would continue without it."""

    def __init__(self, app: FleetApp) -> None:
        self._fleet = app
        super().__init__()

    def on_send_error(self, producer: Any, exc: BaseException, state: Any) -> None:
        """A record was refused."""
        self._fleet.end(f"Kafka refused a row ({type(exc).__name__}: {exc})")


def changelog_of(table: str) -> str:
    """The topic of a table's changelog, without prefix."""
    return f"fleet-{table}-changelog"


def options(settings: Settings, member: Member) -> dict[str, Any]:
    """The options of the Faust app, which creates no topics."""
    return dict(
        broker=[f"kafka://{server}" for server in str(settings.bootstrap_servers).split(",")],
        broker_credentials=faust_credentials(settings),
        broker_session_timeout=SESSION_S,
        broker_heartbeat_interval=HEARTBEAT_S,
        broker_commit_interval=COMMIT_S,
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=member.name,
        producer_linger=0.02,
        producer_max_batch_size=262_144,
        store="rocksdb://",
        datadir=str(member.directory / "tables"),
        canonical_url=member.url,
        web_enabled=False,
        autodiscover=False,
        topic_partitions=settings.partitions,
        topic_replication_factor=1,
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=1,
        stream_recovery_delay=0.0,
        Table=FleetTable,
        TableManager=FleetTables,
        worker_redirect_stdouts=False,
    )


def run(app: FleetApp) -> int:
    """Run a member until SIGTERM or SIGINT. Returns the exit code."""
    filter_logs()
    worker = faust.Worker(app, override_logging=False, quiet=True, redirect_stdouts=False)
    worker.spinner = None
    threading.Thread(target=_watch, args=(app, worker), daemon=True, name="watch").start()
    try:
        worker.execute_from_commandline()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _watch(app: FleetApp, worker: Any) -> None:
    """End a process that lost its directory, in which Faust no longer does anything, or which does
    not end by itself. The next one folds some facts again."""
    pause, last, since = threading.Event(), (-1, -1), time.monotonic()
    lock = app.member.directory / "lock"
    while not worker.should_stop:
        pause.wait(TICK_S)
        if not lock.exists():
            app.end(f"its directory {app.member.directory} was deleted")
        done = app.book.folded, app.book.restored_rows
        if done != last or not app.is_busy() or not app.book.has_time():
            last, since = done, time.monotonic()
        elif time.monotonic() - since > STUCK_S:
            app.end(f"this member made no progress within {STUCK_S:g} s")
    pause.wait(END_S)
    os._exit(FAILED if app.crashed else 0)
