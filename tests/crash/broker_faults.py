"""Faults of one broker of three, and a writer whose acknowledged records must survive them.

A round plays conversations on a replicated log while one broker, the leader of a session's
partition, is killed, paused, emptied or restarted. The witnesses of the crash tests give the
verdict on the sessions; `Numbers` gives it on the log itself.
"""

import os
import shutil
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from confluent_kafka.admin import AdminClient

from foldlog.local.kafka import Broker, BrokerCluster
from foldlog.log.door import Delivered
from foldlog.log.errors import AppendError, LogFatal
from foldlog.schemas import events as ev
from foldlog.schemas.topics import SESSION_EVENTS, TopicSpec
from foldlog.tests.crash.fleet import PATIENCE_S, wait_until
from foldlog.tests.crash.rig import replay_differs, stage_on
from foldlog.tests.crash.rounds import CAST, Play
from foldlog.tests.crash.stage import Stage
from foldlog.tests.kit import stopped_process
from foldlog.tests.kit.waiting import joined

TOPIC, PARTITIONS = "numbers", 4
PACE_S = 0.02
POLL_S = 0.2


class Numbers:
    """Writes numbers to every partition of a topic of its own until `close`, and records which of
    them were acknowledged."""

    def __init__(self, stage: Stage) -> None:
        spec = TopicSpec(
            name=TOPIC,
            key="none",
            cleanup="delete",
            holds="numbers",
            partitions=PARTITIONS,
            replication=stage.settings.replication,
        )
        stage.log.apply_topics([spec]).demand()
        self._log = stage.log
        self.fatal: list[LogFatal] = []
        self.acked: dict[int, dict[int, bytes]] = {p: {} for p in range(PARTITIONS)}
        self._producer = self._log.producer(self.fatal.append)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        for number in count(0, PARTITIONS):
            if self._ended.wait(PACE_S):
                return
            for partition in range(PARTITIONS):
                value = b"%d" % (number + partition)

                def note(answer: Delivered | AppendError, value: bytes = value) -> None:
                    if isinstance(answer, Delivered):
                        self.acked[answer.partition][answer.offset] = value

                self._producer.append(TOPIC, None, value, partition=partition, on_delivery=note)

    def counts(self) -> list[int]:
        """How many records of each partition were acknowledged so far."""
        return [len(records) for records in self.acked.values()]

    def continues(self) -> Callable[[], bool]:
        """A condition that is true once every partition has acknowledged more than now."""
        before = self.counts()
        return lambda: all(now > then for now, then in zip(self.counts(), before, strict=True))

    def wrong(self) -> Iterator[str]:
        """Read the whole topic. Yields acknowledged records that are missing or at another offset,
        and numbers that are there twice or in another order."""
        yield from map(str, self.fatal)
        acked = {p: dict(records) for p, records in self.acked.items()}  # all are before the ends
        ends = self._log.end_offsets(TOPIC)
        found: dict[int, dict[int, bytes]] = defaultdict(dict)
        reader = self._log.reader(TOPIC, dict.fromkeys(ends, 0))

        def has_read_all() -> bool:
            for record in reader.poll(POLL_S):
                found[record.partition][record.offset] = record.value or b""
            return all(at >= ends[p] for p, at in reader.positions().items())

        wait_until("the numbers are read", has_read_all)
        reader.close()
        for partition, records in acked.items():
            for offset, value in records.items():
                if found[partition].get(offset) != value:
                    there = found[partition].get(offset)
                    yield f"{TOPIC}/{partition}: {value!r} was acknowledged at {offset}: {there!r}"
            order = [int(found[partition][offset]) for offset in sorted(found[partition])]
            if order != sorted(set(order)):
                yield f"{TOPIC}/{partition}: the numbers are repeated or out of order"

    def close(self) -> None:
        """Stop writing."""
        self._ended.set()
        joined(self._thread)
        self._producer.close()


class ThreeBrokers:
    """One installation with a worker on three brokers. `close` ends the worker."""

    def __init__(self, cluster: BrokerCluster, directory: Path) -> None:
        self.cluster = cluster
        self._stack = ExitStack()
        self.stage = self._stack.enter_context(stage_on(cluster.bootstrap_servers, directory))
        self.handle = self.stage.handle()
        self.numbers = Numbers(self.stage)
        self._stack.callback(self.numbers.close)
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        self.restarts = 0

    def leader(self, partition: int) -> Broker:
        """The broker that leads a partition of session-events."""
        topic = self.stage.prefix + SESSION_EVENTS
        found = self._admin.list_topics(topic, timeout=PATIENCE_S).topics[topic]
        return self.cluster.brokers[found.partitions[partition].leader - 1]

    def is_in_sync(self) -> bool:
        """Whether every replica of every topic is in sync, so that one more fault can strike."""
        metadata = self._admin.list_topics(timeout=PATIENCE_S)
        partitions = [p for topic in metadata.topics.values() for p in topic.partitions.values()]
        whole = all(len(p.isrs) == len(p.replicas) and p.leader > 0 for p in partitions)
        return whole and len(metadata.brokers) == len(self.cluster.brokers)

    def await_in_sync(self) -> None:
        """Wait until every replica is in sync."""
        wait_until("every replica is in sync", self.is_in_sync)

    def round(self, fault: str, cast: tuple[str, ...] = CAST) -> list[str]:
        """Play conversations and a fault while answers stream. Returns the violations."""
        self.await_in_sync()
        play = Play(self.stage, self.handle, cast=(*cast, "middle"))
        play.supervised = True
        play.settle()
        play.begin()
        gate = play.people[-1]
        play.until("the gated answer streams", lambda: len(gate.watched.counted(ev.GenChunk)) >= 2)
        FAULTS[fault](self, play, self.leader(gate.watched.partition))
        self.stage.server.open(gate.session_id)
        wrong = play.rest()
        self.restarts += play.restarts
        self.await_in_sync()
        return [*wrong, *replay_differs(self.stage), *self.numbers.wrong()]

    def until_acknowledged(self, play: Play) -> None:
        """Wait until every partition acknowledges records again."""
        play.until("every partition acknowledges records", self.numbers.continues())

    def close(self) -> None:
        """End the worker and the writer."""
        self._stack.close()


Fault = Callable[[ThreeBrokers, Play, Broker], None]


def killed(three: ThreeBrokers, play: Play, leader: Broker) -> None:
    """The leader is killed with SIGKILL, and starts again when others lead its partitions."""
    leader.kill()
    three.until_acknowledged(play)
    leader.up()


def paused(three: ThreeBrokers, play: Play, leader: Broker) -> None:
    """The leader is paused until others lead its partitions, and then continues as a zombie."""
    pid = leader.pid
    assert pid is not None
    stopped_process.stop(pid)
    try:
        three.until_acknowledged(play)
    finally:
        os.kill(pid, signal.SIGCONT)


def emptied(three: ThreeBrokers, play: Play, leader: Broker) -> None:
    """The leader is killed and its disk is lost; it copies everything from the others."""
    leader.kill()
    shutil.rmtree(leader.dir / "data")
    three.until_acknowledged(play)
    leader.up()


def rolled(three: ThreeBrokers, play: Play, _leader: Broker) -> None:
    """Every broker is stopped and started, one after the other."""
    for broker in three.cluster.brokers:
        broker.down()
        three.until_acknowledged(play)
        broker.up()
        play.until("every replica is in sync", three.is_in_sync)


FAULTS: Mapping[str, Fault] = {
    "killed": killed, "paused": paused, "emptied": emptied, "rolled": rolled,
}
