"""While the blob store is away, effects, sessions and folds wait; then each ends exactly once."""

import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from foldlog.local.messages_api import Reply, ScriptedServer, text
from foldlog.log.blobs import BlobStore
from foldlog.log.memory import MemoryLog
from foldlog.log.object_store import RemoteObjects
from foldlog.processors.agent import Agent
from foldlog.processors.effects.models.call import make_client
from foldlog.processors.effects.ports import BeginGeneration
from foldlog.processors.effects.slots import Slots
from foldlog.processors.effects.tool import tool_claim_of
from foldlog.processors.store.chunks_reader import chunks_reader
from foldlog.processors.tools import blob_wait
from foldlog.processors.tools.side_log import SideLogStore
from foldlog.processors.worker.effects_host import EffectsHost
from foldlog.processors.worker.outbox import Outbox
from foldlog.processors.worker.reports import Reports
from foldlog.processors.worker.worker import BLOBS_RETRY_MS
from foldlog.schemas import events as ev
from foldlog.schemas.codec import ChunkSeen, entry_of
from foldlog.schemas.seed import MEDIA_TYPE, seal
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.manual_worker import (
    SESSION,
    ManualWorker,
    answered,
    call,
    message,
    opened,
)
from foldlog.tests.kit.slowness import allowed
from foldlog.tests.processors.worker.test_effects_host import CLAIM, begin_tool
from foldlog.tests.processors.worker.test_worker import AGENT, open_sessions

LARGE = "0123456789" * 20_000
WAIT_S = allowed(60.0)


@pytest.fixture
def objects():
    return RemoteObjects(f"memory://{unique_name()}")


@contextmanager
def away(objects):
    """An outage, as the client reports one."""
    objects._away = ("it does not answer", time.monotonic())
    try:
        yield
    finally:
        objects._away = None


@pytest.fixture
def begun(tmp_path, objects, monkeypatch):
    """A function that starts an EffectsHost on the store, with the address of a model."""
    monkeypatch.setattr(blob_wait, "RETRY_S", 0.01)
    hosts = []

    def start(place=objects, base_url="http://127.0.0.1:9"):
        log = MemoryLog(topics(1), threaded=True)
        reports = Reports(log.producer(), Outbox(tmp_path / f"outbox{len(hosts)}"), print)
        host = EffectsHost(
            reports, BlobStore(place), SideLogStore(tmp_path / "side"), Slots(9),
            lambda: make_client("key", base_url), chunks_reader(log), print,
        )
        hosts.append(host)
        return log, host

    yield start
    for host in hosts:
        host.close()


def outcomes(log):
    """The outcomes in the log."""
    found = (entry_of(record).event for record in log.records(SESSION_EVENTS, 0))
    return [event for event in found if not isinstance(event, ChunkSeen)]


def wait_for(condition):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def tried(monkeypatch):
    """Set when a blob was tried in vain."""
    tried, put = threading.Event(), BlobStore.put

    def noting(self, data):
        try:
            return put(self, data)
        except Exception:
            tried.set()
            raise

    monkeypatch.setattr(BlobStore, "put", noting)
    return tried


@pytest.mark.parametrize("effect", ["once", "idempotent", "pure"])
def test_a_large_result_waits_for_the_store_and_is_reported_once(begun, objects, tried, effect):
    log, host = begun()
    ran = []

    def read_all() -> str:
        """Read all."""
        ran.append(1)
        return LARGE

    def read_little() -> str:
        """Read little."""
        return "small"

    with away(objects):
        host.begin("s", begin_tool(read_all, effect))
        assert tried.wait(WAIT_S)
        host.begin("other", begin_tool(read_little, "pure"))
        wait_for(lambda: outcomes(log))  # an effect without a blob does not wait
        assert [event.content.inline for event in outcomes(log)] == [b"small"]
    wait_for(lambda: len(outcomes(log)) == 2)
    (_, event) = outcomes(log)
    assert event.outcome == "ok" and ran == [1]
    assert BlobStore(objects).get(event.content.ref.sha256).decode() == LARGE


@pytest.mark.parametrize("effect", ["once", "idempotent"])
def test_a_result_survives_a_worker_that_dies_while_it_waits(begun, objects, tmp_path, effect):
    """The side log has the result, so the successor asks nobody and runs nothing again."""
    log, host = begun()
    side_logs = SideLogStore(tmp_path / "side")

    def read_all() -> str:
        """Read all."""
        return LARGE

    with away(objects):
        begin = begin_tool(read_all, effect)
        kept = side_logs.of("s", tool_claim_of("s", begin).call_key)
        host.begin("s", begin)
        wait_for(lambda: kept.has_result)
        later, successor = begun(RemoteObjects(objects.url))
        successor.begin("s", begin._replace(recovers=True))
        wait_for(lambda: outcomes(later))
        assert outcomes(log) == [], "the first worker could as well be dead"
    (event,) = outcomes(later)
    assert (event.outcome, event.via) == ("ok", "reconciler")
    assert BlobStore(objects).get(event.content.ref.sha256).decode() == LARGE


def test_a_large_answer_waits_for_the_store_and_is_asked_for_once(begun, objects, tried):
    requests = []

    def answer(request):
        requests.append(request)
        return Reply([text(LARGE)])

    with ScriptedServer(answer) as server:
        log, host = begun(base_url=server.base_url)
        request = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}]}'
        agent = Agent(name="a", model="m")
        with away(objects):
            host.begin("s", BeginGeneration(1, 1, 1, CLAIM, request, agent))
            assert tried.wait(WAIT_S)
            assert outcomes(log) == []
        wait_for(lambda: outcomes(log))
    (event,) = outcomes(log)
    assert isinstance(event, ev.GenComplete) and len(requests) == 1
    assert LARGE in BlobStore(objects).get(event.content.ref.sha256).decode()


# -- the poll thread -------------------------------------------------------------------------------


class SeekingWorker(ManualWorker):
    """A worker whose reader follows its seeks, as the loop's does."""

    def read(self, records_max: int = 1000) -> None:
        """Poll once, for at most `records_max` records."""
        for partition, offset in self.worker.consume(self.reader.poll(0, records_max)).items():
            self.reader.seek(partition, offset)


@pytest.fixture
def rig(objects):
    """A worker that reads blobs from the store."""
    blobs = BlobStore(objects)
    return SeekingWorker(AGENT, read_blob=lambda ref: blobs.get(ref.sha256))


def in_blob(objects, data: bytes, media_type="application/json") -> ev.Body:
    return ev.Body(ref=BlobStore(objects).store(data, media_type))


def test_a_session_waits_for_the_store_and_the_others_continue(rig, objects):
    content = in_blob(objects, b'[{"type":"text","text":"large"}]')
    open_sessions(rig, "small")
    rig.write("producer", opened("a"), key="large")
    rig.write("producer", replace(message(), content=content), key="large")
    with away(objects):
        rig.assign()
        rig.settle()
        for _ in range(3):
            rig.ms += BLOBS_RETRY_MS
            rig.worker.tick()
            rig.settle()
        assert rig.worker.waits_for_blobs() and rig.worker.owned[0].stuck == {}
        assert len(rig.events(ev.GenStart)) == 1, "of the small session"
        assert sum("blob store is away" in line for line in rig.lines) == 1
    rig.ms += BLOBS_RETRY_MS
    rig.worker.tick()
    rig.settle()
    assert len(rig.events(ev.GenStart)) == 2 and len(rig.events(ev.LlmCalled)) == 2
    rig.ms += 3 * BLOBS_RETRY_MS
    assert not rig.worker.waits_for_blobs()


def test_a_claimed_call_begins_once_when_its_arguments_can_be_read(rig, objects):
    open_sessions(rig, SESSION)
    rig.assign()
    rig.settle()
    answer = answered(call("look"))
    calls = tuple(replace(each, args=in_blob(objects, each.args.inline)) for each in answer.calls)
    rig.write("models", replace(answer, calls=calls))
    while not rig.events(ev.ToolStarted):
        rig.read()
    begun = len(rig.begins)
    with away(objects):
        rig.settle()
        assert len(rig.begins) == begun and rig.worker.waits_for_blobs()
    for _ in range(3):
        rig.ms += BLOBS_RETRY_MS
        rig.worker.tick()
        rig.settle()
    assert len(rig.begins) == begun + 1


def test_a_fork_is_not_frozen_by_an_outage(rig, objects):
    """A lost seed freezes a fork for good. An outage is no loss."""
    open_sessions(rig, "parent")
    records = [r for r in rig.log.records(SESSION_EVENTS, 0) if r.key == b"parent"]
    seed = in_blob(objects, seal("parent", records), MEDIA_TYPE).ref
    fork = replace(opened("a"), parent_session="parent", parent_offset=1, seed_ref=seed)
    rig.write("producer", fork, key="fork")
    rig.write("producer", opened("a"), key="later")
    with away(objects):
        rig.assign()
        for _ in range(3):
            rig.read()
            assert rig.worker.held_up
        owned = rig.worker.owned[0]
        assert owned.views("parent") is not None
        assert owned.views("fork") is None is owned.views("later")
        assert owned.store.cursor.offset == 2, "what was folded is stored"
    rig.settle()
    assert owned.views("fork").frozen is None and owned.views("later").turn.known
    assert not rig.worker.held_up
