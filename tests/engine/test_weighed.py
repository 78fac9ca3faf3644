"""What a request weighs before any answer told it: its prefix, and by the model that reads it."""

import json
from dataclasses import replace

import pytest

from foldlog.consumers.context_view import changes
from foldlog.consumers.session_fold import SessionFold
from foldlog.local.messages_api import Reply, Rule, ScriptedServer, text
from foldlog.processors.agent import Agent, Compaction
from foldlog.processors.fold.projections.context import all_input, estimated_tokens
from foldlog.processors.fold.references import TurnRef
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import initial
from foldlog.processors.limits import Limits
from foldlog.processors.request.layers import Layer, Layers
from foldlog.processors.tools.tool import tool
from foldlog.processors.wake.decide import Desk, decide, no_layers, no_todos
from foldlog.processors.wake.facts import Obligation
from foldlog.schemas import events as ev
from foldlog.schemas.codec import entry_of
from foldlog.schemas.tokens import NEW, OLD, estimate
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.schemas.value import replace as replaced
from foldlog.tests.engine.driven import Driven
from foldlog.tests.laws.history import opened
from foldlog.tests.laws.manual_worker import SESSION

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
    weighed = prefix.tokens if family == NEW else prefix.tokens_old
    assert weighed == estimate(system, family) + estimate(b"[]", family)
    assert called.prompt_tokens == weighed + estimate(said, family)


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


def test_S3_6_another_prefix_is_weighed_against_the_one_before_on_one_scale(drive):
    """A word more in the prompt adds a word, whichever model counted what was measured before."""
    session = drive(model=NEWER, system=LONG, limits=replace(LIMITS, hard_tokens=40_000))
    session.say("Hello.").run()
    changed(session, model=OLDER)
    session.say("Again.").run()
    measured = session.views.context.anchor_tokens
    changed(session, system=LONG + "One word more.")
    session.say("And now?").run()
    assert measured < session.events(ev.LlmCalled)[-1].prompt_tokens < measured + 100


def test_S3_6_a_message_that_outweighs_all_that_was_said_blocks_nobody_who_comes_after(drive):
    """The prefix weighs more than it was estimated: that is no conversation to cut."""
    limits = Limits(soft_tokens=16_000, hard_tokens=20_000, resume_tokens=10**6)
    session = drive(system=LONG, limits=limits)
    session.say("Hello.").run()
    session.say(FACTS[:14_000]).run()
    session.say("And now?").run()
    assert reasons(session) == ["end_turn", "budget_exceeded", "end_turn"]
    with SessionFold(session.log, SESSION) as folded:
        (change,) = changes(folded, folded.end(), lambda ref: session.blobs.get(ref.sha256))
    received, (_, ended, _) = session.events(ev.MessageReceived)[1], session.events(ev.TurnEnded)
    assert (change.kind, change.step, change.before) == ("message", "2.1", ended.used)
    assert change.why == "no request has room for it under the hard cap of 20000 tokens"
    (piece,) = change.left_out
    assert (piece.what, piece.name) == ("message", received.message_id)
    assert piece.tokens == received.tokens and piece.words.startswith("fact 0 is new")
    row = session.views.messages.received.last(received.message_id)
    assert piece.offset == row.offset and change.after < change.before - piece.tokens + 10


def test_S3_6_memory_that_has_become_short_lets_a_session_go_on():
    """What no request has had costs no cache: it need not stay as it was."""
    limits = replace(LIMITS, soft_tokens=2_000, hard_tokens=4_000)
    history = opened(agent=Agent(name="helper", model=NEWER, memory=True, limits=limits))
    for words, lines, reason in (("Hello.", 900, "budget_exceeded"), ("Again.", 1, "")):
        history.layers = Layers((Layer("core", "memory", "- a thing to know\n" * lines),))
        history.say(words, words)
        history.work()
        assert history.end_reason(words) == reason
    assert history.views.context.request is not None


def test_law_11_a_log_that_does_not_say_what_its_prefix_weighs_is_folded_as_it_was(drive):
    """Such a log kept a message that the prefix and all else outweighed: requests have it."""
    session = drive(system=LONG, strategy="full")
    session.say("Hello.").run()
    session.say(FACTS[:30_000]).run()
    assert reasons(session) == ["end_turn", "budget_exceeded"]

    def fragments(tokens: bool) -> list[str]:
        views = initial(SESSION)
        for record in session.log.records(SESSION_EVENTS, 0):
            entry = entry_of(record)
            if isinstance(entry.event, ev.ContextSet) and not tokens:
                bare = replace(entry.event, tokens=0, tokens_old=0)
                entry = replaced(entry, event=bare)
            if entry.session_id == SESSION:
                views, _ = fold(views, entry)
        return [fragment.kind for fragment in views.context.fragments]

    assert fragments(tokens=True) == ["user", "assistant"]
    assert fragments(tokens=False) == ["user", "assistant", "user"]


def test_S3_6_a_message_that_leaves_no_room_beside_the_prefix_is_said_no_more():
    """It is lighter than what was said before it, and would block every turn all the same."""
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
    assert history.turn.step == 1, "it is asked"


@pytest.mark.parametrize("lines, said", [(10, True), (4_000, False)])
def test_S3_6_what_is_still_to_do_is_weighed_and_left_out_where_it_has_no_room(lines, said):
    agent = Agent(name="helper", model=NEWER, limits=LIMITS)
    history, todo = opened(agent=agent), "To do: " + "- a thing to do\n" * lines
    history.say("Hello.")
    desk = Desk(history.blobs.body, history.blobs.read, no_layers, lambda agent, views: todo)
    owed = Obligation("N3", "N", "sessions", "LLM_CALLED", TurnRef(1))
    *others, called = decide(owed, history.views, agent, desk)
    bare = decide(owed, history.views, agent, desk._replace(read_todos=no_todos))[-1]
    assert called.prompt_tokens == bare.prompt_tokens + (estimate(todo) if said else 0)
    assert any(isinstance(event, ev.ReminderAdded) for event in others) is said
