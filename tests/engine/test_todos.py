"""What a project has still to do is said when a turn begins, once for each change (S1)."""

import json

import pytest

from foldlog.local.messages_api import Reply, ScriptedServer, text
from foldlog.processors.agent import Agent
from foldlog.processors.request.build import request_bytes
from foldlog.schemas import events as ev
from foldlog.tests.engine.driven import Driven


@pytest.fixture
def session(tmp_path):
    with ScriptedServer([Reply([text("done")])]) as server:
        driven = Driven(Agent(name="helper", model="claude-opus-5-5"), server, tmp_path)
        yield driven
        driven.close()


def said(session: Driven) -> list[str]:
    body = json.loads(request_bytes(session.views, lambda ref: session.blobs.get(ref.sha256)))
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [block["text"] for block in blocks if block.get("text", "").startswith("Reminder: ")]


def test_open_todos_are_said_when_they_changed_and_stay_where_they_were_said(session):
    todos = ["| t1: paint"]
    actions = session.worker.actions
    actions._desk = actions._desk._replace(read_todos=lambda agent, views: todos[0])
    session.say("hi").run().say("and?").run()
    assert said(session) == ["Reminder: | t1: paint"], "nothing new is not said again"
    todos[0] = "| t2: varnish"
    session.say("more").run()
    assert said(session) == ["Reminder: | t1: paint", "Reminder: | t2: varnish"]
    assert [event.text for event in session.events(ev.ReminderAdded)] == [
        "| t1: paint", "| t2: varnish",
    ]
    todos[0] = ""
    session.say("all done").run()
    assert len(session.events(ev.ReminderAdded)) == 2
    session.check()
