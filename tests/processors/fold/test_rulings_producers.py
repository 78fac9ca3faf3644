"""Rulings on the commands of producers: a command is accepted, ignored as a duplicate, or refused
with a code."""

import pytest

from foldlog.processors.fold.rulings.producers import RULES
from foldlog.schemas import events as ev
from foldlog.schemas.ids import PARTITION_KEY, call_key, parse_call_key
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.forged_events import ODD_IDS
from foldlog.tests.kit.history import History, opened, with_calls
from foldlog.tests.processors.fold.histories import code

CHARGE = Use("charge", '{"cents":3}', "c")


# -- opening ---------------------------------------------------------------------------------------


def test_a_session_opens_once():
    s = opened()
    assert code(s.open()) == "duplicate"
    assert code(s.open("bob")) == "already_open"
    assert code(s.open("ana", "other")) == "already_open"
    fork = ev.SessionOpened(user_id="ana", agent="helper", rules=RULES, parent_session="s0")
    assert code(s.append(fork, "producer")) == "already_open", "it is not a fork"
    assert s.state.user_id == "ana"


def test_commands_to_an_unknown_session_are_refused_and_answered():
    s = History().take()
    for ruling in (s.say(), s.cancel(), s.trigger("start_build"), s.terminate()):
        assert (ruling.verdict, code(ruling)) == ("refused", "unknown_session")
    assert s.rows() == ["R"] * 4
    s.work()
    assert s.rows() == []
    assert s.open().accepted and s.say().accepted


def test_rules_of_a_newer_version_are_refused():
    s = History()
    newer = ev.SessionOpened(user_id="ana", agent="helper", rules=RULES + 1)
    assert code(s.append(newer, "producer")) == "rules"
    assert not s.turn.known


def test_a_fork_without_a_seed_is_refused():
    s = History()
    fork = ev.SessionOpened(
        user_id="ana", agent="helper", rules=RULES, parent_session="s0", parent_offset=3
    )
    assert code(s.append(fork, "producer")) == "invalid_fork"


# -- messages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ODD_IDS)
def test_bad_input_invalid_ids_are_refused_in_every_field(id):
    assert code(opened().say(id=id)) == "invalid_id"
    assert code(opened().cancel(id)) == "invalid_id"
    assert code(opened().trigger("start_build", id)) == "invalid_id"
    assert code(opened().lock("p1", id)) == "invalid_id"
    assert code(opened().lock(id)) == "invalid_id"
    if id != PARTITION_KEY:  # the key of partition records names no session
        assert code(History(id).open()) == "invalid_id"
    assert code(History().open(user=id)) == "invalid_id"
    assert code(History().open(agent=id)) == "invalid_id"


def test_an_id_has_at_most_128_characters_of_every_allowed_kind():
    longest = "Az09._:@-" * 14 + "xy"
    assert len(longest) == 128
    assert opened().say(id=longest).accepted
    assert code(opened().say(id=longest + "z")) == "invalid_id"


@pytest.mark.parametrize(
    ("content", "expected"),
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
def test_bad_input_content_that_no_request_can_contain_is_refused(content, expected):
    s = opened()
    ruling = s.say(raw=content)
    assert (ruling.verdict, code(ruling)) == ("refused", expected)
    assert s.views.frozen is None and not s.turn.open


def test_a_request_has_the_bytes_of_the_message():
    s = opened()
    assert s.say(raw=b' [ {"text" : "\\u00fc" , "type":"text"} ] ').accepted
    s.work()
    assert b'{"text" : "\\u00fc" , "type":"text","cache_control"' in s.request_bytes()


def test_S0_10_a_repeated_message_is_ignored_and_a_reused_id_refused():
    s = opened()
    assert s.say("hello", "m1").accepted
    assert code(s.say("hello", "m1")) == "duplicate"
    assert code(s.say("other", "m1")) == "message_id_reused"
    s.answer("hi")
    assert code(s.say("hello", "m1")) == "duplicate" and s.turn.number == 1


def test_a_message_of_another_role_is_refused():
    assert code(opened().say(role="assistant")) == "invalid_role"


def test_a_message_is_refused_when_the_queue_is_full():
    s = opened()
    s.say()
    s.work()
    while s.say().accepted:
        pass
    assert s.turn.refusals[-1].code == "queue_full" and len(s.turn.queue) == 256


# -- phases and projects ---------------------------------------------------------------------------


def test_S0_3_a_second_lock_is_refused():
    s = opened()
    assert s.lock("p1").accepted
    ruling = s.lock("p2")
    assert (ruling.code, ruling.detail) == ("project_locked", "project_id already locked")
    assert s.state.project_id == "p1"


def test_a_repeated_command_is_ignored():
    s = opened()
    assert s.trigger("start_build", "t1").accepted
    assert code(s.trigger("start_build", "t1")) == "duplicate"
    assert s.lock("p1", "l1").accepted
    assert code(s.lock("p1", "l1")) == "duplicate"


# -- cancel ----------------------------------------------------------------------------------------


def test_a_cancel_ends_the_named_turn_or_the_open_one():
    s = opened()
    assert code(s.cancel()) == "nothing_to_cancel"
    s.say()
    assert code(s.cancel(turn=2)) == "turn_over"
    assert s.cancel("c1", turn=1).accepted
    assert s.state.cancel_token == "c1"
    s.work()
    assert code(s.cancel(turn=1)) == "turn_over"


def test_a_second_cancel_of_a_turn_and_a_reused_cancel_id_are_ignored():
    s = opened()
    s.say()
    assert s.cancel("c1").accepted
    assert code(s.cancel("c2")) == "duplicate"
    s.work()
    s.say()
    assert code(s.cancel("c1")) == "duplicate"
    assert s.turn.closing is None and s.state.cancel_token is None


def test_a_cancel_for_another_phase_is_refused():
    s = opened()
    s.say()
    assert code(s.cancel(seen_phase="building")) == "phase_changed"
    assert s.cancel(seen_phase="chatting").accepted


def test_a_cancel_without_an_open_turn_changes_the_phase_and_sets_no_token():
    s = opened()
    s.trigger("start_build")
    assert s.cancel().accepted
    assert (s.state.phase, s.state.cancel_token) == ("chatting", None)


def test_S1_F_should_stop_needs_an_open_turn_and_does_not_close_it():
    s = opened()
    assert code(s.cancel(mode="after_step")) == "no_turn"
    s.say()
    assert s.cancel(mode="after_step").accepted
    assert s.turn.closing is None and s.turn.should_stop and s.state.cancel_token is None


# -- decisions about calls -------------------------------------------------------------------------


def test_an_approval_is_for_the_shown_arguments_and_counts_once():
    s = with_calls(CHARGE)
    assert code(s.allow("1.1.0", sha="other")) == "other_arguments"
    assert s.allow("1.1.0").accepted
    assert code(s.allow("1.1.0")) == "duplicate"
    assert code(s.deny("1.1.0")) == "not_asking"


@pytest.mark.parametrize("call", ["", "1.1", "x.y.z", "1.1.-1", "01.1.0", "1.1.00", "٣.1.0"])
def test_bad_input_an_invalid_call_key_is_refused_and_freezes_nothing(call):
    s = with_calls(CHARGE)
    assert code(s.allow(call)) == "invalid_call"
    assert code(s.resolve(call)) == "invalid_call"
    assert s.views.frozen is None and s.call("1.1.0").status == "asks"


def test_a_call_key_has_one_spelling():
    assert parse_call_key(call_key(1, 20, 300)) == (1, 20, 300)
    assert parse_call_key("1.020.300") is None


def test_decisions_about_unknown_and_other_calls_are_refused():
    s = with_calls(CHARGE)
    assert code(s.allow("9.9.9")) == "unknown_call"
    refused = s.resolve("1.1.0")
    assert code(refused) == "not_in_doubt"
    assert refused.detail == "call 1.1.0 is not in doubt: it asks for approval"


def test_an_approval_during_the_end_of_the_turn_is_refused():
    s = with_calls(CHARGE)
    s.cancel()
    assert code(s.allow("1.1.0")) == "turn_over"


# -- the owner and the end of a session ------------------------------------------------------------


def test_S0_6_commands_of_another_user_are_refused():
    s = opened()
    s.say()
    for act in (s.cancel, s.say, s.terminate):
        ruling = act(by="bob")
        assert (ruling.verdict, ruling.code) == ("refused", "not_your_session")
    assert s.turn.closing is None
    assert s.cancel(by="ana").accepted, "another tab of the same user may"


def test_a_terminated_session_accepts_only_the_resolution_of_a_doubt():
    s = with_calls(Use("post", "{}", "p"))
    s.uncertain("1.1.0")
    assert s.terminate().accepted
    s.work()
    assert not s.turn.open
    assert code(s.terminate()) == "duplicate"
    for ruling in (s.say(), s.cancel(), s.trigger("start_build"), s.lock("p1")):
        assert code(ruling) == "terminated"
    assert s.resolve("1.1.0").accepted
