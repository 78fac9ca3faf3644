"""Background work in a real host: what it meets at the provider is no concern of answers."""

import pytest

from foldlog.local.messages_api import Reply, Rule, ScriptedServer, text
from foldlog.log.memory import MemoryLog
from foldlog.processors.agent import Agent
from foldlog.processors.context.tasks import Task
from foldlog.processors.effects.models import make_client
from foldlog.processors.effects.side_log import SideLogStore
from foldlog.processors.effects.slots import Slots
from foldlog.processors.projections.turn_view import Claim
from foldlog.processors.runtime.begin import BeginWork
from foldlog.processors.runtime.chunks_reader import chunks_reader
from foldlog.processors.runtime.effects_host import EffectsHost
from foldlog.processors.runtime.outbox import Outbox
from foldlog.processors.runtime.reports import Reports
from foldlog.producers.blobs import BlobStore
from foldlog.schemas import events as ev
from foldlog.schemas.codec import entry_of
from foldlog.schemas.topics import SESSION_EVENTS, topics

WAIT_S = 20.0
REQUEST = (
    b'{"model":"claude-cheapest","max_tokens":9,"messages":[{"role":"user","content":"long"}]}'
)


@pytest.mark.parametrize("fault", ["rate_limit", "overloaded"])
def test_S1_H_a_cheap_model_that_is_busy_does_not_make_answers_wait(fault, tmp_path):
    log, said, slots = MemoryLog(topics(1), threaded=True), [], Slots(9)
    rules = [Rule(reply=Reply([], fault=fault), times=1), Rule(reply=Reply([text("short")]))]
    with ScriptedServer(rules) as server:
        host = EffectsHost(
            Reports(log.producer(), Outbox(tmp_path / "outbox"), said.append),
            BlobStore(tmp_path / "blobs"),
            SideLogStore(tmp_path / "side_log"),
            slots,
            lambda: make_client("key", server.base_url),
            chunks_reader(log),
            said.append,
        )
        task = Task(REQUEST, "claude-cheapest", 5_000, call="1.1.0", text="long " * 4_000)
        claim = Claim("w/1", 0, 7, 0, 10**15)
        host.work("s", BeginWork("result", 3, 1, claim, task, Agent(name="a", model="m")))
        reader, events = log.reader(SESSION_EVENTS, {0: 0}), []
        while len(events) < 2:
            records = reader.poll(WAIT_S, 1)
            assert records, said
            events += [entry_of(record).event for record in records]
        host.close()
    assert [type(event) for event in events] == [ev.ResultCompacted, ev.BackgroundDone]
    assert slots.back_off_until_ms == 0
