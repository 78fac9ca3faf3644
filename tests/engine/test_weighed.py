"""What a request weighs before any answer told it: its prefix, and by the model that reads it."""

import json
from dataclasses import replace

import pytest

from foldlog.local.messages_api import Reply, Rule, ScriptedServer, text
from foldlog.processors.agent import Agent, Compaction
from foldlog.processors.limits import Limits
from foldlog.processors.projections.context import all_input, estimated_tokens
from foldlog.processors.tool import tool
from foldlog.schemas import events as ev
from foldlog.schemas.tokens import NEW, OLD, estimate
from foldlog.tests.engine.driven import Driven

OLDER, NEWER, CHEAP = "claude-opus-4-5", "claude-opus-5-5", "claude-haiku-4-5"
LIMITS = Limits(soft_tokens=5_000, hard_tokens=20_000, resume_tokens=10**6)
LONG = "word " * 10_000  # some 14,000 tokens
FACTS = " ".join(f"fact {n} is new" for n in range(2_000))  # some 11,000


@pytest.fixture
def drive(tmp_path):
    open_things = []

    def start(**more) -> Driven:
        rule = Rule(reply=Reply([text("In short.")]), when=lambda r: r.model == CHEAP)
        server = ScriptedServer([rule, Rule(reply=Reply([text("Yes.")]))]).start()
        fields = {"model": NEWER, "limits": LIMITS, "compaction": Compaction(model=CHEAP), **more}
        session = Driven(Agent(name="helper", **fields), server, tmp_path)
        open_things.append((session, server))
        return session

    yield start
    for session, server in open_things:
        session.close()
        server.stop()


def reasons(session: Driven) -> list[str]:
    return [turn.reason for turn in session.events(ev.TurnEnded)]


def changed(session: Driven, **fields) -> None:
    """The agent is another one from now on."""
    session.agent = replace(session.agent, **fields)
    session.restart()


@pytest.mark.parametrize("strategy", ["compacted", "full", "sliding_window_4"])
def test_S3_6_the_first_request_is_weighed_with_its_prefix(drive, strategy):
    """Each half fits, both together do not: nothing is sent, and the session can go on."""
    session = drive(system=LONG, strategy=strategy)
    session.say(FACTS).run()
    (ended,) = session.events(ev.TurnEnded)
    assert (ended.reason, ended.limit) == ("budget_exceeded", LIMITS.hard_tokens)
    assert ended.used > LIMITS.hard_tokens and not session.server.calls()
    session.say("And now?").run()
    assert reasons(session)[1:] == ["end_turn"]
    read = [all_input(done.usage) for done in session.events(ev.GenComplete)]
    assert max(read) < LIMITS.hard_tokens


def test_S3_6_a_prefix_that_has_grown_is_weighed_before_it_is_sent(drive):
    """A summary makes room for it: without its weight none would be owed."""
    session = drive(system="Be brief.")
    for number in range(5):
        session.say(f"Question {number}. " + FACTS[:9_000]).run()
    changed(session, system=LONG)
    asked = session.server.calls()
    session.say("And now?").run()
    assert set(reasons(session)) == {"end_turn"}
    assert session.events(ev.LlmCalled)[-1].checkpoint is not None
    assert asked and session.events(ev.LlmCalled)[-1].prompt_tokens <= LIMITS.hard_tokens


def test_S3_6_a_prefix_that_has_shrunk_lets_a_session_go_on(drive):
    """The turn that would be over the cap with the prefix of before has the prefix of now."""
    session = drive(system=LONG, strategy="full")
    session.say("Hello.").run()
    changed(session, system="Be brief.")
    session.say(FACTS).run()
    assert reasons(session) == ["end_turn", "end_turn"]
    assert len(session.events(ev.ContextSet)) == 2


def test_S3_6_a_prefix_that_leaves_no_room_at_all_ends_every_turn_and_is_told_once(drive):
    tools = [tool(name=f"t{n}", effect="pure")(described(n)) for n in range(20)]
    session = drive(system="Be brief.", tools=tools, limits=replace(LIMITS, hard_tokens=9_000))
    session.say("Hello.").run()
    session.say("Still there?").run()
    assert reasons(session) == ["budget_exceeded"] * 2 and not session.server.calls()
    assert len(session.events(ev.ContextSet)) == 1


def described(number: int):
    def look(ctx) -> str:
        return ""

    look.__doc__ = f"Looks at {number}. " + "It does this and that. " * 80
    return look


@pytest.mark.parametrize("model, family", [(OLDER, OLD), (NEWER, NEW)])
def test_S3_6_a_request_is_weighed_as_its_model_counts(drive, model, family):
    """A third apart for the same words, in the prefix and in what was said."""
    session = drive(model=model, system=LONG[:10_000])
    said = json.dumps([{"type": "text", "text": FACTS[:20_000]}]).encode()
    assert estimate(said, OLD) < estimate(said, NEW)
    session.write(
        "producer",
        ev.MessageReceived(
            message_id="m1", role="user", content=ev.Body(inline=said), tokens=estimate(said),
            channel="test", when_busy="queue", by_user="u",
        ),
    )
    session.run()
    (prefix,), (called,) = session.events(ev.ContextSet), session.events(ev.LlmCalled)
    system = session.blobs.resolve(prefix.system)
    assert prefix.tokens == estimate(system, family) + estimate(b"[]", family)
    assert called.prompt_tokens == prefix.tokens + estimate(said, family)


def test_S3_6_what_one_family_counted_weighs_more_for_a_model_of_the_other(drive):
    """The usage of an older model says a third too little of the next request to a newer one."""
    session = drive(model=OLDER, system="Be brief.")
    session.say(FACTS[:9_000]).run()
    weighed = session.views.context.anchor_tokens
    changed(session, model=NEWER)
    session.say("Go on.")
    for _ in range(5):  # until the request is decided, and before it is answered
        session.worker.consume(session.reader.poll(0, 1000))
    called = session.events(ev.LlmCalled)[-1]
    assert estimated_tokens(session.views.context) == called.prompt_tokens
    session.run()
    assert called.model == NEWER and 1.3 < called.prompt_tokens / weighed < 1.32
    weighed = session.views.context.anchor_tokens
    changed(session, model=OLDER)
    session.say("Go on.").run()
    assert session.events(ev.LlmCalled)[-1].prompt_tokens >= weighed, "never less: see `raised`"
