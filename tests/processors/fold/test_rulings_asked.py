"""Rulings on what people and programs ask: accepted, a repetition, or refused with a reason."""

import pytest

from foldlog.processors.fold.rulings.producers import RULES
from foldlog.schemas import events as ev
from foldlog.schemas.ids import PARTITION_KEY, call_key, parse_call_key
from foldlog.tests.laws.answers import Use
from foldlog.tests.laws.forged_events import ODD_IDS
from foldlog.tests.laws.history import History, opened, with_calls

CHARGE = Use("charge", '{"cents":3}', "c")


def word(ruling) -> str:
    """accepted, or the code."""
    return ruling.code or ruling.verdict


# -- opening ---------------------------------------------------------------------------------------


def test_a_session_opens_once_and_the_same_again_is_ignored():
    s = opened()
    assert word(s.open()) == "duplicate"
    assert word(s.open("bob")) == "already_open"
    assert word(s.open("ana", "other")) == "already_open"
    fork = ev.SessionOpened(user_id="ana", agent="helper", rules=RULES, parent_session="s0")
    assert word(s.append(fork, "producer")) == "already_open", "no fork was made"
    assert s.state.user_id == "ana"


def test_an_unknown_session_is_refused_and_its_stub_holds_only_the_refusals():
    s = History().take()
    for ruling in (s.say(), s.cancel(), s.trigger("start_build"), s.terminate()):
        assert (ruling.verdict, word(ruling)) == ("refused", "unknown_session")
    assert s.rows() == ["R"] * 4
    s.work()
    assert s.rows() == []
    assert s.open().accepted and s.say().accepted


def test_rules_of_a_newer_version_are_refused():
    s = History()
    newer = ev.SessionOpened(user_id="ana", agent="helper", rules=RULES + 1)
    assert word(s.append(newer, "producer")) == "rules"
    assert not s.turn.known


def test_a_fork_without_a_seed_is_refused():
    s = History()
    fork = ev.SessionOpened(
        user_id="ana", agent="helper", rules=RULES, parent_session="s0", parent_offset=3
    )
    assert word(s.append(fork, "producer")) == "invalid_fork"


# -- messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ODD_IDS)
def test_bad_input_ids_with_odd_characters_are_refused_wherever_they_stand(id):
    assert word(opened().say(id=id)) == "invalid_id"
    assert word(opened().cancel(id)) == "invalid_id"
    assert word(opened().trigger("start_build", id)) == "invalid_id"
    assert word(opened().lock("p1", id)) == "invalid_id"
    assert word(opened().lock(id)) == "invalid_id"
    if id != PARTITION_KEY:  # that key is nobody's session
        assert word(History(id).open()) == "invalid_id"
    assert word(History().open(user=id)) == "invalid_id"
    assert word(History().open(agent=id)) == "invalid_id"


def test_the_longest_id_is_128_characters_and_all_kinds_of_characters_may_stand_in_it():
    longest = "Az09._:@-" * 14 + "xy"
    assert len(longest) == 128
    assert opened().say(id=longest).accepted
    assert word(opened().say(id=longest + "z")) == "invalid_id"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty_message"),
        (b"[]", "empty_message"),
        (b'[{"type":"text","text":" \\n "}]', "empty_message"),
        (b'[{"type":"text","text":""},{"type":"text","text":"x"}]', "empty_message"),
        (b"null", "invalid_content"),
        (b"{}", "invalid_content"),
        (b"hello", "invalid_content"),
        (b'["hello"]', "invalid_content"),
        (b"\xff\xfe", "invalid_content"),
        ('[{"type":"text","text":"x"}]'.encode("utf-16"), "invalid_content"),
        (b'[{"type":"text"}]', "invalid_content"),
        (b'[{"type":"text","text":5}]', "invalid_content"),
        (b'[{"type":"text","text":"half \\ud800"}]', "invalid_content"),
        (b'[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]', "invalid_content"),
        (b'[{"type":"tool_result","tool_use_id":"a","content":"x"}]', "invalid_content"),
        (b'[{"type":"thinking","thinking":"x","signature":"s"}]', "invalid_content"),
        (b"[" * 50_000, "invalid_content"),
        (b"[" * 50_000 + b"]" * 50_000, "invalid_content"),
    ],
)
def test_bad_input_content_that_no_request_could_carry_is_refused(content, code):
    s = opened()
    ruling = s.say(raw=content)
    assert (ruling.verdict, word(ruling)) == ("refused", code)
    assert s.views.frozen is None and not s.turn.open


def test_a_message_keeps_the_bytes_it_came_in():
    s = opened()
    assert s.say(raw=b' [ {"text" : "\\u00fc" , "type":"text"} ] ').accepted
    s.work()
    assert b'{"text" : "\\u00fc" , "type":"text","cache_control"' in s.request_bytes()


def test_S0_10_the_same_message_twice_is_one_and_another_content_under_its_id_is_refused():
    s = opened()
    assert s.say("hello", "m1").accepted
    assert word(s.say("hello", "m1")) == "duplicate"
    assert word(s.say("other", "m1")) == "message_id_reused"
    s.answer("hi")
    assert word(s.say("hello", "m1")) == "duplicate" and s.turn.number == 1


def test_only_users_may_be_quoted():
    assert word(opened().say(role="assistant")) == "invalid_role"


def test_a_queue_that_is_full_refuses():
    s = opened()
    s.say()
    s.work()
    while s.say().accepted:
        pass
    assert s.turn.refusals[-1].code == "queue_full" and len(s.turn.queue) == 256


# -- phases and projects ---------------------------------------------------------------------------


def test_S0_3_a_second_lock_is_refused_with_its_sentence():
    s = opened()
    assert s.lock("p1").accepted
    ruling = s.lock("p2")
    assert (ruling.code, ruling.detail) == ("project_locked", "project_id already locked")
    assert s.state.project_id == "p1"


def test_a_command_sent_twice_counts_once():
    s = opened()
    assert s.trigger("start_build", "t1").accepted
    assert word(s.trigger("start_build", "t1")) == "duplicate"
    assert s.lock("p1", "l1").accepted
    assert word(s.lock("p1", "l1")) == "duplicate"


# -- cancel ----------------------------------------------------------------------------------------


def test_a_cancel_binds_to_the_turn_it_names_or_to_the_open_one():
    s = opened()
    assert word(s.cancel()) == "nothing_to_cancel"
    s.say()
    assert word(s.cancel(turn=2)) == "turn_over"
    assert s.cancel("c1", turn=1).accepted
    assert s.state.cancel_token == "c1"
    s.work()
    assert word(s.cancel(turn=1)) == "turn_over"


def test_a_second_cancel_of_a_turn_and_a_cancel_id_seen_before_are_ignored():
    s = opened()
    s.say()
    assert s.cancel("c1").accepted
    assert word(s.cancel("c2")) == "duplicate"
    s.work()
    s.say()
    assert word(s.cancel("c1")) == "duplicate"
    assert s.turn.closing is None and s.state.cancel_token is None


def test_a_cancel_that_saw_another_phase_is_refused():
    s = opened()
    s.say()
    assert word(s.cancel(seen_phase="building")) == "phase_changed"
    assert s.cancel(seen_phase="chatting").accepted


def test_a_cancel_without_an_open_turn_moves_the_phase_and_sets_no_token():
    s = opened()
    s.trigger("start_build")
    assert s.cancel().accepted
    assert (s.state.phase, s.state.cancel_token) == ("chatting", None)


def test_S1_F_an_outside_should_stop_needs_a_turn_and_voids_nothing():
    s = opened()
    assert word(s.cancel(mode="after_step")) == "no_turn"
    s.say()
    assert s.cancel(mode="after_step").accepted
    assert s.turn.closing is None and s.turn.should_stop and s.state.cancel_token is None


# -- decisions about calls -------------------------------------------------------------------------


def test_an_approval_is_bound_to_the_arguments_that_were_shown_and_spent_once():
    s = with_calls(CHARGE)
    assert word(s.allow("1.1.0", sha="other")) == "other_arguments"
    assert s.allow("1.1.0").accepted
    assert word(s.allow("1.1.0")) == "duplicate"
    assert word(s.deny("1.1.0")) == "not_asking"


@pytest.mark.parametrize("call", ["", "1.1", "x.y.z", "1.1.-1", "01.1.0", "1.1.00", "٣.1.0"])
def test_bad_input_what_is_no_call_is_refused_and_freezes_nothing(call):
    s = with_calls(CHARGE)
    assert word(s.allow(call)) == "invalid_call"
    assert word(s.resolve(call)) == "invalid_call"
    assert s.views.frozen is None and s.call("1.1.0").status == "asks"


def test_a_call_has_one_spelling():
    assert parse_call_key(call_key(1, 20, 300)) == (1, 20, 300)
    assert parse_call_key("1.020.300") is None


def test_unknown_calls_and_calls_that_are_not_in_doubt_are_refused():
    s = with_calls(CHARGE)
    assert word(s.allow("9.9.9")) == "unknown_call"
    refused = s.resolve("1.1.0")
    assert word(refused) == "not_in_doubt"
    assert refused.detail == "call 1.1.0 is not in doubt: it asks for approval"


def test_an_approval_that_comes_when_the_turn_is_ending_is_refused():
    s = with_calls(CHARGE)
    s.cancel()
    assert word(s.allow("1.1.0")) == "turn_over"


# -- whose session ---------------------------------------------------------------------------------


def test_S0_6_only_the_same_user_can_cancel_say_or_terminate():
    s = opened()
    s.say()
    for act in (s.cancel, s.say, s.terminate):
        ruling = act(by="bob")
        assert (ruling.verdict, ruling.code) == ("refused", "not_your_session")
    assert s.turn.closing is None
    assert s.cancel(by="ana").accepted, "another tab of the same user may"


def test_a_terminated_session_takes_nothing_but_the_resolution_of_a_doubt():
    s = with_calls(Use("post", "{}", "p"))
    s.uncertain("1.1.0")
    assert s.terminate().accepted
    s.work()
    assert not s.turn.open
    assert word(s.terminate()) == "duplicate"
    for ruling in (s.say(), s.cancel(), s.trigger("start_build"), s.lock("p1")):
        assert word(ruling) == "terminated"
    assert s.resolve("1.1.0").accepted
