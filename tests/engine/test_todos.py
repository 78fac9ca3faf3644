"""A turn begins with a reminder of the project's open todos if these have changed (S1)."""

import json

import pytest

from foldlog.local.messages_api import Reply, text
from foldlog.processors.agent import Agent
from foldlog.processors.request.build import request_bytes
from foldlog.schemas import events as ev
from foldlog.tests.engine.driven import Driven


@pytest.fixture
def session(start_session):
    agent = Agent(name="helper", model="claude-opus-5-5")
    return start_session(agent, Reply([text("done")]))


def reminders(session: Driven) -> list[str]:
    body = json.loads(request_bytes(session.views, session.read_blob))
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [block["text"] for block in blocks if block.get("text", "").startswith("Reminder: ")]


def test_open_todos_are_sent_once_for_each_change_and_keep_their_place(session):
    todos = ["| t1: paint"]
    actions = session.worker.actions
    actions._sources = actions._sources._replace(read_todos=lambda agent, views: todos[0])
    session.say("hi").run().say("and?").run()
    assert reminders(session) == ["Reminder: | t1: paint"], "unchanged todos are not repeated"
    todos[0] = "| t2: varnish"
    session.say("more").run()
    assert reminders(session) == ["Reminder: | t1: paint", "Reminder: | t2: varnish"]
    assert [event.text for event in session.events(ev.ReminderAdded)] == [
        "| t1: paint", "| t2: varnish",
    ]
    todos[0] = ""
    session.say("all done").run()
    assert len(session.events(ev.ReminderAdded)) == 2
    session.check()
