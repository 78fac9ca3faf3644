"""One run of a tool has exactly one outcome, and the outcome claims no more than is known."""

import asyncio
import threading
from dataclasses import replace
from hashlib import sha256

import pytest

from foldlog.processors.agent import Agent
from foldlog.processors.effects.tool import tool_host_of
from foldlog.processors.outside.connection import OutcomeUnknown
from foldlog.processors.tools.call import gave_up, not_run, run
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.tools.tool import ToolFailed, tool
from foldlog.schemas.events import ToolFailedUncertain
from foldlog.schemas.events.parts import Trigger
from foldlog.tests.processors.tools.tool_bench import (
    EFFECTS,
    LIMITS,
    RecordingSink,
    claim_of,
    make,
    run_once,
)

# --- a tool that ends by itself ---


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_returned_value_is_an_ok_outcome(host, effect):
    async def good(ctx, a: int, b: str = "x") -> dict:
        return {"b": b, "a": a, "call": ctx.call_key, "attempt": ctx.attempt}

    sink = run_once(make(effect, good), host, b'{"a":1}')
    assert sink.text == '{"a":1,"attempt":1,"b":"x","call":"2.1.0"}'
    event = sink.only
    assert (event.outcome, event.via, event.left_out) == ("ok", "tool", 0)
    assert (event.turn, event.step, event.index, event.attempt) == (2, 1, 0, 1)
    assert event.bytes == len(sink.text) and event.tokens > 0


@pytest.mark.parametrize("effect", EFFECTS)
def test_S2_8_ToolFailed_is_an_error_for_every_effect(host, effect):
    def bad():
        raise ToolFailed("the card was refused")

    sink = run_once(make(effect, bad), host)
    assert (sink.only.outcome, sink.text) == ("error", "the card was refused")


def test_a_lost_call_of_a_server_is_reported_without_a_class_name(host):
    def lost():
        raise OutcomeUnknown("the connection was lost while the call was under way")

    why = run_once(make("once", lost), host).only.reason
    assert ": the connection was lost while" in why and "OutcomeUnknown" not in why


@pytest.mark.parametrize("raised", [ConnectionError("reset"), SystemExit(3), StopIteration()])
@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("effect", EFFECTS)
def test_S2_8_any_other_exception_of_a_once_tool_leaves_it_in_doubt(host, effect, is_async, raised):
    async def bad_async():
        raise raised

    def bad_sync():
        raise raised

    event = run_once(make(effect, bad_async if is_async else bad_sync), host).only
    if effect == "once":
        assert isinstance(event, ToolFailedUncertain) and event.code == "raised"
        assert "whether it had its effect is not known" in event.reason
    else:
        assert event.outcome == "error"
        assert type(raised).__name__ in event.content.inline.decode()


def test_a_sync_tool_runs_in_a_thread_of_its_own(host):
    def where() -> str:
        return threading.current_thread().name

    assert run_once(make("pure", where), host).text == "tool 2.1.0"


def test_two_sync_tools_run_at_the_same_time(host):
    both = threading.Barrier(2)

    def meet() -> int:
        return both.wait(90) >= 0

    a_tool = make("pure", meet)

    async def main():
        sinks = [RecordingSink(), RecordingSink()]
        claim = claim_of(a_tool)
        await asyncio.gather(*(run(claim, a_tool, b"{}", sink, Stop(), host) for sink in sinks))
        return [sink.text for sink in sinks]

    assert asyncio.run(main()) == ["true", "true"]


def test_an_awaitable_from_an_ordinary_function_is_awaited(host):
    async def inner():
        return "inner"

    assert run_once(make("once", lambda: inner()), host).text == "inner"


def test_an_unreadable_exception_is_still_an_outcome(host):
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError

    def bad():
        raise Odd

    assert "without a readable text" in run_once(make("pure", bad), host).text


def test_an_exception_with_a_huge_text_is_cut(host):
    def bad():
        raise ValueError("x" * 10**6 + "\ud800")

    assert len(run_once(make("pure", bad), host).text) == 2_000
    assert len(run_once(make("once", bad), host).only.reason) == 2_000


# --- requests of a tool ---


def test_S0_2_triggers_and_reminders_are_part_of_the_result(host):
    def requests(ctx) -> str:
        ctx.remind("say hello")
        ctx.lock_project("p-1")
        ctx.trigger("start_build")
        return "ok"

    event = run_once(make("once", requests), host).only
    assert event.reminders == ("say hello",)
    assert event.triggers == (Trigger(project_id="p-1"), Trigger(trigger="start_build"))


def test_a_failed_tool_keeps_its_reminders_and_loses_its_triggers(host):
    def requests(ctx) -> str:
        ctx.remind("say hello")
        ctx.trigger("start_build")
        raise ToolFailed("no")

    event = run_once(make("once", requests), host).only
    assert event.reminders == ("say hello",) and event.triggers == ()


@pytest.mark.parametrize(
    "request_too_much",
    [
        lambda ctx: ctx.remind(""),
        lambda ctx: ctx.remind("x" * 5_000),
        lambda ctx: ctx.trigger("no spaces"),
        lambda ctx: ctx.lock_project("a/b"),
        lambda ctx: [ctx.trigger("x") for _ in range(17)],
        lambda ctx: [ctx.remind("x") for _ in range(17)],
    ],
)
def test_the_requests_of_a_tool_are_bounded(host, request_too_much):
    def requests(ctx) -> str:
        with pytest.raises(ValueError):
            request_too_much(ctx)
        return "refused"

    assert run_once(make("pure", requests), host).text == "refused"


def test_the_idempotency_key_is_the_same_for_every_attempt(host):
    def key(ctx) -> str:
        return ctx.idempotency_key

    a_tool = make("once", key)
    assert run_once(a_tool, host).text == run_once(a_tool, host, attempt=2).text == "s1/2.1.0"


# --- a call that must not begin ---


def never(ctx, a: int = 0) -> str:
    """Must not run."""
    raise AssertionError("it ran")


NEVER = tool(never)


@pytest.mark.parametrize(
    ("args", "changes", "error"),
    [
        (b'{"a":"x"}', {}, "its arguments are wrong: a: Input should be a valid integer"),
        (b"{", {}, "not JSON"),
        (
            b'{"a":1}',
            {"args_sha256": sha256(b'{"a":2}').hexdigest()},
            "not those that were decided",
        ),
        (b"{}", {"approval": "deny"}, "it is denied"),
        (b"{}", {"name": "other"}, "the call is of other"),
    ],
)
def test_S1_D_a_forbidden_call_does_not_run(host, args, changes, error):
    sink = run_once(NEVER, host, args, **changes)
    assert sink.only.outcome == "not_run" and error in sink.text


def test_S1_D_a_call_aborted_before_it_began_is_not_run(host):
    stop = Stop()
    stop.request("cancel c-1")
    sink = run_once(NEVER, host, stop=stop)
    assert sink.only.outcome == "not_run" and "cancel c-1" in sink.text


def test_a_call_whose_earlier_attempt_may_have_run_is_an_error(host):
    sink = run_once(NEVER, host, approval="deny", attempt=2)
    assert sink.only.outcome == "error" and "earlier attempt may have run" in sink.text
    assert not_run(claim_of(NEVER), "too late").outcome == "not_run"
    assert gave_up(claim_of(NEVER, attempt=3), "it crashes").outcome == "error"


def test_a_host_takes_its_values_from_the_agent(tmp_path, host):
    agent = Agent(name="a", model="m", tools=[NEVER], limits=LIMITS, workdir=tmp_path)
    made = tool_host_of(agent, host.blobs, host.side_log)
    assert (made.limits, made.workdir, made.results_readable) == (LIMITS, tmp_path, False)
    shows_workdir = replace(NEVER, function=lambda ctx, a=0: str(ctx.workdir))
    assert run_once(shows_workdir, made).text == str(tmp_path)
    own = replace(shows_workdir, workdir=tmp_path / "own")
    assert run_once(own, made).text == str(tmp_path / "own")


# --- a tool's error in the worker's log ---


def in_thread_below():
    raise KeyError("a secret of the message")


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("is_async", [False, True])
def test_E29_an_error_of_a_tool_is_logged_with_its_traceback(host, effect, is_async, caplog):
    """The defect: the tool's author saw one line in the model's context, and nothing at the
    terminal."""

    async def as_task(password: str):
        in_thread_below()

    def as_thread(password: str):
        in_thread_below()

    function = as_task if is_async else as_thread
    sink = run_once(make(effect, function), host, b'{"password":"xyz"}')
    (record,) = caplog.records
    first, second, *_ = record.getMessage().split("\n")
    assert first == "session s1: tool t (call 2.1.0, attempt 1) raised an error"
    assert second == "Traceback (most recent call last):"
    assert "in in_thread_below" in caplog.text and "KeyError" in caplog.text
    assert "tools/run.py" not in caplog.text, "our own frames explain nothing"
    assert "xyz" not in caplog.text and "Traceback" not in str(sink.only)


def test_E29_ToolFailed_is_not_logged(host, caplog):
    def bad():
        raise ToolFailed("the card was refused")

    run_once(make("once", bad), host)
    run_once(make("pure", lambda: 1), host)
    assert not caplog.records


def test_E29_a_huge_error_text_is_cut_in_the_log(host, caplog):
    def bad():
        raise ValueError("x" * 1_000_000 + "\ud800")

    run_once(make("pure", bad), host)
    (record,) = caplog.records
    assert len(record.getMessage()) < 20_000 and "ValueError" in record.getMessage()
    assert record.getMessage().endswith("\\ud800"), "it can be written"
