"""Tools by phase: what the model is told, and decisions that meet a change of the phase."""

import json
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from foldlog.processors.fold.transitions import WRONG_PHASE
from foldlog.processors.limits import DEFAULT_LIMITS
from foldlog.processors.tools.tool import tool
from foldlog.processors.wake.phase_limits import phase_reminder
from foldlog.schemas import events as ev
from foldlog.tests.kit.agents import AGENT
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import History, opened
from foldlog.tests.kit.phases import in_phase

START = ev.Trigger(trigger="start_build")


@tool(effect="pure", phases=("building",))
def write_page(ctx, text: str = "") -> str:
    """Writes a page."""
    return text


@tool(effect="once", approval="ask", phases=("verifying",))
def publish(ctx) -> str:
    """Publishes the pages."""
    return ""


@tool(effect="pure")
def begin_build(ctx) -> str:
    """Begins to build."""
    return ""


BUILDER = replace(AGENT, tools=(begin_build, write_page, publish))
WRITE = Use("write_page", "{}", "w")
PUBLISH = Use("publish", "{}", "p")
BEGIN = Use("begin_build", "{}", "b")
IN_CHATTING = (
    "The phase of this session is chatting. Tools that may be called only in other phases: "
    "publish (verifying), write_page (building)."
)
IN_BUILDING = (
    "The phase of this session is building. Tools for this phase: write_page. Tools that may be "
    "called only in other phases: publish (verifying)."
)


def told(s: History) -> list[str]:
    """The reminders of the newest request that name a phase, in order."""
    blocks = [block for _, blocks in s.messages() for block in blocks]
    found = [re.search(r"The phase of this session [^<]+", block) for block in blocks]
    return [match[0].strip() for match in found if match]


def unmarked(messages: list) -> list:
    """The messages without cache marks, which move with the end of the request."""
    text = json.dumps(messages)
    return json.loads(re.sub(r', "cache_control": \{[^}]*\}', "", text))


def invoked(s: History) -> list[ev.ToolInvoked]:
    return [x.entry.event for x in s.steps if isinstance(x.entry.event, ev.ToolInvoked)]


def test_S2_12_the_first_request_and_each_change_tell_the_phase_once():
    s = opened(agent=BUILDER)
    s.say("go")
    s.answer(BEGIN)
    assert told(s) == [IN_CHATTING]
    s.result("1.1.0", triggers=(START,))
    s.answer(WRITE)
    assert told(s) == [IN_CHATTING, IN_BUILDING]
    s.result("1.2.0")
    s.answer("done").say("more")
    s.answer("yes")
    assert told(s) == [IN_CHATTING, IN_BUILDING], "the phase has not changed since"
    s.trigger("todo_done_build")
    s.trigger("revert")
    s.say("more")
    s.answer("yes")
    assert told(s) == [IN_CHATTING, IN_BUILDING], "nor since then, as the model knows it"
    s.cancel()
    s.say("more")
    s.answer("yes")
    assert told(s) == [IN_CHATTING, IN_BUILDING, IN_CHATTING]


def test_S2_12_requests_only_grow_when_the_phase_changes():
    s = opened(agent=BUILDER)
    s.say("go")
    requests = []
    for trigger in ("start_build", "todo_done_build", "publish"):
        s.answer("yes")
        requests.append(s.request())
        s.trigger(trigger)
        s.say("more")
    s.answer("yes")
    requests.append(s.request())
    tools, texts = [one["tools"] for one in requests], [one["messages"] for one in requests]
    assert tools == tools[:1] * 4
    for before, after in pairwise(texts):
        assert unmarked(after)[: len(before)] == unmarked(before)
    assert len(told(s)) == 4


def test_S2_12_an_agent_without_such_tools_is_told_nothing():
    s = in_phase(opened(), "building")
    s.say("go")
    s.answer(Use("look", "{}", "l"))
    assert told(s) == []
    assert [(event.phase, event.code) for event in invoked(s)] == [(None, "")]


def test_S2_12_a_call_in_a_wrong_phase_is_answered_and_counted_in_the_log():
    s = opened(agent=BUILDER)
    s.say("go")
    s.answer(WRITE)
    (event,) = invoked(s)
    assert (event.phase, event.code, event.outcome) == ("chatting", WRONG_PHASE, "error")
    refused = [x.entry.event for x in s.steps if isinstance(x.entry.event, ev.Refused)]
    assert [(r.code, r.detail) for r in refused] == [
        (WRONG_PHASE, "wrong phase: phase=chatting, tool=write_page")
    ]
    s.work()
    why = "write_page was not run: the phase is chatting, and it may be called only in building."
    assert s.messages()[-1][1][0] == f"error: {why}"
    (line,) = s.lines("result")
    assert [(r.code, r.what) for r in line.refused] == [(WRONG_PHASE, "write_page")]


def test_S2_12_calls_of_one_answer_are_decided_by_the_phase_before_them():
    s = opened(agent=BUILDER)
    s.say("go")
    s.answer(BEGIN, WRITE)
    assert [event.code for event in invoked(s)] == ["", WRONG_PHASE]


def test_S2_12_a_decision_by_a_phase_that_has_changed_is_stale():
    """The result of another call changes the phase, and a result does not move the basis."""
    s = opened(agent=BUILDER)
    s.say("go")
    s.work().complete(BEGIN, WRITE)
    s.discharge("T1")
    s.discharge("T3")
    late = s.in_flight("T1")
    assert late[0][0].code == WRONG_PHASE
    s.result("1.1.0", triggers=(START,))
    assert s.land(late) == ["stale"] and not s.turn.refusals
    s.work()
    assert s.call("1.1.1").status == "started", "decided again, by the phase building"


def test_S2_12_an_approved_call_starts_although_the_phase_changed_since():
    """T1 decided by the phase at its basis, and a person allowed this very call."""
    s = in_phase(opened(agent=BUILDER), "verifying")
    s.say("go")
    s.answer(PUBLISH)
    assert s.call("1.1.0").status == "asks"
    s.trigger("revert")
    s.allow("1.1.0")
    s.work()
    assert (s.call("1.1.0").status, s.state.phase) == ("started", "building")


def test_S2_12_a_rule_applies_in_the_phases_that_it_names():
    rules = [("begin_build", "deny", ("building",))]
    s = opened(agent=replace(BUILDER, permissions=rules))
    s.say("go")
    s.answer(BEGIN)
    s.result("1.1.0", triggers=(START,))
    s.answer(BEGIN)
    assert [(e.phase, e.approval, e.code) for e in invoked(s)] == [
        ("chatting", "none", ""),
        ("building", "deny", ""),
    ]


def test_S2_12_the_phase_is_told_again_after_a_summary_that_may_lack_it():
    s = opened(agent=BUILDER)
    s.say("go")
    s.answer("yes")
    assert phase_reminder(s.views, BUILDER, None) is None
    again = phase_reminder(s.views, BUILDER, 7)
    assert again is not None and again.text == IN_CHATTING
    assert again.reminder_id not in s.turn.reminder_ids


@pytest.mark.parametrize("hard_tokens", [900, 1_000, 1_100])
def test_S2_12_a_reminder_that_does_not_fit_never_ends_a_turn(hard_tokens):
    limits = replace(BUILDER.limits, soft_tokens=800, hard_tokens=hard_tokens)
    many = [replace(write_page, name=f"write_{n:02}_{'x' * 40}") for n in range(1)]
    s = opened(agent=replace(BUILDER, tools=many, limits=limits))
    s.say("go")
    s.answer("done")
    assert s.end_reason() == "end_turn"


def test_S2_12_a_reminder_lists_a_bounded_number_of_tools():
    many = [replace(write_page, name=f"write_{n:03}") for n in range(200)]
    s = opened(agent=replace(AGENT, tools=many, limits=DEFAULT_LIMITS))
    s.say("go")
    s.answer("done")
    (text,) = told(s)
    assert "write_039 (building) and 160 more" in text and "write_040" not in text
