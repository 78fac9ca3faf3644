"""Calls in the turn view: results, doubts, contradictions and approvals, also after the turn.

Each test is one rule of the design on a handwritten history: given, when, then.
"""

import pytest

from foldlog.processors.fold.projections.turn_view import OUTCOME_UNKNOWN
from foldlog.schemas import events as ev
from foldlog.tests.kit.agents import LIMITS
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import History, with_calls
from foldlog.tests.processors.fold.histories import streaming

LOOK, PUT = Use("look", "{}", "a"), Use("put", "{}", "p")
POST, CHARGE = Use("post", "{}", "b"), Use("charge", '{"cents":3}', "c")


# -- open calls and the end of a turn --------------------------------------------------------------


def test_constraint_8_a_turn_with_an_open_call_ends_only_by_an_abort():
    s = with_calls(LOOK, POST)
    s.result("1.1.0")
    assert s.rows() == ["T4"]
    for reason in ("end_turn", "stop_tool", "failed", "max_steps"):
        event = ev.TurnEnded(turn=1, reason=reason, basis=s.turn.basis, views_sha=b"")
        assert not s.append(event, "sessions").accepted


def test_a_step_is_due_only_after_every_call_of_the_response_has_a_result():
    s = streaming()
    s.complete(LOOK, PUT, POST)
    assert [call.status for call in s.turn.calls] == ["proposed"] * 3
    s.work()
    s.result("1.1.2")
    s.result("1.1.0")
    assert s.rows() == ["T4"], "a call is still open"
    s.result("1.1.1")
    assert s.rows() == ["N3"]


def closing_with(*uses: Use) -> History:
    """A session whose turn was cancelled while these calls ran, and ended after the grace
    period."""
    s = with_calls(*uses)
    s.cancel()
    s.later(LIMITS.grace_ms).work()
    assert not s.turn.open
    s.say("what happened?", "m9")
    return s.work()


def test_turn_ended_abandons_repeatable_calls_and_doubts_the_others():
    s = closing_with(LOOK, PUT, POST)
    assert s.messages()[2][1] == [
        "error: Abandoned: the turn ended.",
        "error: Abandoned: the turn ended.",
        f"error: {OUTCOME_UNKNOWN}",
        "what happened?",
    ]
    assert [(c.key, c.status) for c in s.turn.doubts] == [("1.1.2", "doubt")]


def test_turn_ended_does_not_run_calls_that_wait_for_approval_or_are_allowed():
    s = with_calls(CHARGE, CHARGE)
    s.allow("1.1.1")
    s.cancel()
    s.work().say("on", "m9")
    s.work()
    assert s.messages()[2][1][:2] == ["error: Not run: the turn ended."] * 2
    assert s.turn.doubts == () and s.state.pending_tool is None


def test_a_late_result_of_a_doubt_is_a_reminder_and_leaves_the_prefix_unchanged():
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
    assert s.messages()[-1] == ("user", ["again"]), "constraint 6: once"


def test_S2_8_a_resolution_after_the_turn_is_a_reminder():
    s = closing_with(POST)
    assert "T7" not in s.rows() and s.call("1.1.0").told
    assert s.resolve("1.1.0", "did_not_happen", "no letter at the post office").accepted
    s.answer("well").say("and now?", "m10")
    s.work()
    reminder = s.messages()[-1][1][-1]
    assert "did not happen" in reminder and "no letter at the post office" in reminder


# -- doubt and contradiction -----------------------------------------------------------------------


def doubtful() -> History:
    s = with_calls(POST)
    s.uncertain("1.1.0")
    s.work()
    assert s.call("1.1.0").status == "doubt" and s.rows() == [], "reported, and now it waits"
    return s


@pytest.mark.parametrize(
    ("settle", "message"),
    [
        (lambda s: s.result("1.1.0", "sent after all"), "result: sent after all"),
        (
            lambda s: s.resolve("1.1.0", "happened", "I saw the letter"),
            "result: A person reports that it happened. I saw the letter",
        ),
        (
            lambda s: s.resolve("1.1.0", "did_not_happen"),
            "error: A person reports that it did not happen.",
        ),
    ],
)
def test_S2_8_a_doubt_is_open_until_a_result_or_a_resolution_and_never_run_again(settle, message):
    s = doubtful()
    assert settle(s).accepted
    s.work()
    assert s.messages()[-1] == ("user", [message])
    claims = [step for step in s.steps if isinstance(step.entry.event, ev.ToolStarted)]
    assert len(claims) == 1


@pytest.mark.parametrize("end", ["cancel", "interrupt"])
def test_S2_8_a_doubt_is_open_until_cancel_or_interrupt(end):
    s = doubtful()
    if end == "cancel":
        s.cancel()
    else:
        s.say("enough", when_busy="interrupt")
    assert s.rows() == ["C2"]
    s.work()
    assert s.end_reason() == {"cancel": "cancelled", "interrupt": "interrupted"}[end]
    assert s.call("1.1.0").status == "doubt"


def test_S2_8_a_duplicate_does_not_reopen_a_resolved_contradiction():
    s = doubtful()
    s.resolve("1.1.0", "did_not_happen")
    s.result("1.1.0", "sent", attempt=1)
    s.work()
    assert s.resolve("1.1.0", "did_not_happen", "I asked: it was not").accepted
    assert s.result("1.1.0", "sent", attempt=1).code == "duplicate"
    assert s.call("1.1.0").status == "done" and "T7" not in s.rows()


def denied(**opening) -> History:
    """A session with a call of a dead worker. A reconciler reported the call as not run."""
    s = History()
    s.take()
    assert s.open(**opening).accepted
    s.say("go")
    s.answer(POST)
    assert s.result("1.1.0", "no letter", "not_run", via="reconciler").accepted
    return s.work()


def resolved() -> History:
    """A session with a call that was in doubt. A person resolved it as not having happened."""
    s = doubtful()
    assert s.resolve("1.1.0", "did_not_happen").accepted
    return s.work()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (denied, "says ok, its reconciler said did_not_happen"),
        (resolved, "did_not_happen"),
    ],
)
def test_S2_8_a_success_that_contradicts_an_earlier_report_needs_a_person_and_a_reminder(
    given, why
):
    """The defect: a worker was paused during a tool and reported the success 33 s later, and the
    fold ignored the report as a duplicate."""
    s = given()
    assert s.result("1.1.0", "sent", attempt=1).accepted
    assert s.call("1.1.0").status == "contradicted" and s.rows().count("T7") == 1
    s.work()
    needed = s.steps[-1].entry.event
    assert isinstance(needed, ev.HumanNeeded) and why in needed.why
    assert s.turn.open and "S2" in s.rows(), "a contradiction does not block the turn"
    assert s.resolve("1.1.0", "happened", "so it was sent").accepted
    assert s.result("1.1.0", "sent", attempt=1).code == "duplicate"
    s.answer("noted").say("on", "m9")
    s.work()
    assert "so it was sent" in s.messages()[-1][1][-1]


def test_S2_8_a_success_that_contradicts_a_reconciler_counts_after_the_turn():
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
def test_only_a_success_contradicts_a_reconciler(outcome):
    s = denied()
    assert s.result("1.1.0", "nothing", outcome, attempt=1).code == "duplicate"


def test_a_reconciler_that_reports_success_is_not_contradicted():
    s = with_calls(POST)
    assert s.result("1.1.0", "there it is", via="reconciler").accepted
    s.work()
    for outcome in ("ok", "error", "not_run"):
        assert s.result("1.1.0", "late", outcome, attempt=1).verdict == "ignored"


def test_a_session_of_rules_1_ignores_such_a_success():
    s = denied(rules=1)
    assert s.result("1.1.0", "sent", attempt=1).verdict == "ignored"
    assert s.call("1.1.0") is None and "T7" not in s.rows()


def test_a_result_that_agrees_with_a_resolution_is_a_duplicate():
    s = doubtful()
    s.resolve("1.1.0", "happened")
    assert s.result("1.1.0", "sent", attempt=1).code == "duplicate"


# -- approvals -------------------------------------------------------------------------------------


def test_a_denied_or_expired_call_is_not_run():
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


def test_an_approval_expires_some_time_after_the_response_with_the_call():
    s = with_calls(CHARGE)
    proposed_at = s.call("1.1.0").proposed_at
    assert s.call("1.1.0").expires_at == proposed_at + LIMITS.approval_expiry_ms


@pytest.mark.parametrize(
    ("grant", "args", "status"),
    [
        ("same", '{"cents":3}', "started"),
        ("same", '{"cents": 999}', "asks"),
        ('{"cents":"*"}', '{"cents": 999}', "started"),
    ],
)
def test_a_remembered_approval_grants_the_arguments_that_it_names(grant, args, status):
    """The defect: the approval granted the tool, so allowing one command allowed every later
    command."""
    s = with_calls(CHARGE)
    s.allow("1.1.0", remember=True, grant=grant)
    s.work()
    s.result("1.1.0")
    s.answer(Use("charge", args, "other"))
    assert s.call("1.2.0").status == status


def test_an_approval_with_an_invalid_grant_is_refused():
    s = with_calls(CHARGE)
    for wrong in ("sam", "[]", '{"cents": 3}', '{"cents": "' + 1024 * "x" + '"}', "{" * 500):
        assert s.allow("1.1.0", remember=True, grant=wrong).code == "invalid_grant"
    assert s.call("1.1.0").status == "asks"


def test_a_remembered_approval_without_a_grant_grants_the_tool():
    s = with_calls(CHARGE)
    s.allow("1.1.0", remember=True)
    s.work()
    s.result("1.1.0")
    s.answer(CHARGE)
    assert s.call("1.2.0").status == "started", "needs no approval"
    s.result("1.2.0")
    s.answer("done").say("more", "m9")
    s.answer(Use("post", "{}", "q"), CHARGE)
    assert s.call("2.1.1").status == "started", "in later turns too"


def test_S1_D_denied_and_invalid_calls_end_without_a_claim():
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
