"""The view `context`: the content from which requests are built, its reminders and its token
estimate."""

from foldlog.processors.fold.projections.context import estimated_tokens
from foldlog.processors.wake.budget import Rules, plan
from foldlog.schemas import events as ev
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import opened, with_calls

LOOK = Use("look", "{}", "a")


# -- reminders (constraint 6) ----------------------------------------------------------------------


def test_constraint_6_a_reminder_is_sent_once_at_the_end_of_a_message_and_stays_there():
    s = with_calls(LOOK)
    s.result("1.1.0", "done", reminders=("look left too", "and right"))
    s.work()
    assert s.messages()[-1] == (
        "user",
        ["result: done", "Reminder: look left too", "Reminder: and right"],
    )
    before = s.messages()
    s.answer("ok").say("more")
    s.work()
    assert s.messages()[: len(before)] == before and s.messages()[-1] == ("user", ["more"])
    assert s.turn.reminders == ()


def test_constraint_6_a_duplicate_reminder_is_ignored():
    s = opened()
    reminder = ev.ReminderAdded(reminder_id="r1", text="mind the gap")
    assert s.append(reminder, "sessions").accepted
    s.say("go")
    s.work()
    assert s.append(reminder, "sessions").code == "duplicate"
    s.answer("ok").say("more")
    s.work()
    assert str(s.messages()).count("mind the gap") == 1


# -- tokens (constraint 5) -------------------------------------------------------------------------


def test_constraint_5_last_step_tokens_are_input_and_output_of_the_last_step():
    s = with_calls(LOOK)
    assert s.views.context.last_step_tokens == 100 + 1 + 2 + 3 + 10
    s.result("1.1.0")
    s.answer("ok", read=500)
    assert s.views.context.last_step_tokens == 500 + 1 + 2 + 3 + 10


def test_the_estimate_is_the_usage_of_the_last_response_and_the_estimate_of_the_tail():
    s = with_calls(LOOK)
    reported = estimated_tokens(s.views.context)
    assert reported == s.views.context.last_step_tokens
    s.result("1.1.0", "x" * 260)
    assert estimated_tokens(s.views.context) == reported + 260 // 3, "as in its event"
    before = estimated_tokens(s.views.context)
    s.say("y" * 260, when_busy="steer")
    assert estimated_tokens(s.views.context) == before, "not in the context yet"
    assert plan(s.views, Rules()).tokens > before


def test_constraint_1_a_request_covers_existing_fragments_and_prefixes_only():
    s = opened()
    s.say("go")
    s.answer("ok").say("next")
    s.work()
    request = s.views.context.request
    assert request.fragments <= len(s.views.context.fragments)
    assert request.prefixes <= len(s.views.context.prefixes)
