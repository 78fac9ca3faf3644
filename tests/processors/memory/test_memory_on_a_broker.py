"""Memory end to end: files, a worker on a real broker, tools, extraction, and use in another
session."""

import json
import sqlite3
from contextlib import closing

import pytest

from foldlog.local.messages_api import Reply, Request, ScriptedServer, tool_use
from foldlog.log.kafka import KafkaLog
from foldlog.processors.memory.fold import text_of
from foldlog.processors.memory.service import FILE
from foldlog.tests.cli.test_on_a_broker import WAIT_S, machine
from foldlog.tests.kit.waiting import until
from foldlog.tests.processors.memory.memory_log import ANA
from foldlog.upkeep.memory import read_memory

pytestmark = pytest.mark.broker
__all__ = ["machine"]

AGENT = """
from foldlog import Agent
agent = Agent(name="default", model="claude-test", system="POLICY", memory=True)

class Mine:
    name, dimensions = "mine-1", 2

    def embed(self, texts):
        return [[3, 4]] * len(texts)
"""
FACT = {"kind": "note", "text": "Ana asked about the Oslo trip."}


class Model:
    """Responds to an extraction with a list, and to a conversation with a call of a memory tool."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, request: Request) -> Reply:
        system = json.dumps(request.body["system"])
        if "long-term memory of an assistant" in system:
            return Reply([json.dumps([FACT])])
        self.prompts.append(system)
        if request.turn_results:
            return Reply(["done"])
        if "remember" in request.last_user_text:
            return Reply([tool_use("remember", {"text": "lives in Oslo", "kind": "core"})])
        return Reply([tool_use("search_memory", {"query": "where does Ana live"})])


def test_S3_2_S1_H_a_session_knows_what_an_earlier_one_remembered(machine, broker, tmp_path):
    model = Model()
    with ScriptedServer(model) as server:
        machine.env |= {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "test-key"}
        machine.env["FOLDLOG_EMBEDDER"] = "my_app:Mine"
        (tmp_path / "my_app.py").write_text(AGENT)
        (tmp_path / "notes").mkdir()
        (tmp_path / "notes" / "core.md").write_text("likes tea\n")
        assert "took edits from core.md: 1 events" in machine("memory", "--dir", "notes", "--sync")

        worker = machine.start("worker", "--agent", "my_app:agent")
        log = KafkaLog(broker.bootstrap_servers, topic_prefix=machine.env["FOLDLOG_TOPIC_PREFIX"])
        try:
            reply = machine("send", "s1", "remember: I live in Oslo", "--wait", "--json")
            assert json.loads(reply)["reason"] == "end_turn"
            until("an extracted entry", lambda: any(
                kept.by == "background" for kept in read_memory(log, ANA).now.entries
            ))
            machine("send", "s2", "where do I live?", "--wait")
            transcript = machine("show", "s2", "--view", "transcript")
        finally:
            worker.terminate()
            _, err = worker.communicate(timeout=WAIT_S)
            view = read_memory(log, ANA).now
            log.close()
        assert "Traceback" not in err and "memory" not in err, err

        assert _embedder_of(tmp_path) == "mine-1/2"
        first, last = model.prompts[0], model.prompts[-1]
        assert "user| likes tea" in first and "Oslo" not in first
        assert "user| lives in Oslo  [written by an agent]" in last
        assert "daily/" in last and "Oslo trip" in last, "the index lists the extracted entry"
        assert "lives in Oslo" in transcript and "session s1 at offset" in transcript

        assert text_of(view, "core.md") == "likes tea\nlives in Oslo\n"
        extracted = [kept for kept in view.entries if kept.by == "background"]
        assert {kept.source_session for kept in extracted} <= {"s1", "s2"}
        assert all(kept.source_offset is not None for kept in view.entries[1:])
        machine("memory", "--dir", "notes", "--sync")
        assert (tmp_path / "notes" / "core.md").read_text() == "likes tea\nlives in Oslo\n"


def _embedder_of(directory) -> str:
    """The embedder that the only worker's store names."""
    (path,) = directory.rglob(FILE)
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT value FROM search_meta WHERE name = 'embedder'").fetchone()[0]
