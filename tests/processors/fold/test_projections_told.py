"""messages, transcript and ledger: what became of a message, what a person sees, what it cost."""

from foldlog.processors.fold.projections.turn_view import REFUSALS_MAX
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import initial
from foldlog.processors.store.views_codec import view_hashes
from foldlog.schemas import events as ev
from foldlog.schemas.value import replace
from foldlog.tests.laws.agents import LIMITS
from foldlog.tests.laws.answers import Use, complete
from foldlog.tests.laws.history import History, opened, with_calls

LOOK, POST, CHARGE = Use("look", "{}", "a"), Use("post", "{}", "b"), Use("charge", '{"cents":3}')


def kinds(s: History) -> list[str]:
    """The transcript's lines, as kind or kind:name."""
    return [f"{line.kind}:{line.name}" if line.name else line.kind for line in _lines(s)]


def _lines(s: History):
    return list(s.views.transcript.lines)


# -- messages --------------------------------------------------------------------------------------


def test_S0_10_the_second_sender_of_a_message_finds_the_same_turn_and_answer():
    s = opened()
    s.say("hello", "m1")
    s.say("hello", "m1")
    s.answer("hi there")
    s.say("hello", "m1")
    rows = [row for row in s.views.messages.progress if row.message_id == "m1"]
    assert [(row.turn, row.reason) for row in rows] == [(1, ""), (1, "end_turn")]
    assert kinds(s) == ["message:m1", "answer:end_turn", "ended:end_turn"]


def test_a_refused_message_is_in_no_view_but_the_answer_owed():
    s = opened()
    s.say("hello", "m1")
    s.say("other", "m1")
    s.say("hello", "m2", by="bob")
    assert len(s.views.messages.received) == 1 and kinds(s) == ["message:m1"]
    codes = [refusal.code for refusal in s.turn.refusals]
    assert codes == ["message_id_reused", "not_your_session"]


def test_refusals_owed_are_64_at_most_and_older_ones_are_counted():
    s = opened()
    for _ in range(REFUSALS_MAX + 3):
        s.lock("not an id")
    assert len(s.turn.refusals) == REFUSALS_MAX and s.turn.refusals_dropped == 3
    assert s.turn.refusals[-1].offset == s.offset - 1


def test_a_refusal_is_answered_once_with_its_offset_code_and_sentence():
    s = opened()
    s.lock("p1")
    place = s.offset
    ruling = s.lock("p2")
    s.discharge("R")
    answer = s.steps[-1].entry.event
    assert (answer.offset, answer.code, answer.detail) == (place, *ruling[1:])
    assert s.append(answer, "sessions").code == "duplicate" and s.rows() == []


# -- transcript ------------------------------------------------------------------------------------


def test_S2_9_superseded_attempts_are_folded_away_and_the_takeover_is_seen():
    s = opened()
    s.say("go", "m1")
    s.work()
    first = s.place
    s.take("w1/2").work()
    s.append(complete(first, ["{}"], "end_turn", s.blobs), "models")
    s.fail()
    s.later(1).answer("whole")
    assert kinds(s) == [
        "message:m1", "attempt:resumed", "attempt:failed", "answer:end_turn", "ended:end_turn",
    ]


def test_a_person_sees_every_turn_of_a_call_with_its_place():
    s = with_calls(CHARGE, POST, LOOK)
    s.allow("1.1.0")
    s.work()
    s.result("1.1.0", "paid")
    s.uncertain("1.1.1")
    s.result("1.1.2", "seen")
    s.work()
    s.resolve("1.1.1", "happened", "I have it")
    told = [(line.kind, line.call, line.text) for line in _lines(s) if line.call]
    assert told == [
        ("asks", "1.1.0", ""),
        ("call", "1.1.1", ""),
        ("call", "1.1.2", ""),
        ("approval", "1.1.0", "allow"),
        ("result", "1.1.0", "ok"),
        ("doubt", "1.1.1", "the connection was lost"),
        ("result", "1.1.2", "ok"),
        ("doubt", "1.1.1", "find out whether post had its effect"),
        ("resolved", "1.1.1", "happened"),
    ]


def test_phases_projects_and_the_end_of_the_session_are_seen():
    s = opened()
    s.trigger("start_build")
    s.lock("p1")
    s.terminate()
    assert kinds(s) == ["phase:start_build", "project:p1", "terminated"]


def test_S2_4_that_the_model_finished_and_that_the_user_has_it_are_two_facts():
    s = opened()
    s.say("go")
    s.answer("hi")
    assert len(s.lines("answer")) == 1 and len(s.views.transcript.sent) == 0
    sent = ev.GenSent(turn=1, step=1, channel="sse")
    assert s.append(sent, "consumers").accepted
    assert s.append(sent, "consumers").code == "duplicate"
    assert s.append(ev.GenSent(turn=1, step=1, channel="tty"), "consumers").accepted
    assert [row.channel for row in s.views.transcript.sent] == ["sse", "tty"]


# -- ledger ----------------------------------------------------------------------------------------


def test_S1_G_every_attempt_is_counted_once_failed_and_stopped_too():
    s = opened()
    s.say("go")
    s.work()
    s.fail()
    s.later(1).work()
    s.stopped("half")
    s.later(1).work()
    s.complete("whole")
    s.again()
    rows = [(row.key, row.outcome, row.input_tokens) for row in s.views.ledger.spent]
    assert rows == [
        ((1, 1, 1), "failed", 7), ((1, 1, 2), "stopped", 5), ((1, 1, 3), "complete", 100),
    ]
    ledger = s.views.ledger
    assert ledger.input_tokens == 112 and ledger.output_tokens == 1 + 2 + 10
    assert ledger.cache_read_tokens == 3 and ledger.cache_write_tokens == 3 * (2 + 3)


def test_an_outcome_without_usage_costs_nothing():
    s = opened()
    s.say("go")
    s.work()
    s.cancel()
    s.discharge("A1")
    assert len(s.views.ledger.spent) == 0


# -- the whole session -----------------------------------------------------------------------------


def test_S1_G_constraint_4_all_that_a_turn_leaves_changes_by_one_event():
    s = opened()
    s.say("go", "m1")
    s.work()
    s.complete("hi")
    before = view_hashes(s.views)
    s.discharge("N1")
    after = view_hashes(s.views)
    assert isinstance(s.steps[-1].entry.event, ev.TurnEnded)
    assert {name for name in before if before[name] != after[name]} == {
        "turn", "transcript", "messages", "background",
    }
    assert s.end_reason("m1") == "end_turn" and not s.turn.open


def test_S2_2_order_is_the_logs_and_no_clock_changes_what_happens():
    s = with_calls(LOOK, POST)
    s.result("1.1.1")
    s.result("1.1.0")
    s.answer("done").say("more")
    views = initial("s1")
    for number, step in enumerate(s.steps):
        backwards = replace(step.entry, at=10_000 - number)
        views, ruling = fold(views, backwards)
        assert ruling == step.ruling
    assert views.turn.basis == s.turn.basis and views.context.fragments == s.views.context.fragments
    assert [x.message_id for x in views.messages.received] == [
        x.message_id for x in s.views.messages.received
    ]


def test_S0_5_two_sessions_of_one_user_share_nothing():
    one, other = opened("tab-a"), opened("tab-b")
    one.say("go")
    before = view_hashes(other.views)
    one.work().cancel()
    assert one.turn.closing and view_hashes(other.views) == before
    assert one.state.user_id == other.state.user_id


def test_S0_9_a_turn_that_died_midway_says_where_and_is_resumed_or_cancelled_cleanly():
    for end in ("resume", "cancel"):
        s = with_calls(LOOK)
        assert s.state.pending_tool.call == "1.1.0"
        s.take("w1/2")
        if end == "cancel":
            s.cancel()
            s.work()
            assert not s.turn.open and s.state.pending_tool is None
            continue
        s.work()
        s.result("1.1.0")
        s.answer("done")
        assert s.end_reason() == "end_turn" and s.state.pending_tool is None


def test_S2_10_a_terminated_session_is_all_there_and_another_begins_beside_it():
    s = opened()
    s.say("go")
    s.answer("hi")
    s.terminate()
    assert len(s.lines("answer")) == 1 and s.rows() == []
    assert opened("s2").say("go").accepted


def test_limits_are_the_agents_and_not_constants():
    assert LIMITS.steps == 4 and History().agent.limits is LIMITS
