"""Faust's Kafka clients, with the fleet's accounting (book.py) and its fence.

consumer: reads facts in order without a hole, commits only what Kafka has confirmed, and subscribes
    to the changelogs at once. Faust subscribes to them a second later, and ends when a static
    member that replaces a dead one is assigned their partitions before. It ends the process when
    the group has removed the member.
producer: idempotent, so that a record that a broker received late cannot follow a newer one; it
    sends nothing while the last heartbeat is too old.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from aiokafka.errors import KafkaError, RebalanceInProgressError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from .book import Book

CONFIRM_S = 10.0
SIGNS_OF_LIFE = ("Heartbeat", "SyncGroup")
"""The requests with which the group restarts a member's session."""
CONFIRMED = (0, RebalanceInProgressError.errno)


class FleetThread(driver.AIOKafkaConsumerThread):
    """The thread of the consumer, which reports the heartbeats and the loss of membership."""

    async def on_start(self) -> None:
        """Start the client."""
        await super().on_start()
        app = cast(Any, self.app)
        book = cast(Book, app.book)
        coordinator = self._ensure_consumer()._coordinator
        send, reset = coordinator._send_req, coordinator.reset_generation

        async def send_req(request: Any) -> Any:
            sent_at = book.now()
            response = await send(request)
            is_sign = type(request).__name__.startswith(SIGNS_OF_LIFE)
            if is_sign and response.error_code in CONFIRMED:
                book.beat(sent_at)
            return response

        def reset_generation() -> None:  # the group does not know this member any more
            if coordinator.generation > 0 and not app.should_stop:
                app.removed()
            reset()

        coordinator._send_req, coordinator.reset_generation = send_req, reset_generation


class FleetConsumer(driver.Consumer):
    """The consumer of facts."""

    def _new_consumer_thread(self) -> FleetThread:
        return FleetThread(self, loop=self.loop, beacon=self.beacon)

    @property
    def _book(self) -> Book:
        return cast(Book, cast(Any, self.app).book)

    def _facts(self, tps: Iterable[TP]) -> list[TP]:
        return [tp for tp in tps if tp.topic == cast(Any, self.app).facts_topic]

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to topics and to all changelogs."""
        await super().subscribe({*topics, *self.app.tables.changelog_topics})

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Commit, then forget the partitions. Rows that Kafka has not confirmed by then might
        follow those of the next owner, so the process ends."""
        self._book.stop_answering()
        await super().on_partitions_revoked(revoked)
        self._book.revoke()
        if not await self._book.confirmed(CONFIRM_S):
            cast(Any, self.app).end("Kafka did not confirm the rows before a rebalance")

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Seek each partition of facts to the fact to fold next. There is none before the tables of
        the partition are restored."""
        restored = self._book.restored
        committed = dict(await super().seek_to_committed())
        places = [tp for tp in self._facts(self.assignment()) if tp.partition in restored]
        first = await self.earliest_offsets(*places)
        ends = await self.highwaters(*places)
        for tp in places if restored is self._book.restored else ():
            start = self._book.begin(tp.partition, committed.get(tp), first[tp], ends[tp])
            await self.seek(tp, start)
            committed[tp] = start
        return committed

    async def rewind(self, partition: int) -> None:
        """Read again from the fact to fold next, because Faust dropped records."""
        following = self._book.next.get(partition)
        tp = TP(cast(Any, self.app).facts_topic, partition)
        if following is None or tp not in self.assignment():
            return
        self._book.rewound += 1
        await self.seek(tp, following)

    async def _seek(self, partition: TP, offset: int) -> None:
        """Seek in the client's thread. In another one, as Faust does it, a seek deletes records
        that the client is about to return, and that ends in a KeyError."""

        async def seek() -> None:
            self._thread.seek(partition, offset)

        await self._thread.call_thread(seek)

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Nothing: a gap is read again, and never counts as done."""

    async def _commit_tps(self, tps: Iterable[TP], start_new_transaction: bool) -> bool:
        """Commit what is folded, once Kafka has the rows."""
        topic, committed = cast(Any, self.app).facts_topic, self._committed_offset
        offsets = {
            tp: following
            for partition, following in self._book.owned().items()
            if following > (committed.get(tp := TP(topic, partition)) or 0)
        }
        if not offsets or not await self._book.confirmed(CONFIRM_S):
            return False
        cast(Any, self.app).reach("rows.confirmed")
        if not self._book.has_time():  # the group might refuse it
            return False
        try:
            done = await self._commit_offsets(offsets, start_new_transaction)
            cast(Any, self.app).reach("facts.committed")
            return done
        except KafkaError as error:
            self.log.warning("offsets were not committed: %r", error)
            return False


class FleetProducer(driver.Producer):
    """The producer of rows."""

    def _settings_extra(self) -> Mapping[str, Any]:
        return {"acks": "all", "enable_idempotence": True}

    async def on_start(self) -> None:
        """Start the client, whose produce requests pass the fence."""
        await super().on_start()
        app, client = cast(Any, self.app), self._ensure_producer().client
        send = client.send

        async def fenced(node_id: int, request: Any, **more: Any) -> Any:
            if type(request).__name__.startswith("ProduceRequest"):
                await app.book.wait_for_time()
            return await send(node_id, request, **more)

        client.send = fenced
