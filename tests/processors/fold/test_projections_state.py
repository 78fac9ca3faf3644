"""The view `session_state`: the writers of its fields, phases, the project, the pending tool, and
its size."""

import dataclasses
import json

import pytest

from foldlog.processors.fold.field_writers import MEANING, WRITERS
from foldlog.processors.fold.projections import session_state
from foldlog.processors.fold.projections.session_state import PendingTool, SessionState, as_json
from foldlog.processors.fold.transitions import TRANSITIONS, InvalidTransition, transition
from foldlog.schemas import events as ev
from foldlog.schemas.events import BY_NAME
from foldlog.schemas.value import replace
from foldlog.tests.kit import answers
from foldlog.tests.kit.agents import AGENT, BUILDER, PROJECT
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.forged_events import ODD_IDS
from foldlog.tests.kit.history import opened, with_calls

LOOK, POST = Use("look", "{}", "a"), Use("post", "{}", "b")
BUILD = Use("build_and_deploy", '{"project_id":"p1","confirm_new_project":true}', "c")
TRIGGERS = sorted({event for row in TRANSITIONS.values() for event in row} | {"fly", ""})


def test_S0_1_the_state_has_exactly_its_fields():
    s = opened()
    assert list(json.loads(as_json(s.state))) == [
        "session_id",
        "user_id",
        "project_id",
        "phase",
        "pending_tool",
        "cancel_token",
        "last_message_id",
        "updated_at",
    ]


def test_S0_1_the_largest_legal_state_is_below_1_KB():
    id, digits = "x" * 128, 999_999_999
    pending = PendingTool(f"{digits}.{digits}.{digits}", "n" * 64, digits, digits)
    largest = SessionState(id, id, id, "verifying", pending, id, id, 2**53)
    assert len(as_json(largest)) < 1024


def test_S0_1_the_text_of_a_message_changes_no_field():
    s = opened()
    before = s.state
    s.say("please start_build project p1 and cancel everything", "m1")
    changed = {"last_message_id": "m1", "updated_at": s.records[-1].timestamp_ms}
    assert s.state == replace(before, **changed)


def test_S0_2_every_field_has_named_writers_and_a_meaning():
    assert set(WRITERS) == set(SessionState.__struct_fields__) == set(MEANING)
    for field, names in WRITERS.items():
        assert names and set(names) <= set(BY_NAME), field
    every = {name for field, names in WRITERS.items() if field != "updated_at" for name in names}
    assert every <= set(WRITERS["updated_at"]) | {"SESSION_OPENED"}


# -- phases ----------------------------------------------------------------------------------------


def test_S0_4_TRANSITIONS_is_the_specified_table():
    assert TRANSITIONS == {
        "chatting": {"open_existing": "chatting", "start_build": "building"},
        "building": {"todo_done_build": "verifying", "cancel": "chatting"},
        "verifying": {"publish": "done", "revert": "building", "cancel": "chatting"},
        "done": {"open_existing": "chatting", "start_build": "building"},
    }


@pytest.mark.parametrize("phase", TRANSITIONS)
@pytest.mark.parametrize("trigger", TRIGGERS)
def test_S0_4_a_trigger_outside_the_table_is_refused_with_its_phase(phase, trigger):
    s = opened()
    path = {"chatting": [], "building": ["start_build"]}
    path["verifying"] = [*path["building"], "todo_done_build"]
    path["done"] = [*path["verifying"], "publish"]
    for step in path[phase]:
        assert s.trigger(step).accepted
    assert s.state.phase == phase
    ruling = s.trigger(trigger)
    if trigger in TRANSITIONS[phase]:
        assert s.state.phase == TRANSITIONS[phase][trigger] == transition(phase, trigger)
        return
    assert ruling.detail == f"invalid transition: phase={phase}, event={trigger}"
    assert (ruling.verdict, ruling.code) == ("refused", "invalid_transition")
    assert s.state.phase == phase and s.rows() == ["R"]
    with pytest.raises(InvalidTransition, match=f"phase={phase}, event={trigger}"):
        transition(phase, trigger)


@pytest.mark.parametrize(("first", "phase"), [("publish", "done"), ("cancel", "chatting")])
def test_S0_11_of_publish_and_cancel_the_first_in_the_log_wins_and_the_other_is_refused(
    first, phase
):
    s = opened()
    s.trigger("start_build")
    s.trigger("todo_done_build")
    commands = [lambda: s.trigger("publish"), lambda: s.cancel(seen_phase="verifying")]
    winner, loser = commands if first == "publish" else commands[::-1]
    assert winner().accepted
    refused = loser()
    assert refused.verdict == "refused" and refused.detail and s.state.phase == phase
    s.work()
    answer = s.steps[-1].entry.event
    assert isinstance(answer, ev.Refused) and answer.detail == refused.detail


def test_S0_11_a_cancel_during_a_turn_changes_the_phase_and_ends_the_turn():
    s = opened()
    s.trigger("start_build")
    s.say()
    s.work()
    assert s.cancel("stop-1", seen_phase="building", turn=1).accepted
    assert (s.state.phase, s.state.cancel_token) == ("chatting", "stop-1")
    s.stopped("so far")
    s.work()
    assert not s.turn.open and s.state.cancel_token is None, "cleared by TURN_ENDED"
    assert s.end_reason(s.state.last_message_id) == "cancelled"


# -- triggers of tools -----------------------------------------------------------------------------


def test_S0_2_a_tool_result_changes_the_phase_and_locks_the_project():
    s = with_calls(BUILD, agent=BUILDER)
    triggers = (ev.Trigger(trigger="start_build", project_id="p1"),)
    assert s.result("1.1.0", triggers=triggers).accepted
    assert (s.state.phase, s.state.project_id) == ("building", "p1")
    assert not s.turn.refusals


def test_S0_2_no_other_tool_locks_a_project():
    s = with_calls(LOOK)
    triggers = (ev.Trigger(trigger="start_build", project_id="p1"),)
    assert s.result("1.1.0", "done", triggers=triggers).accepted
    assert (s.state.phase, s.state.project_id) == ("building", None)
    (refusal,) = s.turn.refusals
    assert (refusal.code, refusal.offset) == ("not_the_project_tool", s.offset - 1)
    assert refusal.detail == "look may not lock a project: build_and_deploy may"
    s.work()
    assert not s.turn.refusals, "answered in the log"
    assert s.messages()[2][1] == [f"result: done\n{refusal.detail}"]


@pytest.mark.parametrize(
    "args",
    [
        '{"project_id":"p1"}',
        '{"project_id":"p1","confirm_new_project":false}',
        '{"project_id":"confirm_new_project"}',
    ],
)
def test_S0_2_the_fold_demands_the_confirmation_whatever_the_tool_does(args):
    """The defect: any tool of that name could lock the session."""
    s = with_calls(Use("build_and_deploy", args, "c"), agent=BUILDER)
    assert s.result("1.1.0", "done", triggers=(ev.Trigger(project_id="p1"),)).accepted
    assert s.state.project_id is None
    (refusal,) = s.turn.refusals
    assert refusal.code == "not_confirmed"
    assert refusal.detail == "build_and_deploy may not lock a project without confirm_new_project"
    s.work()
    assert not s.turn.refusals, "answered in the log"


def test_S0_2_arguments_in_a_blob_confirm_nothing():
    """A fold reads no blob, so it never knows what they are."""
    s = with_calls(BUILD, agent=BUILDER)
    ref = ev.BlobRef(sha256="0" * 64, bytes=70_000, media_type="application/json")
    stored = replace(s.call("1.1.0"), args=ev.Body(inline=BUILD.args.encode(), ref=ref))
    before = replace(s.turn, calls=(stored,))
    event = answers.result((1, 1, 0), 1, "ok", "ok", triggers=(ev.Trigger(project_id="p1"),))
    after, (refusal,) = session_state.triggered(s.state, before, event)
    assert after.project_id is None and refusal.code == "not_confirmed"


def test_S0_2_a_hidden_project_tool_confirms_through_its_envelope():
    rare = dataclasses.replace(PROJECT, tier="rare")
    s = with_calls(
        Use("use_tool", f'{{"name":"build_and_deploy","arguments":{BUILD.args}}}', "c"),
        agent=dataclasses.replace(AGENT, tools=(rare,)),
    )
    s.result("1.1.0", triggers=(ev.Trigger(project_id="p1"),))
    assert (s.state.project_id, s.turn.refusals) == ("p1", ())


@pytest.mark.parametrize("rules", [1, 2])
def test_in_a_session_of_older_rules_the_tool_alone_checks_the_confirmation(rules):
    unconfirmed = Use("build_and_deploy", '{"project_id":"p1"}', "c")
    s = with_calls(unconfirmed, agent=BUILDER, rules=rules)
    s.result("1.1.0", triggers=(ev.Trigger(project_id="p1"),))
    assert s.state.project_id == "p1" and not s.turn.refusals


def test_in_a_session_of_rules_1_any_tool_locks_a_project():
    s = with_calls(LOOK, rules=1)
    triggers = (ev.Trigger(project_id="p1"), ev.Trigger(trigger="publish"))
    assert s.result("1.1.0", triggers=triggers).accepted
    assert s.state.project_id == "p1" and not s.turn.refusals


def test_S0_2_a_fold_that_violates_the_table_of_writers_freezes_the_session(monkeypatch):
    """The defect: only a test compared the changes with the table; the fold itself did not."""
    s = opened()
    before = s.state
    correct = session_state.apply

    def wrong(state, entry, *turns):
        return replace(correct(state, entry, *turns), project_id="stolen")

    monkeypatch.setattr(session_state, "apply", wrong)
    s.say("hello")
    assert s.state == before
    assert s.views.frozen.offset == s.offset - 1
    assert "MESSAGE_RECEIVED may not change project_id" in s.views.frozen.why


def test_an_invalid_trigger_of_a_tool_is_refused_in_its_result():
    s = with_calls(BUILD, agent=BUILDER)
    s.lock("p1")
    triggers = (
        ev.Trigger(trigger="publish"),
        ev.Trigger(trigger="start_build"),
        ev.Trigger(project_id="p2"),
    )
    assert s.result("1.1.0", "done", triggers=triggers).accepted
    assert (s.state.phase, s.state.project_id) == ("building", "p1")
    (refusal,) = s.turn.refusals
    assert refusal.code == "invalid_transition", "as for a person's trigger"
    s.work()
    invalid = "invalid transition: phase=chatting, event=publish"
    assert s.messages()[2][1] == [f"result: done\n{invalid}\nproject_id already locked"]
    answered = [step.entry.event for step in s.steps if type(step.entry.event) is ev.Refused]
    (refused,) = answered
    assert (refused.offset, refused.code) == (refusal.offset, "invalid_transition")
    assert refused.detail == f"{invalid}; project_id already locked"


@pytest.mark.parametrize("id", ODD_IDS)
def test_bad_input_a_tool_cannot_lock_an_invalid_project_id(id):
    s = with_calls(BUILD, agent=BUILDER)
    assert s.result("1.1.0", "done", triggers=(ev.Trigger(project_id=id),)).accepted
    assert s.state.project_id is None
    s.work()
    assert "project_id must be 1-128 characters" in s.messages()[2][1][0]


# -- the pending tool ------------------------------------------------------------------------------


def test_S0_9_pending_tool_is_the_oldest_running_call_and_the_number_of_open_ones():
    s = with_calls(LOOK, POST)
    assert s.state.pending_tool == PendingTool("1.1.0", "look", 1, 2)
    assert b"args" not in as_json(s.state)
    s.result("1.1.0")
    assert s.state.pending_tool == PendingTool("1.1.1", "post", 1, 1)
    s.uncertain("1.1.1")
    assert s.state.pending_tool == PendingTool("1.1.1", "post", 1, 1), "doubt included"
    s.resolve("1.1.1", "did_not_happen")
    assert s.state.pending_tool is None


def test_S0_9_pending_tool_names_a_doubt_after_its_turn():
    s = with_calls(POST)
    s.uncertain("1.1.0")
    s.cancel()
    s.work()
    assert not s.turn.open and s.state.pending_tool == PendingTool("1.1.0", "post", 1, 1)
    s.resolve("1.1.0")
    assert s.state.pending_tool is None


def test_updated_at_is_the_time_of_the_last_change_of_another_field():
    s = opened()
    assert s.lock("p1").accepted
    at = s.state.updated_at
    s.later(1000).lock("p2")
    s.trigger("open_existing")
    assert s.state.updated_at == at, "refused, or changed nothing"
    s.later(1000).say()
    assert s.state.updated_at == s.records[-1].timestamp_ms
