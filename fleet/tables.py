"""The tables of the fleet on Faust: stores in RocksDB that changelogs restore exactly.

Faust's own restore is replaced. It loses records that it fetches while it starts, skips the rest of
a changelog after a record that it cannot apply, and takes half a minute for 100,000 rows. Here a
member reads the changelogs of its partitions with a client of its own: up to their end before it
folds a fact, and continuously for the partitions of which it is the standby.

A changelog is input from outside. A record that is no row is counted and skipped. Of two versions
of a row, the one that covers the other stays, so a row that a dead member wrote too late has no
effect. In both cases the stored row is written to the changelog again, because compaction would
keep only the last record.
"""

import asyncio
import contextlib
import gc
import shutil
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import faust
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from faust.stores import rocksdb
from faust.tables.manager import TableManager
from faust.tables.recovery import RebalanceAgain, Recovery, ServiceStopped
from faust.types import TP
from mode import Service

from . import rows
from .book import Book

FETCHED_MAX = 2_000
"""Records applied at once, in about 20 ms, between which the event loop does other work."""
FETCH_MS = 300
RETRY_S = 1.0
CONFIRM_S = 10.0


def store_options() -> dict[str, Any]:
    """Options of a table: a new dict for each one, because Faust's store empties it. Stores are
    small; Faust's defaults take 200 MB of memory for each partition."""
    return {
        "driver": "rocksdict", "write_buffer_size": 4 << 20, "max_write_buffer_number": 2,
        "block_cache_size": 8 << 20, "target_file_size_base": 16 << 20,
    }  # fmt: skip


class Applied(NamedTuple):
    """What a batch of a changelog did. rejected: the keys whose stored row must be written again.
    damaged: records that are no rows."""

    rejected: frozenset[bytes]
    damaged: int


class FleetStore(rocksdb.Store):
    """The rows of one table, with a RocksDB for each partition."""

    def apply(self, partition: int, records: Iterable[Any]) -> Applied:
        """Store a batch of a changelog's records and the offset of the last one."""
        table, db = self.table_name, self._db_for_partition(partition)
        new: dict[bytes, bytes] = {}
        rejected: set[bytes] = set()
        damaged = last = 0
        for record in records:
            last, key = record.offset, record.key
            newer = rows.decoded(table, record.value)
            is_key = rows.is_key(table, key, partition, self.app.conf.topic_partitions)
            damaged += newer is None or not is_key
            if not is_key:
                continue
            old = rows.decoded(table, new.get(key) or db.get(key))
            if newer is not None and (old is None or rows.covers(newer, old)):
                new[key] = record.value
                rejected.discard(key)
                continue
            rejected.add(key)
            if old is None:
                new[key] = rows.encoded(rows.TABLES[table].row(damaged=True))
        batch = cast(Any, rocksdb).WriteBatch(raw_mode=True)
        for key, value in new.items():
            batch.put(key, value)
        batch.put(self.offset_key, str(last).encode())
        db.write(batch)
        return Applied(frozenset(rejected), damaged)

    def forget(self, partition: int) -> None:
        """Delete a partition's rows, to restore all of them."""
        self._close(partition)
        shutil.rmtree(self.partition_path(partition), ignore_errors=True)

    def partition_db(self, partition: int) -> Any:
        """The RocksDB of a partition; None if it is not open. Any thread may read it."""
        return self._dbs.get(partition)

    def set_persisted_offset(self, tp: TP, offset: int) -> None:
        """Store that the rows up to this offset of the changelog are here. A confirmation that
        comes after the partition was revoked does nothing."""
        if tp.partition in self._dbs:
            super().set_persisted_offset(tp, offset)

    def revoke_partitions(self, table: Any, tps: set[TP]) -> None:
        """Close the stores of partitions that this member neither owns nor follows any more."""
        for tp in tps:
            if tp.topic in table.changelog_topic.topics:
                self._close(tp.partition)

    async def stop(self) -> None:
        """Close all stores."""
        for partition in list(self._dbs):
            self._close(partition)

    def _open_for_partition(self, partition: int) -> Any:
        path = self.partition_path(partition)
        try:
            return self.rocksdb_options.open(path)
        except Exception as error:
            if "corruption" not in str(error).lower():
                raise
        shutil.rmtree(path, ignore_errors=True)  # the changelog has all rows
        return self.rocksdb_options.open(path)

    def _close(self, partition: int) -> None:
        db = self._dbs.pop(partition, None)
        for key in [key for key, place in self._key_index.items() if place == partition]:
            del self._key_index[key]
        if db is not None:
            with contextlib.suppress(Exception):  # a reader in another thread holds it
                db.close()
            del db
            gc.collect()


class FleetTable(faust.Table):
    """A table that reports each row that it hands to the producer."""

    def _new_store_by_url(self, url: Any) -> Any:
        return FleetStore(
            url, self.app, self, table_name=self.name, key_type=bytes, key_serializer="raw",
            value_serializer="raw", value_type=bytes, loop=self.loop, options=self.options,
        )  # fmt: skip

    @property
    def store(self) -> FleetStore:
        """The rows."""
        return cast(FleetStore, self.data)

    def send_changelog(self, *args: Any, **more: Any) -> Any:
        """Hand a row to the producer."""
        sent = super().send_changelog(*args, **more)
        cast(Any, self.app).book.sent(sent)
        return sent


class FleetTables(TableManager):
    """The tables, with this file's restore."""

    @property
    def recovery(self) -> Recovery:
        """The service that restores tables."""
        if self._recovery is None:
            self._recovery = FleetRecovery(self.app, self, beacon=self.beacon, loop=self.loop)
        return self._recovery


class FleetRecovery(Recovery):
    """Restores tables after each rebalance, and follows the changelogs of standbys."""

    _following: asyncio.Task[None] | None = None
    _rebalances = 0

    @Service.task
    async def _restart_recovery(self) -> None:
        while not self.should_stop:
            if await self.wait_for_stopped(self.signal_recovery_start):  # type: ignore[arg-type]
                return
            self.signal_recovery_start.clear()
            generation = self._generation_id
            try:
                await self._restore(generation)
            except RebalanceAgain:
                continue
            except ServiceStopped:
                return

    @Service.task
    async def _slurp_changelogs(self) -> None:
        """Nothing: Faust's consumer never reads a changelog."""

    @Service.task
    async def _publish_stats(self) -> None:
        """Nothing: the pages of the member have the numbers."""

    @property
    def _book(self) -> Book:
        return cast(Book, cast(Any, self.app).book)

    async def on_stop(self) -> None:
        """Stop following."""
        self._stop_following()

    async def on_rebalance(self, *args: Any, **more: Any) -> None:
        """Begin a restore."""
        self._stop_following()
        self._rebalances = self._book.rebalances
        await super().on_rebalance(*args, **more)

    def _stop_following(self) -> None:
        if self._following is not None:
            self._following.cancel()
            self._following = None

    async def _restore(self, generation: int) -> None:
        self._set_recovery_started()
        actives, standbys = set(self.active_tps), set(self.standby_tps)
        cast(Any, self.app).reach("restore.begun")
        repairs: set[tuple[TP, bytes]] = set()
        await self._wait(self._read(actives, repairs, to_the_end=True))
        if self._book.rebalances != self._rebalances:
            raise RebalanceAgain  # it would fold facts that belong to the next owner
        self._book.restored = frozenset(tp.partition for tp in actives)
        self._book.standby = frozenset(tp.partition for tp in standbys)
        for tp, key in repairs:
            self._repair(tp, key)
        if standbys:
            self._following = asyncio.ensure_future(self._follow(standbys))
        cast(Any, self.app).reach("restore.done")
        await self._wait(self.on_recovery_completed(generation))

    def _repair(self, tp: TP, key: bytes) -> None:
        table = cast(FleetTable, self.tables._changelogs[tp.topic])
        db = table.store.partition_db(tp.partition)
        value = None if db is None else db.get(key)
        if value is not None:
            table.send_changelog(tp.partition, key, value)

    async def _follow(self, tps: set[TP]) -> None:
        try:
            await self._read(tps, set(), to_the_end=False)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            cast(Any, self.app).end(f"a standby could not be kept up to date ({error})")

    async def _read(
        self, tps: set[TP], repairs: set[tuple[TP, bytes]], *, to_the_end: bool
    ) -> None:
        """Apply changelogs from where the stores end: up to the present end, or for ever."""
        while tps:
            try:
                async with cast(Any, self.app).client() as client:
                    await self._apply_all(client, tps, repairs, to_the_end=to_the_end)
                return
            except KafkaError as error:
                self.log.warning("a changelog cannot be read: %r", error)
                await asyncio.sleep(RETRY_S)

    async def _apply_all(
        self, client: AIOKafkaConsumer, tps: set[TP], repairs: set[tuple[TP, bytes]], *,
        to_the_end: bool,
    ) -> None:  # fmt: skip
        client.assign([TopicPartition(*tp) for tp in tps])
        first = await client.beginning_offsets([TopicPartition(*tp) for tp in tps])
        ends = await client.end_offsets([TopicPartition(*tp) for tp in tps])
        for tp in ends:
            client.seek(tp, self._start(TP(*tp), first[tp], ends[tp]))
        while True:
            left = [tp for tp in ends if await client.position(tp) < ends[tp]]
            if to_the_end and not left:
                return
            found = await client.getmany(
                *(left if to_the_end else ()), timeout_ms=FETCH_MS, max_records=FETCHED_MAX
            )
            for tp, records in found.items():
                self._apply(TP(*tp), records, repairs)
                await asyncio.sleep(0)

    def _start(self, tp: TP, first: int, end: int) -> int:
        """Where to continue. A store that is ahead of its changelog belongs to another one."""
        store = cast(FleetTable, self.tables._changelogs[tp.topic]).store
        persisted = store.persisted_offset(tp)
        if persisted is not None and persisted >= end:
            store.forget(tp.partition)
            persisted = None
        return first if persisted is None else max(first, persisted + 1)

    def _apply(self, tp: TP, records: list[Any], repairs: set[tuple[TP, bytes]]) -> None:
        table = cast(FleetTable, self.tables._changelogs[tp.topic])
        cast(Any, self.app).reach("restore.read")
        applied = table.store.apply(tp.partition, records)
        repairs |= {(tp, key) for key in applied.rejected}
        repairs -= {
            (tp, record.key) for record in records if record.key not in applied.rejected
        }  # fmt: skip
        self._book.restored_rows += len(records)
        self._book.damaged[table.name] += applied.damaged
