"""A worker serves a fork: it continues after the parent's bytes, and runs nothing again."""

import json

import pytest

from foldlog.consumers.branching import Branching
from foldlog.consumers.session_fold import SessionFold
from foldlog.local.messages_api import Reply, Rule, text, tool_use
from foldlog.log import Settings
from foldlog.processors.agent import Agent
from foldlog.processors.effects.models import call as models
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.tools.tool import tool
from foldlog.producers.sessions import Sessions
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode, entry_of, headers_for
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.engine.driven import Driven

ran: list[str] = []


@tool(effect="once")
def charge(n: int) -> str:
    """Charges a card."""
    ran.append("charge")
    return "charged"


class Forking(Driven):
    """Calls the model for any session; `requests`: (session, request)."""

    def __init__(self, *args):
        super().__init__(*args)
        self.requests = []

    def generate(self, session_id, begin):
        self.requests.append((session_id, begin.request))
        self.begins.append(("generate", (session_id, begin)))

    async def _generate(self, what):
        session_id, begin = what
        claim = models.GenClaim(
            session_id=session_id, turn=begin.turn, step=begin.step, attempt=begin.attempt,
            claimed_at=begin.claim.at,
        )
        await models.generate(
            claim, begin.request, self, Stop(), await self._get_client(),
            limits=begin.agent.limits, store_body=self.blobs.body,
        )

    def chunk(self, session_id, event):
        self.put(session_id, event)

    async def outcome(self, session_id, event):
        self.put(session_id, event)

    def put(self, session_id, event, writer="models"):
        writer = "tools" if isinstance(event, ev.ToolResult) else writer
        headers = tuple(headers_for(event, writer))
        self.log.store(SESSION_EVENTS, 0, session_id.encode(), encode(event), headers)


@pytest.fixture
def session(start_session):
    ran.clear()
    rules = [
        Rule(contains="pay", tool_results=0, reply=Reply([tool_use("charge", {"n": 1})])),
        Rule(reply=Reply([text("fine")])),
    ]
    agent = Agent(name="helper", model="claude-opus-5-5", tools=[charge])
    return start_session(agent, *rules, kind=Forking)


def test_a_worker_answers_in_a_fork_and_runs_nothing_of_its_parent_again(session, tmp_path):
    settings = Settings.load({"FOLDLOG_HOME": str(tmp_path), "HOME": str(tmp_path)}, None, {})
    session.say("pay").run()
    session.say("thanks").run()
    assert ran == ["charge"]
    read = lambda ref: session.blobs.get(ref.sha256)  # noqa: E731
    sessions = Sessions(session.log, settings)
    count = len(session.requests)
    Branching(session.log, sessions, session.blobs, read, "u").fork("s", name="f")
    session.run()
    assert len(session.requests) == count and ran == ["charge"], "a fork has no pending work"
    content = ev.Body(inline=json.dumps([{"type": "text", "text": "and now?"}]).encode())
    message = ev.MessageReceived(
        message_id="f1", role="user", content=content, tokens=3, channel="test",
        when_busy="queue", by_user="u",
    )
    session.put("f", message, "producer")
    session.run()
    (of, request), before = session.requests[-1], session.requests[count - 1][1]
    assert of == "f" and len(session.requests) == count + 1 and ran == ["charge"]
    bare = [json.dumps(_plain(json.loads(body)["messages"])) for body in (before, request)]
    assert bare[1].startswith(bare[0][:-1])
    kinds = [type(e.event) for r in session.log.records(SESSION_EVENTS, 0)
             if (e := entry_of(r)).session_id == "f"]
    assert ev.ToolStarted not in kinds and ev.DeliveryStarted not in kinds
    with SessionFold(session.log, "f", read=read) as folded:
        folded.to_end()
        lines = folded.views.transcript.lines
    assert [line.kind for line in lines][-3:] == ["message", "answer", "ended"]
    assert not session.lines


def _plain(messages):
    """Removes the cache marks."""
    for message in messages:
        for block in message["content"]:
            block.pop("cache_control", None)
    return messages
