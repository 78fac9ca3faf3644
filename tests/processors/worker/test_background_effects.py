"""Background work in a real EffectsHost: provider errors of this work do not affect answers."""

import gc
import warnings
from time import monotonic

import pytest

from foldlog.local.messages_api import Reply, Rule, ScriptedServer, text
from foldlog.log.blobs import BlobStore
from foldlog.log.memory import MemoryLog
from foldlog.processors.agent import Agent
from foldlog.processors.effects.models.call import make_client
from foldlog.processors.effects.ports import BeginWork
from foldlog.processors.effects.slots import Slots
from foldlog.processors.fold.projections.turn_view import Claim
from foldlog.processors.memory.fold import text_of
from foldlog.processors.store.chunks_reader import chunks_reader
from foldlog.processors.tools.side_log import SideLogStore
from foldlog.processors.wake.background_tasks import Task
from foldlog.processors.worker.effects_host import EffectsHost
from foldlog.processors.worker.outbox import Outbox
from foldlog.processors.worker.reports import Reports
from foldlog.schemas import events as ev
from foldlog.schemas.codec import entry_of
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.kit.slowness import allowed
from foldlog.tests.processors.memory.memory_log import ANA, serving

WAIT_S = allowed(90.0)
REQUEST = (
    b'{"model":"claude-cheapest","max_tokens":9,"messages":[{"role":"user","content":"long"}]}'
)


@pytest.mark.parametrize("fault", ["rate_limit", "overloaded"])
def test_S1_H_a_busy_background_model_does_not_delay_answers(fault, tmp_path):
    log, output, slots = MemoryLog(topics(1), threaded=True), [], Slots(9)
    rules = [Rule(reply=Reply([], fault=fault), times=1), Rule(reply=Reply([text("short")]))]
    with ScriptedServer(rules) as server:
        host = host_of(log, server, tmp_path, output, slots)
        task = Task(REQUEST, "claude-cheapest", 5_000, call="1.1.0", text="long " * 4_000)
        host.begin("s", begin("result", 3, task))
        events = written(log, 2, output)
        host.close()
    assert [type(event) for event in events] == [ev.ResultCompacted, ev.BackgroundDone]
    assert slots.back_off_until_ms == 0


def test_S1_H_a_worker_does_not_write_a_fact_of_its_memory_again(tmp_path):
    log, output = MemoryLog(topics(1), threaded=True), []
    reply = text('[{"kind":"core","text":"likes tea"}]')
    with (
        ScriptedServer(lambda request: Reply([reply])) as server,
        serving(log, tmp_path / "memory") as memory,
    ):
        host = host_of(log, server, tmp_path, output, Slots(9), memory=memory)
        for number in (1, 2):
            host.begin("s", begin("memory", number, Task(REQUEST, "m", 0, scope=ANA)))
            outcome = written(log, number, output)[-1]
            is_known = "1 of 1 entries were already known" in outcome.why
            assert outcome.ok and is_known == (number == 2)
        host.close()
        assert memory.await_caught_up()
        assert text_of(memory.reader.view(ANA), "core.md") == "likes tea\n"


def test_a_closed_host_leaves_no_connection_to_the_model_open(tmp_path):
    """The defect: an unclosed socket was reported in an unrelated test, during garbage
    collection."""
    log, output = MemoryLog(topics(1), threaded=True), []
    with ScriptedServer([Rule(reply=Reply([text("short")]))]) as server:
        host = host_of(log, server, tmp_path, output, Slots(9))
        task = Task(REQUEST, "claude-cheapest", 5_000, call="1.1.0", text="long " * 4_000)
        host.begin("s", begin("result", 3, task))
        written(log, 2, output)
        host.close()
        del host
        with warnings.catch_warnings(record=True) as reported:
            warnings.simplefilter("always")
            gc.collect()
    assert [str(w.message) for w in reported if "transport" in str(w.message)] == []


def host_of(log, server, directory, output, slots, **more) -> EffectsHost:
    return EffectsHost(
        Reports(log.producer(), Outbox(directory / "outbox"), output.append),
        BlobStore(directory / "blobs"),
        SideLogStore(directory / "side_log"),
        slots,
        lambda: make_client("key", server.base_url),
        chunks_reader(log),
        output.append,
        **more,
    )


def begin(kind: str, upto: int, task: Task) -> BeginWork:
    claim = Claim("w/1", 0, 7 + upto, 0, 10**15)
    return BeginWork(kind, upto, 1, claim, task, Agent(name="a", model="m"))


def written(log: MemoryLog, count: int, output: list[str]) -> list:
    """Wait for the first `count` events of the log, and return them."""
    reader, events, deadline = log.reader(SESSION_EVENTS, {0: 0}), [], monotonic() + WAIT_S
    while len(events) < count:
        assert monotonic() < deadline, output
        records = reader.poll(WAIT_S, 1)
        assert records, output
        events += [entry_of(record).event for record in records]
    return events
