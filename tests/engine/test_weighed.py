"""The estimated size of a request includes the prefix, and counts tokens as the request's model
does."""

import json
from dataclasses import replace

import pytest

from foldlog.client.context_view import changes
from foldlog.client.session_fold import SessionFold
from foldlog.local.messages_api import Reply, Rule, text
from foldlog.processors.agent import Agent, Compaction
from foldlog.processors.fold.projections.context import all_input, estimated_tokens
from foldlog.processors.fold.references import TurnRef
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import initial
from foldlog.processors.limits import Limits
from foldlog.processors.request.layers import Layer, Layers
from foldlog.processors.tools.tool import tool
from foldlog.processors.wake.decide import Sources, decide, no_layers, no_todos
from foldlog.processors.wake.facts import Obligation
from foldlog.schemas import events as ev
from foldlog.schemas.codec import entry_of
from foldlog.schemas.tokens import NEW, OLD, estimate
from foldlog.schemas.value import replace as replaced
from foldlog.tests.engine.driven import Driven
from foldlog.tests.kit.history import opened
from foldlog.tests.kit.manual_worker import SESSION

OLDER, NEWER, CHEAP = "claude-opus-4-5", "claude-opus-5-5", "claude-haiku-4-5"
LIMITS = Limits(soft_tokens=5_000, hard_tokens=20_000, resume_tokens=10**6)
LONG = "word " * 10_000  # about 14,000 tokens
FACTS = " ".join(f"fact {n} is new" for n in range(2_000))  # about 11,000 tokens


@pytest.fixture
def drive(start_session):
    def start(**more) -> Driven:
        cheap = Rule(reply=Reply([text("In short.")]), when=lambda r: r.model == CHEAP)
        fields = {"model": NEWER, "limits": LIMITS, "compaction": Compaction(model=CHEAP), **more}
        return start_session(
            Agent(name="helper", **fields), cheap, Rule(reply=Reply([text("Yes.")]))
        )

    return start


def reasons(session: Driven) -> list[str]:
    return [turn.reason for turn in session.events(ev.TurnEnded)]


def change_agent(session: Driven, **fields) -> None:
    """Restarts the worker with changed fields of its agent."""
    session.restart(replace(session.agent, **fields))


@pytest.mark.parametrize("strategy", ["compacted", "full", "sliding_window_4"])
def test_S3_6_the_size_of_the_first_request_includes_its_prefix(drive, strategy):
    """The prefix and the message fit alone but not together: no request is sent, and the session
    continues."""
    session = drive(system=LONG, strategy=strategy)
    session.say(FACTS).run()
    (ended,) = session.events(ev.TurnEnded)
    assert (ended.reason, ended.limit) == ("budget_exceeded", LIMITS.hard_tokens)
    assert ended.used > LIMITS.hard_tokens and not session.server.calls()
    session.say("And now?").run()
    assert reasons(session)[1:] == ["end_turn"]
    read = [all_input(each.usage) for each in session.events(ev.GenComplete)]
    assert max(read) < LIMITS.hard_tokens


def test_S3_6_a_larger_prefix_is_counted_before_it_is_sent(drive):
    """A summary makes room for the larger prefix. If the prefix were not counted, no summary would
    be due."""
    session = drive(system="Be brief.")
    for number in range(5):
        session.say(f"Question {number}. " + FACTS[:9_000]).run()
    change_agent(session, system=LONG)
    calls = session.server.calls()
    session.say("And now?").run()
    assert set(reasons(session)) == {"end_turn"}
    assert session.events(ev.LlmCalled)[-1].checkpoint is not None
    assert calls and session.events(ev.LlmCalled)[-1].prompt_tokens <= LIMITS.hard_tokens


def test_S3_6_a_session_continues_when_its_prefix_has_shrunk(drive):
    """The message fits next to the new prefix. With the earlier prefix, the request would exceed
    the cap."""
    session = drive(system=LONG, strategy="full")
    session.say("Hello.").run()
    change_agent(session, system="Be brief.")
    session.say(FACTS).run()
    assert reasons(session) == ["end_turn", "end_turn"]
    assert len(session.events(ev.ContextSet)) == 2


def test_S3_6_a_prefix_that_leaves_no_room_ends_every_turn_and_is_written_once(drive):
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
def test_S3_6_tokens_are_counted_as_the_model_counts_them(drive, model, family):
    """For the same text, the newer family of models counts about a third more tokens than the older
    one, in the prefix and in messages."""
    session = drive(model=model, system=LONG[:10_000])
    content = json.dumps([{"type": "text", "text": FACTS[:20_000]}]).encode()
    assert estimate(content, OLD) < estimate(content, NEW)
    session.put(
        "producer",
        ev.MessageReceived(
            message_id="m1", role="user", content=ev.Body(inline=content),
            tokens=estimate(content),
            channel="test", when_busy="queue", by_user="u",
        ),
    )
    session.run()
    (prefix,), (called,) = session.events(ev.ContextSet), session.events(ev.LlmCalled)
    system = session.blobs.resolve(prefix.system)
    counted = prefix.tokens if family == NEW else prefix.tokens_old
    assert counted == estimate(system, family) + estimate(b"[]", family)
    assert called.prompt_tokens == counted + estimate(content, family)


def test_S3_6_a_count_of_an_older_model_is_raised_for_a_newer_one(drive):
    """For the same request, a newer model counts about a third more tokens than an older model
    reports."""
    session = drive(model=OLDER, system="Be brief.")
    session.say(FACTS[:9_000]).run()
    measured = session.views.context.anchor_tokens
    change_agent(session, model=NEWER)
    session.say("Go on.")
    for _ in range(5):  # until the request is decided but not answered
        session.read()
    called = session.events(ev.LlmCalled)[-1]
    assert estimated_tokens(session.views.context) == called.prompt_tokens
    session.run()
    assert called.model == NEWER and 1.3 < called.prompt_tokens / measured < 1.32
    measured = session.views.context.anchor_tokens
    change_agent(session, model=OLDER)
    session.say("Go on.").run()
    assert session.events(ev.LlmCalled)[-1].prompt_tokens >= measured, "never lower: see `raised`"


def test_S3_6_two_prefixes_are_compared_on_the_same_scale(drive):
    """A few more words in the prompt add only a few tokens, even if another model measured the rest
    of the request."""
    session = drive(model=NEWER, system=LONG, limits=replace(LIMITS, hard_tokens=40_000))
    session.say("Hello.").run()
    change_agent(session, model=OLDER)
    session.say("Again.").run()
    measured = session.views.context.anchor_tokens
    change_agent(session, system=LONG + "One word more.")
    session.say("And now?").run()
    assert measured < session.events(ev.LlmCalled)[-1].prompt_tokens < measured + 100


def test_S3_6_a_message_larger_than_the_whole_conversation_does_not_block_later_ones(drive):
    """The prefix was larger than estimated, and the conversation is too short to summarize."""
    limits = Limits(soft_tokens=16_000, hard_tokens=20_000, resume_tokens=10**6)
    session = drive(system=LONG, limits=limits)
    session.say("Hello.").run()
    session.say(FACTS[:14_000]).run()
    session.say("And now?").run()
    assert reasons(session) == ["end_turn", "budget_exceeded", "end_turn"]
    with SessionFold(session.log, SESSION) as folded:
        (change,) = changes(folded, folded.end(), session.read_blob)
    received, (_, ended, _) = session.events(ev.MessageReceived)[1], session.events(ev.TurnEnded)
    assert (change.kind, change.step, change.before) == ("message", "2.1", ended.used)
    assert change.why == "no request has room for it under the hard cap of 20000 tokens"
    (piece,) = change.left_out
    assert (piece.what, piece.name) == ("message", received.message_id)
    assert piece.tokens == received.tokens and piece.words.startswith("fact 0 is new")
    row = session.views.messages.received.last(received.message_id)
    assert piece.offset == row.offset and change.after < change.before - piece.tokens + 10


def test_S3_6_a_session_continues_when_its_memory_has_become_short():
    """No request has contained the long memory, so replacing the memory invalidates no cache."""
    limits = replace(LIMITS, soft_tokens=2_000, hard_tokens=4_000)
    history = opened(agent=Agent(name="helper", model=NEWER, memory=True, limits=limits))
    for message, lines, reason in (("Hello.", 900, "budget_exceeded"), ("Again.", 1, "")):
        history.layers = Layers((Layer("core", "memory", "- a thing to know\n" * lines),))
        history.say(message, message)
        history.work()
        assert history.end_reason(message) == reason
    assert history.views.context.request is not None


def test_law_11_a_log_without_the_size_of_its_prefix_folds_as_before(drive):
    """In such a log, a message stays in the context if it is smaller than the prefix and the
    earlier messages together."""
    session = drive(system=LONG, strategy="full")
    session.say("Hello.").run()
    session.say(FACTS[:30_000]).run()
    assert reasons(session) == ["end_turn", "budget_exceeded"]

    def fragments(tokens: bool) -> list[str]:
        views = initial(SESSION)
        for record in session.records():
            entry = entry_of(record)
            if isinstance(entry.event, ev.ContextSet) and not tokens:
                bare = replace(entry.event, tokens=0, tokens_old=0)
                entry = replaced(entry, event=bare)
            if entry.session_id == SESSION:
                views, _ = fold(views, entry)
        return [fragment.kind for fragment in views.context.fragments]

    assert fragments(tokens=True) == ["user", "assistant"]
    assert fragments(tokens=False) == ["user", "assistant", "user"]


def test_S3_6_a_message_that_leaves_no_room_next_to_the_prefix_is_not_sent_again():
    """The message is smaller than the earlier messages, but every turn with it would exceed the
    cap."""
    limits = replace(LIMITS, soft_tokens=2_000, hard_tokens=4_000)
    fields = {"system": "word " * 1_000, "strategy": "full", "limits": limits}
    history = opened(agent=Agent(name="helper", model=NEWER, **fields))
    history.say("long " * 1_380, "m1")
    history.answer("yes", read=3_700)
    history.say("long " * 1_320, "m2")
    history.work()
    assert history.end_reason("m2") == "budget_exceeded"
    history.say("And now?", "m3")
    history.work()
    assert history.turn.step == 1, "the model is called"


@pytest.mark.parametrize("lines, sent", [(10, True), (4_000, False)])
def test_S3_6_open_todos_are_counted_and_left_out_if_they_do_not_fit(lines, sent):
    agent = Agent(name="helper", model=NEWER, limits=LIMITS)
    history, todo = opened(agent=agent), "To do: " + "- a thing to do\n" * lines
    history.say("Hello.")
    sources = Sources(history.blobs.body, history.blobs.read, no_layers, lambda agent, views: todo)
    owed = Obligation("N3", "N", "sessions", "LLM_CALLED", TurnRef(1))
    *others, called = decide(owed, history.views, agent, sources)
    bare = decide(owed, history.views, agent, sources._replace(read_todos=no_todos))[-1]
    assert called.prompt_tokens == bare.prompt_tokens + (estimate(todo) if sent else 0)
    assert any(isinstance(event, ev.ReminderAdded) for event in others) is sent
