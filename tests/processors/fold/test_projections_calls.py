"""What keeps a session from ever being bricked: calls, doubts, approvals, and what outlives a turn.

Each test is one rule of the design, on a handwritten history: given, when, then.
"""

import pytest

from foldlog.processors.fold.projections.turn_view import OUTCOME_UNKNOWN
from foldlog.schemas import events as ev
from foldlog.tests.laws.agents import LIMITS
from foldlog.tests.laws.answers import Use
from foldlog.tests.laws.history import History, opened, with_calls

LOOK, PUT = Use("look", "{}", "a"), Use("put", "{}", "p")
POST, CHARGE = Use("post", "{}", "b"), Use("charge", '{"cents":3}', "c")


def streaming() -> History:
    s = opened()
    s.say("go", "m1")
    return s.work()


# -- what a turn leaves behind ---------------------------------------------------------------------


def test_constraint_8_a_turn_does_not_end_by_itself_while_a_call_is_open():
    s = with_calls(LOOK, POST)
    s.result("1.1.0")
    assert s.rows() == ["T4"]
    for reason in ("end_turn", "stop_tool", "failed", "max_steps"):
        event = ev.TurnEnded(turn=1, reason=reason, basis=s.turn.basis, views_sha=b"")
        assert not s.append(event, "sessions").accepted


def test_all_calls_answered_counts_the_response_and_not_the_records_that_follow():
    s = streaming()
    s.complete(LOOK, PUT, POST)
    assert [call.status for call in s.turn.calls] == ["proposed"] * 3
    s.work()
    s.result("1.1.2")
    s.result("1.1.0")
    assert s.rows() == ["T4"], "no step is due while one is open"
    s.result("1.1.1")
    assert s.rows() == ["N3"]


def closing_with(*uses: Use) -> History:
    """A turn that was cancelled while these calls were claimed, and ended after the grace."""
    s = with_calls(*uses)
    s.cancel()
    s.later(LIMITS.grace_ms).work()
    assert not s.turn.open
    s.say("what became of it?", "m9")
    return s.work()


def test_turn_ended_abandons_what_may_be_repeated_and_doubts_what_may_not():
    s = closing_with(LOOK, PUT, POST)
    assert s.messages()[2][1] == [
        "error: Abandoned: the turn ended.",
        "error: Abandoned: the turn ended.",
        f"error: {OUTCOME_UNKNOWN}",
        "what became of it?",
    ]
    assert [(c.key, c.status) for c in s.turn.doubts] == [("1.1.2", "doubt")]


def test_turn_ended_leaves_what_was_asked_or_allowed_not_run():
    s = with_calls(CHARGE, CHARGE)
    s.allow("1.1.1")
    s.cancel()
    s.work().say("on", "m9")
    s.work()
    assert s.messages()[2][1][:2] == ["error: Not run: the turn ended."] * 2
    assert s.turn.doubts == () and s.state.pending_tool is None


def test_a_late_result_of_a_doubt_comes_as_a_reminder_and_never_edits_the_prefix():
    s = closing_with(POST)
    before = s.messages()
    assert s.result("1.1.0", "it was sent").accepted
    s.answer("well").say("and now?", "m10")
    s.work()
    assert s.messages()[: len(before)] == before
    assert s.messages()[-1] == (
        "user",
        ["and now?", "Reminder: The earlier call post (1.1.0) ended: ok. it was sent"],
    )
    s.answer("ah").say("again", "m11")
    s.work()
    assert s.messages()[-1] == ("user", ["again"]), "constraint 6: said once"


def test_S2_8_a_person_resolves_a_doubt_of_an_ended_turn_by_a_reminder():
    s = closing_with(POST)
    assert "T7" not in s.rows() and s.call("1.1.0").told
    assert s.resolve("1.1.0", "did_not_happen", "the post office says no").accepted
    s.answer("well").say("and now?", "m10")
    s.work()
    said = s.messages()[-1][1][-1]
    assert "did not happen" in said and "the post office says no" in said


# -- doubt and contradiction -----------------------------------------------------------------------


def doubtful() -> History:
    s = with_calls(POST)
    s.uncertain("1.1.0")
    s.work()
    assert s.call("1.1.0").status == "doubt" and s.rows() == [], "told, and now it waits"
    return s


def test_S2_8_in_doubt_is_open_until_a_late_result():
    s = doubtful()
    assert s.result("1.1.0", "sent after all").accepted
    s.work()
    assert s.messages()[-1] == ("user", ["result: sent after all"])


def test_S2_8_in_doubt_is_open_until_a_person_says_what_happened():
    s = doubtful()
    assert s.resolve("1.1.0", "happened", "I saw the letter").accepted
    s.work()
    assert s.messages()[-1] == (
        "user",
        ["result: A person reports that it happened. I saw the letter"],
    )


def test_S2_8_did_not_happen_never_runs_the_tool_again_but_the_model_may_call_it():
    s = doubtful()
    assert s.resolve("1.1.0", "did_not_happen").accepted
    s.work()
    assert s.messages()[-1] == ("user", ["error: A person reports that it did not happen."])
    claims = [step for step in s.steps if isinstance(step.entry.event, ev.ToolStarted)]
    assert len(claims) == 1


@pytest.mark.parametrize("end", ["cancel", "interrupt"])
def test_S2_8_in_doubt_is_open_until_cancel_or_interrupt(end):
    s = doubtful()
    if end == "cancel":
        s.cancel()
    else:
        s.say("enough", when_busy="interrupt")
    assert s.rows() == ["C2"]
    s.work()
    assert s.end_reason() == {"cancel": "cancelled", "interrupt": "interrupted"}[end]
    assert s.call("1.1.0").status == "doubt"


def test_S2_8_a_result_that_contradicts_a_person_asks_a_person_again():
    s = doubtful()
    s.resolve("1.1.0", "did_not_happen")
    s.work()
    assert s.result("1.1.0", "sent", attempt=1).accepted
    assert s.call("1.1.0").status == "contradicted" and s.rows().count("T7") == 1
    s.work()
    needed = s.steps[-1].entry.event
    assert isinstance(needed, ev.HumanNeeded) and "did_not_happen" in needed.why
    assert s.turn.open and "S2" in s.rows(), "a contradiction is no open call"
    assert s.resolve("1.1.0", "happened", "so it was sent").accepted
    s.answer("noted").say("on", "m9")
    s.work()
    assert "so it was sent" in s.messages()[-1][1][-1]


def test_S2_8_a_contradiction_that_a_person_settled_is_not_opened_again_by_a_second_copy():
    s = doubtful()
    s.resolve("1.1.0", "did_not_happen")
    s.result("1.1.0", "sent", attempt=1)
    s.work()
    assert s.resolve("1.1.0", "did_not_happen", "I asked: it was not").accepted
    assert s.result("1.1.0", "sent", attempt=1).code == "duplicate"
    assert s.call("1.1.0").status == "done" and "T7" not in s.rows()


def denied(**opening) -> History:
    """A call whose worker was gone, and of which its reconciler then said "it did not happen"."""
    s = History()
    s.take()
    assert s.open(**opening).accepted
    s.say("go")
    s.answer(POST)
    assert s.result("1.1.0", "no letter", "not_run", via="reconciler").accepted
    return s.work()


def test_S2_8_a_success_behind_a_reconcilers_no_asks_a_person_and_the_model_learns_of_it():
    """A worker that was stopped in its tool reported it 33 s later: dropped as a duplicate."""
    s = denied()
    assert s.result("1.1.0", "sent", attempt=1).accepted
    assert s.call("1.1.0").status == "contradicted" and s.rows().count("T7") == 1
    s.work()
    needed = s.steps[-1].entry.event
    assert isinstance(needed, ev.HumanNeeded)
    assert "says ok, its reconciler said did_not_happen" in needed.why
    assert s.turn.open and "S2" in s.rows(), "a contradiction is no open call"
    assert s.resolve("1.1.0", "happened", "so it was sent").accepted
    assert s.result("1.1.0", "sent", attempt=1).code == "duplicate"
    s.answer("noted").say("on", "m9")
    s.work()
    assert "so it was sent" in s.messages()[-1][1][-1]


def test_S2_8_a_success_behind_a_reconcilers_no_is_noticed_when_the_turn_is_over():
    s = denied()
    s.answer("it was not sent, then")
    assert not s.turn.open
    assert s.result("1.1.0", "sent", attempt=1).accepted
    assert s.rows() == ["T7"]
    s.work()
    assert s.resolve("1.1.0", "happened", "so it was sent").accepted
    s.say("on", "m9")
    s.work()
    assert "so it was sent" in s.messages()[-1][1][-1]


@pytest.mark.parametrize("outcome", ["not_run", "error", "cancelled"])
def test_only_a_success_contradicts_a_reconcilers_no(outcome):
    s = denied()
    assert s.result("1.1.0", "nothing", outcome, attempt=1).code == "duplicate"


def test_a_reconciler_that_found_the_effect_is_not_contradicted():
    s = with_calls(POST)
    assert s.result("1.1.0", "there it is", via="reconciler").accepted
    s.work()
    for outcome in ("ok", "error", "not_run"):
        assert s.result("1.1.0", "late", outcome, attempt=1).verdict == "ignored"


def test_a_session_of_rules_1_folds_to_what_it_folded_to():
    s = denied(rules=1)
    assert s.result("1.1.0", "sent", attempt=1).verdict == "ignored"
    assert s.call("1.1.0") is None and "T7" not in s.rows()


def test_a_result_that_agrees_with_a_person_is_a_repetition():
    s = doubtful()
    s.resolve("1.1.0", "happened")
    assert s.result("1.1.0", "sent", attempt=1).code == "duplicate"


# -- approvals -------------------------------------------------------------------------------------


def test_deny_and_expiry_are_the_outcome_of_the_call():
    s = with_calls(CHARGE, CHARGE)
    s.deny("1.1.0")
    s.later(LIMITS.approval_expiry_ms).work()
    assert [call.outcome for call in s.steps[-2].before.turn.calls] == ["not_run", "not_run"]
    assert s.messages()[-1] == (
        "user",
        [
            "error: Not run: the user denied this call.",
            "error: Not run: nobody allowed this call in time.",
        ],
    )


def test_an_approval_expires_so_long_after_the_response_that_asked():
    s = with_calls(CHARGE)
    asked_at = s.call("1.1.0").proposed_at
    assert s.call("1.1.0").expires_at == asked_at + LIMITS.approval_expiry_ms


def test_remember_grants_the_arguments_that_were_shown():
    """It granted the tool: who allowed one command once had allowed every later one."""
    s = with_calls(CHARGE)
    s.allow("1.1.0", remember=True, grant="same")
    s.work()
    s.result("1.1.0")
    s.answer(CHARGE)
    assert s.call("1.2.0").status == "started", "the same arguments: not asked again"
    s.result("1.2.0")
    s.answer(Use("charge", '{"cents": 999}', "other"))
    assert s.call("1.3.0").status == "asks"


def test_a_pattern_grants_what_it_matches():
    s = with_calls(CHARGE)
    s.allow("1.1.0", remember=True, grant='{"cents":"*"}')
    s.work()
    s.result("1.1.0")
    s.answer(Use("charge", '{"cents": 999}', "other"))
    assert s.call("1.2.0").status == "started"


def test_a_grant_that_is_not_understood_refuses_the_approval():
    s = with_calls(CHARGE)
    for wrong in ("sam", "[]", '{"cents": 3}', '{"cents": "' + 1024 * "x" + '"}', "{" * 500):
        assert s.allow("1.1.0", remember=True, grant=wrong).code == "invalid_grant"
    assert s.call("1.1.0").status == "asks"


def test_an_old_approval_that_is_remembered_is_a_grant_for_later_calls_of_the_tool():
    s = with_calls(CHARGE)
    s.allow("1.1.0", remember=True)
    s.work()
    s.result("1.1.0")
    s.answer(CHARGE)
    assert s.call("1.2.0").status == "started", "not asked again"
    s.result("1.2.0")
    s.answer("done").say("more", "m9")
    s.answer(Use("post", "{}", "q"), CHARGE)
    assert s.call("2.1.1").status == "started", "in later turns too"


def test_S1_D_a_rule_that_denies_an_unknown_tool_and_wrong_arguments_end_the_call_here():
    s = with_calls(
        Use("forbidden", "{}", "f"),
        Use("no such tool", "{}", "n"),
        Use("charge", '{"cents":"three"}', "c"),
        Use("look", '{"where":', "l", error="the arguments are not a JSON object"),
    )
    s.work()
    texts = s.messages()[-1][1]
    assert [text.split(":")[0] for text in texts] == ["error"] * 4
    assert "A rule denies forbidden" in texts[0] and "There is no tool" in texts[1]
    assert "arguments are wrong" in texts[2] and "not a JSON object" in texts[3]
    assert not any(isinstance(step.entry.event, ev.ToolStarted) for step in s.steps)
