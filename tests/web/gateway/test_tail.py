"""The tail: its stores are a cache. The gateway shows the log even if the stores are lost or
damaged."""

import shutil
import threading
import time

import pytest
from confluent_kafka.admin import AdminClient

from foldlog.log.archive import Archive
from foldlog.log.archived import ArchivedLog
from foldlog.log.errors import TopicMismatch
from foldlog.log.kafka import KafkaLog
from foldlog.log.objects import DirectoryObjects
from foldlog.processors.store.partition_cache import PartitionCache
from foldlog.processors.store.snapshots import Snapshots
from foldlog.processors.store.store import RocksBackend
from foldlog.producers.sessions import Sessions
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.played import PARTITIONS, Played, memory_log, settings_in
from foldlog.tests.kit.waiting import PATIENCE_S, until
from foldlog.tests.web.gateway.served import disk_full, lines_of, served
from foldlog.upkeep.retention import Retention
from foldlog.web.gateway import tail as tail_module
from foldlog.web.gateway.tail import NotReady, Tail


@pytest.fixture
def log():
    return memory_log(threaded=True)


class Following:
    """A running tail, and its output and batches."""

    def __init__(self, log, directory, snapshots=None):
        self.output, self.batches, self._changed = [], [], threading.Condition()
        self.gaps = []
        self.tail = Tail(log, directory, self.output.append, snapshots=snapshots)
        self.tail.on_gap = lambda: self.gaps.append(self.tail.failed)
        self.tail.on_batch = self._take
        self.tail.start()

    def _take(self, batch):
        with self._changed:
            self.batches.append(batch)
            self._changed.notify_all()

    def until(self, holds):
        end = time.monotonic() + PATIENCE_S
        with self._changed:  # chunks of sessions without viewers make no batch
            while not self._changed.wait_for(lambda: holds(self.tail), 0.05):
                assert time.monotonic() < end

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tail.close()


def talk(log, tmp_path, text="hi"):
    sessions = Sessions(log, settings_in(tmp_path))
    sessions.open("s1", agent="default")
    sessions.say("s1", text)
    played = Played(log, "s1")
    played.call()
    played.start()
    played.complete("hello")
    return played


def has_answer(tail):
    views = tail.views("s1")
    return views is not None and any(line.kind == "answer" for line in views.transcript.lines)


def test_it_starts_where_its_store_ends(log, tmp_path):
    played = talk(log, tmp_path)
    with Following(log, tmp_path / "gw") as first:
        first.until(has_answer)
    with Following(log, tmp_path / "gw") as second:
        assert has_answer(second.tail) and second.tail.caught_up
        assert [line["session_id"] for line in second.tail.summaries()] == ["s1"]
        played.end()
        second.until(lambda tail: not tail.views("s1").turn.open)
        assert not second.output


def test_chunks_that_nobody_watches_are_folded_together(log, tmp_path, monkeypatch):
    sessions = Sessions(log, settings_in(tmp_path))
    sessions.open("s1", agent="default")
    sessions.say("s1", "hi")
    played = Played(log, "s1")
    played.call()
    played.start()
    for _ in range(200):
        played.chunk("word ")
    fed = []
    feed = PartitionCache.feed
    monkeypatch.setattr(
        PartitionCache, "feed", lambda self, entry: fed.append(entry) or feed(self, entry)
    )
    with Following(log, tmp_path / "gw") as following:
        following.until(lambda tail: tail.views("s1") and tail.views("s1").stream.chunks == 200)
        assert len(fed) < 50, "one by one, they would take most of the gateway's time"
        played.complete("word " * 200)
        following.until(has_answer)


def test_a_damaged_store_is_rebuilt_and_reported(log, tmp_path):
    talk(log, tmp_path)
    with Following(log, tmp_path / "gw") as first:
        first.until(has_answer)
        partition, _ = first.tail.cursor("s1")
    backend = RocksBackend(tmp_path / "gw" / str(partition))
    backend.write([(b"h\0s1", b"nonsense")], [])
    backend.close()
    with Following(log, tmp_path / "gw") as second:
        second.until(has_answer)
        assert any("damaged" in text for text in second.output)


def snapshot_of(tail, tmp_path, spoil=lambda _backend: None):
    """Make a snapshot of the store of the session's partition; its offset."""
    owned = tail._owned[tail.cursor("s1")[0]]
    spoil(owned.store._backend)
    owned.store.checkpoint(tmp_path / "checkpoint")
    snapshots = Snapshots(DirectoryObjects(tmp_path / "snapshots"))
    snapshots.save(tmp_path / "checkpoint", owned.number, 1)
    shutil.rmtree(tmp_path / "checkpoint")
    return snapshots


def test_a_gateway_without_a_store_continues_from_a_snapshot(log, tmp_path):
    played = talk(log, tmp_path)
    with Following(log, tmp_path / "gw") as first:
        first.until(has_answer)
        snapshots = snapshot_of(first.tail, tmp_path)
    with Following(log, tmp_path / "new", snapshots) as second:
        assert ["was loaded from the snapshot" in line for line in second.output] == [True]
        assert [line["session_id"] for line in second.tail.summaries()] == ["s1"]
        played.end()
        second.until(lambda tail: not tail.views("s1").turn.open)
        assert has_answer(second.tail)


def test_a_gateway_without_a_store_reads_the_archive(log, tmp_path):
    played = talk(log, tmp_path)
    played.end()
    archived = ArchivedLog(log, Archive(DirectoryObjects(tmp_path / "archive")))
    retention = Retention(archived, 1 << 50, lambda _ref: b"", lambda _read, _total: None)
    with Following(archived, tmp_path / "gw") as first:
        first.until(has_answer)
        for partition in retention.partitions():
            retention.run(partition)
        assert log.first_offsets(SESSION_EVENTS) == log.end_offsets(SESSION_EVENTS)
        with Following(archived, tmp_path / "new") as second:
            second.until(has_answer)
            assert second.tail.summaries() == first.tail.summaries()
            Sessions(archived, settings_in(tmp_path)).say("s1", "again")
            for following in (first, second):
                following.until(lambda tail: tail.views("s1").turn.open)
                assert not following.gaps


def test_a_gateway_that_loaded_a_damaged_snapshot_tries_an_older_one(log, tmp_path):
    sessions = Sessions(log, settings_in(tmp_path))
    sessions.open("s1", agent="default")
    with Following(log, tmp_path / "gw") as first:
        first.until(lambda tail: tail.views("s1") is not None)
        snapshot_of(first.tail, tmp_path)
        sessions.say("s1", "hi")
        first.until(lambda tail: tail.views("s1").turn.open)
        damaged = [(b"h\0s1", b"\xc1")]
        snapshots = snapshot_of(first.tail, tmp_path, lambda backend: backend.write(damaged, []))
    with Following(log, tmp_path / "new", snapshots) as second:
        second.until(lambda tail: tail.caught_up and tail.views("s1").turn.open)
        assert sum("loaded from the snapshot" in line for line in second.output) == 2


def test_batches_contain_the_decisions_on_commands(log, tmp_path):
    sessions = Sessions(log, settings_in(tmp_path))
    with Following(log, tmp_path / "gw") as following:
        sessions.open("s1", agent="default")
        receipt = sessions.trigger("s1", "publish")
        following.until(lambda tail: tail.cursor("s1")[1] > receipt.offset)
        decisions = [d for batch in following.batches for d in batch.decisions]
        assert [(d.verdict, d.offset) for d in decisions] == [
            ("accepted", receipt.offset - 1), ("refused", receipt.offset),
        ]


def test_chunks_are_decoded_for_watched_sessions_only(log, tmp_path):
    played = talk(log, tmp_path)
    played.end()
    Sessions(log, settings_in(tmp_path)).say("s1", "more")
    played.call()
    played.start()
    with Following(log, tmp_path / "gw") as following:
        following.until(lambda tail: tail.caught_up)
        played.chunk("unseen")
        following.until(lambda tail: tail.views("s1").stream.chunks == 1)
        assert not any(batch.events for batch in following.batches)
        following.tail.watch("s1")
        played.chunk("seen")
        following.until(lambda tail: tail.views("s1").stream.chunks == 2)
        deltas = [f.entry.event.delta for batch in following.batches for f in batch.events]
        assert deltas == ["seen"]


def test_few_of_many_sessions_stay_in_memory(log, tmp_path):
    sessions, names = Sessions(log, settings_in(tmp_path)), [f"s{n}" for n in range(40)]
    for name in names:
        sessions.open(name, agent="default")
    with Following(log, tmp_path / "tail") as following:
        following.until(lambda tail: tail.caught_up)
        following.tail._hot_sessions.bytes_max = 15_000
        assert all(following.tail.views(name) for name in names)
        hot = [cache.hot(name) for cache in following.tail._owned.values() for name in names]
        assert 1 <= len(list(filter(None, hot))) <= 3, "at least 4 kB each"


def test_B_a_full_disk_is_reported_and_survived(log, tmp_path):
    sessions = Sessions(log, settings_in(tmp_path))
    sessions.open("s1", agent="default")
    with Following(log, tmp_path / "gateway") as it:
        with disk_full():
            for number in range(8):
                sessions.say("s1", "x" * 60_000, message_id=f"m{number}")
            it.until(lambda tail: isinstance(tail.failed, OSError))
            with pytest.raises(NotReady, match="retries automatically"):
                it.tail.ready()
            assert it.gaps and not it.tail.has_ended
        it.until(lambda tail: tail.failed is None)
        sessions.say("s1", "there is room", message_id="last")
        it.until(lambda tail: tail.views("s1").state.last_message_id == "last")
        it.tail.ready()
        assert len(it.tail.views("s1").messages.received) == 9
        assert it.output[-1] == "the gateway follows the log again"
    with Following(log, tmp_path / "gateway") as again:
        again.until(lambda tail: tail.caught_up)
        assert len(again.tail.views("s1").messages.received) == 9


def test_B_viewers_are_disconnected_when_the_tail_fails_and_lose_nothing(log, tmp_path):
    running = served(log, settings_in(tmp_path), tmp_path / "gateway")
    with running as gateway, gateway.http() as http:
        played = talk(log, tmp_path)
        with http.stream("GET", "/v1/sessions/s1/stream") as stream:
            lines = (line for line in lines_of(stream) if line.startswith("id: "))
            cursor = next(lines)[4:]
            with disk_full():
                sessions = Sessions(log, settings_in(tmp_path))
                for number in range(8):
                    sessions.say("s1", "x" * 60_000, message_id=f"m{number}")
                for line in lines:  # until it ends
                    cursor = line[4:]
                assert http.get("/v1/sessions/s1").status_code == 503
                health = http.get("/healthz")
                assert (health.status_code, health.text) == (
                    503, "does not follow the log: OSError\n"
                )
        until("it follows the log again", lambda: http.get("/healthz").status_code != 503)
        played.end()
        with http.stream("GET", f"/v1/sessions/s1/stream?cursor={cursor}") as stream:
            assert any('"kind":"ended"' in line for line in lines_of(stream))


@pytest.mark.broker
def test_B_a_topic_that_was_recreated_ends_the_tail_and_a_missing_one_does_not(
    broker, tmp_path, monkeypatch
):
    monkeypatch.setattr(tail_module, "QUIET_S", 0.1)
    prefix = unique_name("again")
    log = KafkaLog(broker.bootstrap_servers, topic_prefix=prefix)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    specs = topics(PARTITIONS)
    log.apply_topics(specs).demand()
    sessions = Sessions(log, settings_in(tmp_path))
    sessions.open("s1", agent="default")
    ended = threading.Event()
    with Following(log, tmp_path / "gateway") as it:
        it.tail.on_end = ended.set
        it.until(lambda tail: tail.views("s1") is not None)
        for deletion in admin.delete_topics([prefix + SESSION_EVENTS]).values():
            deletion.result(PATIENCE_S)
        it.until(lambda tail: isinstance(tail.failed, TopicMismatch))
        log.apply_topics(specs).demand()
        assert ended.wait(PATIENCE_S)
        assert isinstance(it.tail.failed, tail_module.Replaced) and it.tail.has_ended
        assert "deleted and created again" in it.output[-1]
    with Following(log, tmp_path / "gateway") as again:
        again.until(lambda tail: tail.caught_up)
        assert again.tail.views("s1") is None
    sessions.close()
    log.close()
