"""A provider rejects all earlier thinking signatures, as it does after a change of the account."""

import json

import pytest

from foldlog.client.context_view import changes
from foldlog.client.session_fold import SessionFold
from foldlog.local.messages_api import Reply, Rule, text, thinking, tool_use
from foldlog.processors.agent import Agent, Compaction
from foldlog.processors.tools.tool import tool
from foldlog.schemas import events as ev
from foldlog.tests.engine.driven import Driven
from foldlog.tests.kit.manual_worker import SESSION

MODEL, CHEAP = "claude-opus-4-6", "claude-haiku-4-5"
ERRORS = (  # as users of the API report them
    "messages.1.content.0: Invalid signature in thinking block. The block is bound to a different "
    "conversation.",
    "messages.1.content.0: Invalid `signature` in `thinking` block",
    "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant "
    "message cannot be modified.",
)
FIXED = {"thinking": {"type": "enabled", "budget_tokens": 2_000}}


@tool(effect="pure")
def look(ctx) -> str:
    """Returns the weather."""
    return "sun and no cloud, " * 300


def thoughts(body: dict) -> list[str]:
    blocks = [b for m in body["messages"] if m["role"] == "assistant" for b in m["content"]]
    return [block["thinking"] for block in blocks if block["type"] == "thinking"]


class Provider:
    """Replies with thinking, and rejects all thinking that it sent before `invalidate`."""

    def __init__(self, error: str) -> None:
        self.error, self.thoughts, self.invalid = error, 0, set()
        self.invalidates_after = 0  # after this many thoughts

    def invalidate(self) -> None:
        """Makes the provider reject every signature that it has sent so far."""
        self.invalid = {f"thought {number}" for number in range(1, self.thoughts + 1)}

    def reply(self, request) -> Reply:
        if self.invalid & set(thoughts(request.body)):
            return Reply([], fault={"name": "bad_request", "message": self.error})
        self.thoughts += 1
        thought = thinking(f"thought {self.thoughts}")
        if self.thoughts == self.invalidates_after:
            self.invalidate()
        if "look" in request.last_user_text and not request.turn_results:
            return Reply([thought, tool_use("look", {})])
        return Reply([thought, text("Here.")])


@pytest.fixture
def start(start_session):
    def drive(error: str = ERRORS[0], **more) -> tuple[Driven, Provider]:
        provider = Provider(error)
        cheap = Rule(reply=Reply([text("Short.")]), when=lambda r: r.model == CHEAP)
        fields = {"model": MODEL, "params": {"thinking": {"type": "adaptive"}}, **more}
        agent = Agent(name="helper", tools=(look,), compaction=Compaction(model=CHEAP), **fields)
        return start_session(agent, cheap, Rule(reply=provider.reply)), provider

    return drive


def ended(driven: Driven) -> list[str]:
    return [turn.reason for turn in driven.events(ev.TurnEnded)]


def newest(driven: Driven) -> dict:
    return json.loads(driven.server.body(driven.server.calls()))


@pytest.mark.parametrize("error", ERRORS)
def test_S1_A_a_turn_continues_without_earlier_thinking(start, error):
    driven, provider = start(error)
    driven.say("hi").run().say("look").run()
    assert thoughts(newest(driven)) == ["thought 1", "thought 2"]
    provider.invalidate()
    driven.say("and now?").run()
    driven.check()
    assert ended(driven) == ["end_turn"] * 3
    (failed,) = driven.events(ev.GenFailed)
    assert (failed.error, failed.permanent) == ("thinking_refused", True)
    assert not thoughts(newest(driven))
    assert "Here." in json.dumps(newest(driven)), "the text is still sent"
    driven.say("once more").run()
    driven.check()
    assert thoughts(newest(driven)) == ["thought 4"], "newer thinking is sent"


def test_S1_A_a_turn_continues_without_earlier_thinking_within_a_tool_loop(start):
    driven, provider = start()
    provider.invalidates_after = 1
    driven.say("look").run()
    driven.check()
    assert ended(driven) == ["end_turn"]
    assert len(driven.events(ev.GenFailed)) == 1 and not thoughts(newest(driven))


def test_a_provider_that_rejects_the_retry_too_ends_the_turn_but_not_the_session(start):
    driven, _ = start()
    driven.say("hi").run()
    no = Reply([], fault={"name": "bad_request", "message": ERRORS[0]})
    driven.server.add(Rule(reply=no, times=2))
    driven.say("and now?").run()
    assert ended(driven) == ["end_turn", "failed"]
    assert len(driven.events(ev.GenFailed)) == 2, "one retry only"
    driven.say("and now?").run()
    assert ended(driven)[-1] == "end_turn"


def test_with_a_fixed_budget_a_summary_replaces_a_call_and_its_thinking(start):
    """The API rejects the result of a call if the request lacks the thinking before the call."""
    driven, provider = start(model="claude-sonnet-4-5", params=FIXED)
    provider.invalidates_after = 2
    driven.say("hi").run().say("look").run()
    driven.check()
    assert ended(driven) == ["end_turn", "failed"], "a summary cannot cover the newest result"
    driven.say("and now?").run()
    driven.check()
    assert ended(driven)[-1] == "end_turn"
    assert driven.events(ev.LlmCalled)[-1].checkpoint is not None
    assert "and no cloud" not in json.dumps(newest(driven))
    with SessionFold(driven.log, SESSION) as folded:
        (change,) = changes(folded, folded.end(), driven.read_blob)
    assert change.kind == "summary"
    assert change.why == "the provider no longer accepted the thinking blocks"
