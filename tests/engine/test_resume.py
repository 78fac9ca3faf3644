"""Resume: a lost answer is continued, by prefill or by a user message, and viewers see one
answer."""

import json

import pytest

from foldlog.client.session_fold import SessionFold
from foldlog.client.show import request_of
from foldlog.client.transcript_stream import INITIAL, Dropped, Settled, Token, see
from foldlog.local.messages_api import (
    Reply,
    Rule,
    server_tool_use,
    text,
    thinking,
    tool_use,
)
from foldlog.processors.agent import Agent
from foldlog.processors.effects.ports import BeginGeneration
from foldlog.processors.request.build import BUILDER
from foldlog.processors.request.continuation import CONTINUE, joined
from foldlog.processors.tools.tool import tool
from foldlog.reports.exports.bundle import replay
from foldlog.schemas import events as ev
from foldlog.schemas.codec import entry_of
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.engine.driven import Driven, DrivenEffects
from foldlog.tests.web.gateway.test_viewers import Audience, Screen

OLD, NEW = "claude-haiku-4-5", "claude-opus-5-5"


class Resuming(Driven):
    """Drives a worker that dies during an answer. `lost`: the chunks of each answer to lose, by the
    number of the model call; `chunks_read`: how many of these chunks the next worker finds."""

    def __init__(self, *args):
        self.lost: dict[int, list[tuple[str, str]]] = {}
        self.chunks_read: int | None = None
        super().__init__(*args)

    def new_effects(self):
        return ResumingEffects(self)

    def lose(self, *attempts):
        """Loses one answer after each of these lists of chunks, then runs to the end."""
        self.lost = dict(enumerate(attempts, 1))
        for _ in attempts:
            self.run()
            self.restart()
            self.run()
            self.ms += 80_000
        return self.run()


class ResumingEffects(DrivenEffects):
    def begin(self, session_id, begin):
        super().begin(session_id, begin)
        lost = self._engine.lost.get(len(self._engine.generations))
        if lost is not None and isinstance(begin, BeginGeneration) and not begin.recovers:
            self._engine.queue.pop()
            place = {"turn": begin.turn, "step": begin.step, "attempt": begin.attempt}
            first = begin.kept.prior_seq + 1 if begin.kept else 0
            for seq, (kind, delta) in enumerate(lost, first):
                chunk = ev.GenChunk(**place, seq=seq, block=0, kind=kind, delta=delta)
                self.chunk(session_id, chunk)

    def chunks_since(self, *place):
        return super().chunks_since(*place)[: self._engine.chunks_read]


@pytest.fixture
def driven(start_session):
    def start(model=NEW, recovery="resume", reply=None, **more):
        rule = Rule(reply=reply or Reply([text("a time there was")]))
        agent = Agent(name="helper", model=model, recovery=recovery, **more)
        return start_session(agent, rule, kind=Resuming)

    return start


def text_chunks(*texts):
    return [("text", text) for text in texts]


def shown_of(session):
    viewer, shown = INITIAL, []
    with SessionFold(session.log, "s", chunks=True) as folded:
        for seen in folded.upto(folded.end()):
            viewer, more = see(viewer, seen)
            shown += more
    return shown


@pytest.mark.parametrize("model", [OLD, NEW])
def test_S2_9_a_lost_answer_is_continued_and_each_token_is_shown_once(driven, model):
    session = driven(model).say("tell")
    session.lose(text_chunks("once ", "upon "))
    (resumed,) = session.events(ev.GenResumed)
    assert (resumed.strategy, resumed.prior_seq) == ("resume", 1)
    (complete,) = session.events(ev.GenComplete)
    (block,) = json.loads(complete.content.inline)
    assert block["text"] == "once upon a time there was"
    shown = shown_of(session)
    assert not [thing for thing in shown if isinstance(thing, Dropped)]
    tokens = [thing for thing in shown if isinstance(thing, Token)]
    assert "".join(token.text for token in tokens) == block["text"]
    (settled,) = [thing for thing in shown if isinstance(thing, Settled)]
    assert {token.of for token in tokens} == {settled.of}
    lines = [line for line in session.views.transcript.lines if line.kind == "attempt"]
    assert lines[0].name == "continued" and "by resume" in lines[0].text


@pytest.mark.parametrize(("model", "roles"), [
    (OLD, ["user", "assistant"]), (NEW, ["user", "assistant", "user"])
])
def test_a_resumed_request_is_that_of_the_step_followed_by_the_kept_text(driven, model, roles):
    session = driven(model).say("tell")
    session.lose(text_chunks("once ", "upon "))
    first, again = (begin.request for begin in session.generations)
    assert again.startswith(first[:-2])
    messages = json.loads(again)["messages"]
    assert [message["role"] for message in messages] == roles
    if model == NEW:
        assert messages[-1]["content"][0]["text"] == CONTINUE
    from foldlog.processors.request.build import request_sha256
    assert session.events(ev.GenResumed)[0].request_sha256 == request_sha256(again)


def test_an_answer_with_more_than_text_is_started_over(driven):
    session = driven().say("tell")
    session.lose([("thinking", "hm"), ("text", "once")])
    assert session.events(ev.GenResumed)[0].strategy == "replace"
    (complete,) = session.events(ev.GenComplete)
    assert json.loads(complete.content.inline)[0]["text"] == "a time there was"


def test_with_recovery_replace_an_answer_is_started_over(driven):
    session = driven(recovery="replace").say("tell")
    session.lose(text_chunks("once ", "upon "))
    assert session.events(ev.GenResumed)[0].strategy == "replace"
    assert any(isinstance(thing, Dropped) for thing in shown_of(session))


def test_an_answer_lost_twice_continues_after_both_parts(driven):
    session = driven().say("tell")
    session.lose(text_chunks("once "), text_chunks("upon "))
    assert [event.prior_seq for event in session.events(ev.GenResumed)] == [0, 1]
    (complete,) = session.events(ev.GenComplete)
    assert json.loads(complete.content.inline)[0]["text"] == "once upon a time there was"


def audience_of(session):
    """Returns an audience that shows the session's log to the viewers of a gateway."""
    with SessionFold(session.log, "s", chunks=True) as folded:
        history = list(folded.upto(folded.end()))
    return Audience("s", history, session.read_blob)


def view_with_gap(session, at):
    """Plays the log to a viewer that leaves after `at` events, and reconnects with its cursor once
    the resumed answer streams. Returns the viewer's screen and everything it was sent."""
    audience, screen, things = audience_of(session), Screen(), []

    def draw(frames):
        screen.draw(frames)
        things.extend(frame.shown for frame in frames)
        return frames[-1].cursor if frames else cursor

    subscription, cursor = audience.subscribe(), None
    for number, _ in enumerate(audience.events()):
        cursor = cursor if subscription is None else draw(subscription.drain())
        if number == at:
            audience.session.subscriptions.discard(subscription)
            subscription = None
        viewer = audience.session.viewer
        if subscription is None and number > at and viewer.resumed_by and len(viewer.tokens) > 2:
            subscription, at = audience.subscribe(cursor), len(audience.history)
    draw(subscription.drain())
    return screen, things


def test_S2_9_a_viewer_that_left_during_the_lost_attempt_continues_in_the_resumed_one(driven):
    session = driven().say("tell")
    session.lose(text_chunks("once ", "upon "))
    chunks = [n for n, seen in enumerate(audience_of(session).history)
              if isinstance(seen.entry.event, ev.GenChunk)]
    for at in chunks[:2]:
        screen, things = view_with_gap(session, at)
        assert not [thing for thing in things if isinstance(thing, Dropped)]
        tokens = [thing for thing in things if isinstance(thing, Token)]
        assert "".join(token.text for token in tokens) == "once upon a time there was"
        assert len({token.of for token in tokens}) == 1
        assert not screen.open


def test_chunks_written_after_the_lost_answer_was_read_are_dropped(driven):
    """The old owner was paused, and wrote a chunk just before the new owner's claim."""
    session = driven().say("tell")
    session.chunks_read = 2
    session.lose(text_chunks("once ", "upon ", "another "))
    (resumed,) = session.events(ev.GenResumed)
    assert (resumed.strategy, resumed.prior_seq) == ("resume", 1)
    (complete,) = session.events(ev.GenComplete)
    text = json.loads(complete.content.inline)[0]["text"]
    assert text == "once upon a time there was"
    chunks = [n for n, seen in enumerate(audience_of(session).history)
              if isinstance(seen.entry.event, ev.GenChunk)]
    for at in chunks[:3]:
        screen, things = view_with_gap(session, at)
        dropped = [thing.why for thing in things if isinstance(thing, Dropped)]
        assert dropped == ["the end of its output was lost"] * (at == chunks[2])
        assert [texts[0] for _, texts in screen.items if isinstance(texts, tuple)] == [text]


def test_a_cancel_before_a_resumed_answer_begins_keeps_the_text_so_far(driven):
    session = driven().say("tell")
    session.lost = {1: text_chunks("once ", "upon ")}
    session.run()
    session.restart()
    while not session.events(ev.GenResumed):
        session.read()
    # The claim is written, and a cancel arrives before it is read back.
    session.put("producer", ev.CancelRequested(cancel_id="c", mode="now", reason="", by_user="u"))
    session.run()
    (stopped,) = session.events(ev.GenStopped)
    assert stopped.attempt == 2 and len(session.generations) == 1
    assert json.loads(stopped.content.inline)[0]["text"] == "once upon "


@pytest.mark.parametrize(("before", "text", "shown"), [
    ("once ", "upon", "upon"), ("once ", " upon", "upon"), ("once", " upon", " upon"),
    ("once\n", "\n\nupon", "\nupon"), ("once ", "", ""), ("once\n", " upon", "upon"),
])
def test_joining_does_not_repeat_whitespace(before, text, shown):
    assert joined(before, text) == shown


@pytest.mark.parametrize("model", [OLD, NEW])
def test_a_resumed_request_is_rebuilt_and_compared_with_its_claim(driven, model):
    session = driven(model).say("tell")
    session.lose(text_chunks("once "), text_chunks("upon "))
    read = session.read_blob

    def agrees():
        with SessionFold(session.log, "s", chunks=True) as folded:
            found = request_of(folded, 1, 1, read)
        assert [builder for *_, builder in found.claims] == [BUILDER] + [f"{BUILDER}+resume"] * 2
        replayed = replay(session.log, "s", read)
        is_same = replayed.requests["1.1"] == replayed.claimed["1.1"]
        assert is_same == found.agrees
        return found.agrees

    assert agrees()
    records = session.log.topic(SESSION_EVENTS).partitions[0].records
    (at,) = [n for n, record in enumerate(records) if b"upon " in (record.value or b"")
             and isinstance(entry_of(record, chunks=True).event, ev.GenChunk)]
    changed = records[at].value.replace(b"upon ", b"UPON ")
    records[at] = records[at]._replace(value=changed)
    assert not agrees()


def test_an_unknown_recovery_is_refused():
    with pytest.raises(ValueError, match="recovery is replace or resume"):
        Agent(name="a", model=NEW, recovery="unknown")


@tool(effect="pure")
def look(ctx) -> str:
    """Returns what it sees."""
    return "there it is"


def test_S1_C_with_a_fixed_thinking_budget_an_answer_is_started_over(driven):
    """The lost thinking belongs to the first request and cannot be sent again, and the API rejects
    the results of later calls without it."""
    def reply(request):
        called = request.turn_results
        return Reply([text("done")] if called else [thinking("hm"), tool_use("look", {})])

    fixed = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    session = driven(reply=reply, params=fixed, tools=(look,)).say("look")
    session.lose(text_chunks("once "))
    (resumed,) = session.events(ev.GenResumed)
    assert resumed.strategy == "replace"
    assert [turn.reason for turn in session.events(ev.TurnEnded)] == ["end_turn"]


@pytest.mark.parametrize("model", [OLD, NEW])
def test_S2_9_after_a_pause_an_answer_is_started_over(driven, model):
    """A resumed answer would be a second assistant message, right after a tool call that has no
    result yet."""
    def reply(request):
        paused = request.body["messages"][-1]["role"] == "assistant"
        if paused:
            return Reply([text("found")])
        use = server_tool_use("web_search", {"query": "x"})
        return Reply([text("searching"), use], stop_reason="pause_turn")

    session = driven(model, reply=reply).say("search")
    session.lost = {2: text_chunks("once ")}
    session.run()
    session.restart()
    session.run()
    (resumed,) = session.events(ev.GenResumed)
    assert resumed.strategy == "replace"
    assert session.generations[2].request == session.generations[1].request
    assert [turn.reason for turn in session.events(ev.TurnEnded)] == ["end_turn"]
