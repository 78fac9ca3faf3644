"""A provider that takes no signature from before any more, as after a change of the account."""

import json

import pytest

from foldlog.consumers.context_view import changes
from foldlog.consumers.session_fold import SessionFold
from foldlog.local.messages_api import Reply, Rule, ScriptedServer, text, thinking, tool_use
from foldlog.processors.agent import Agent, Compaction
from foldlog.processors.tools.tool import tool
from foldlog.schemas import events as ev
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.engine.driven import Driven
from foldlog.tests.laws.manual_worker import SESSION

MODEL, CHEAP = "claude-opus-4-6", "claude-haiku-4-5"
WORDS = (  # as users of the API report them
    "messages.1.content.0: Invalid signature in thinking block. The block is bound to a different "
    "conversation.",
    "messages.1.content.0: Invalid `signature` in `thinking` block",
    "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant "
    "message cannot be modified.",
)
FIXED = {"thinking": {"type": "enabled", "budget_tokens": 2_000}}


@tool(effect="pure")
def look(ctx) -> str:
    """Looks."""
    return "sun and no cloud, " * 300


def thoughts(body: dict) -> list[str]:
    blocks = [b for m in body["messages"] if m["role"] == "assistant" for b in m["content"]]
    return [block["thinking"] for block in blocks if block["type"] == "thinking"]


class Provider:
    """Answers, and takes none of the thoughts that came before `moved`."""

    def __init__(self, words: str) -> None:
        self.words, self.given, self.gone = words, 0, set()
        self.moves_after = 0  # that many thoughts

    def moved(self) -> None:
        """Its signatures of now are worth nothing from here on."""
        self.gone = {f"thought {number}" for number in range(1, self.given + 1)}

    def reply(self, request) -> Reply:
        if self.gone & set(thoughts(request.body)):
            return Reply([], fault={"name": "bad_request", "message": self.words})
        self.given += 1
        thought = thinking(f"thought {self.given}")
        if self.given == self.moves_after:
            self.moved()
        if "look" in request.last_user_text and not request.turn_results:
            return Reply([thought, tool_use("look", {})])
        return Reply([thought, text("Here.")])


@pytest.fixture
def start(tmp_path):
    made = []

    def drive(words: str = WORDS[0], **more) -> tuple[Driven, Provider]:
        provider = Provider(words)
        in_short = Rule(reply=Reply([text("Short.")]), when=lambda r: r.model == CHEAP)
        server = ScriptedServer([in_short, Rule(reply=provider.reply)]).start()
        fields = {"model": MODEL, "params": {"thinking": {"type": "adaptive"}}, **more}
        agent = Agent(name="helper", tools=(look,), compaction=Compaction(model=CHEAP), **fields)
        made.append(Driven(agent, server, tmp_path))
        return made[-1], provider

    yield drive
    for driven in made:
        driven.close()
        driven.server.stop()


def ended(driven: Driven) -> list[str]:
    return [turn.reason for turn in driven.events(ev.TurnEnded)]


def newest(driven: Driven) -> dict:
    return json.loads(driven.server.body(driven.server.calls()))


@pytest.mark.parametrize("words", WORDS)
def test_S1_A_a_turn_goes_on_without_what_was_thought(start, words):
    driven, provider = start(words)
    driven.say("hi").run().say("look").run()
    assert thoughts(newest(driven)) == ["thought 1", "thought 2"]
    provider.moved()
    driven.say("and now?").run()
    driven.check()
    assert ended(driven) == ["end_turn"] * 3
    (failed,) = driven.events(ev.GenFailed)
    assert (failed.error, failed.permanent) == ("thinking_refused", True)
    assert not thoughts(newest(driven))
    assert "Here." in json.dumps(newest(driven)), "what was said is said again"
    driven.say("once more").run()
    driven.check()
    assert thoughts(newest(driven)) == ["thought 4"], "what it thinks since then is"


def test_S1_A_amid_a_tool_loop_too(start):
    driven, provider = start()
    provider.moves_after = 1
    driven.say("look").run()
    driven.check()
    assert ended(driven) == ["end_turn"]
    assert len(driven.events(ev.GenFailed)) == 1 and not thoughts(newest(driven))


def test_a_provider_that_takes_nothing_ends_the_turn_and_not_the_session(start):
    driven, _ = start()
    driven.say("hi").run()
    no = Reply([], fault={"name": "bad_request", "message": WORDS[0]})
    driven.server.add(Rule(reply=no, times=2))
    driven.say("and now?").run()
    assert ended(driven) == ["end_turn", "failed"]
    assert len(driven.events(ev.GenFailed)) == 2, "one more try, no more"
    driven.say("and now?").run()
    assert ended(driven)[-1] == "end_turn"


def test_with_a_fixed_budget_a_summary_stands_for_a_call_and_its_thinking(start):
    """The API takes no result of a call without the thinking before it."""
    driven, provider = start(model="claude-sonnet-4-5", params=FIXED)
    provider.moves_after = 2
    driven.say("hi").run().say("look").run()
    driven.check()
    assert ended(driven) == ["end_turn", "failed"], "no summary can leave out what is said last"
    driven.say("and now?").run()
    driven.check()
    assert ended(driven)[-1] == "end_turn"
    assert driven.events(ev.LlmCalled)[-1].checkpoint is not None
    assert "and no cloud" not in json.dumps(newest(driven))
    with SessionFold(driven.log, SESSION) as folded:
        end = driven.log.end_offsets(SESSION_EVENTS)[0]
        (change,) = changes(folded, end, lambda ref: driven.blobs.get(ref.sha256))
    assert change.kind == "summary"
    assert change.why == "the provider no longer accepted the thinking blocks"
