"""Abort and deadline: the run is ended if possible, and the outcome states what is known about its
effect."""

import asyncio
import threading
from dataclasses import replace
from time import monotonic

import pytest

from foldlog.processors.tools.call import run, timeout_ms
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.tools.tool import ToolCancelled, ToolFailed
from foldlog.schemas.events import ToolFailedUncertain, ToolResult
from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.tests.processors.tools.tool_bench import (
    EFFECTS,
    LIMITS,
    RecordingSink,
    claim_of,
    make,
    run_once,
)


def stopped(a_tool, host, begun, **changes):
    """Begin a run, abort it once the tool is running, and return the sink and the task of the late
    result."""

    async def main():
        sink, stop = RecordingSink(), Stop()
        claim = claim_of(a_tool, **changes)
        running = asyncio.create_task(run(claim, a_tool, b"{}", sink, stop, host))
        await asyncio.to_thread(begun.wait, 20)
        stop.request("cancel c-1")
        return sink, await running

    return asyncio.run(main())


@pytest.mark.parametrize("effect", EFFECTS)
def test_S2_8_constraint_3_an_abort_ends_a_task_that_ignores_ctx_aborted(host, effect):
    begun, ended = threading.Event(), []

    async def hangs():
        begun.set()
        try:
            await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_S)
        finally:
            ended.append(True)

    sink, late = stopped(make(effect, hangs), host, begun)
    assert ended and late is None
    if effect == "once":
        assert isinstance(sink.only, ToolFailedUncertain) and "cancel c-1" in sink.only.reason
    else:
        assert sink.only.outcome == "cancelled" and "cancel c-1" in sink.text


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("effect", EFFECTS)
def test_S2_8_a_tool_that_ends_itself_on_abort_determines_the_outcome(host, effect, is_async):
    begun = threading.Event()

    async def watches_async(ctx):
        begun.set()
        why = await ctx.aborted
        raise ToolCancelled(f"stopped before the payment: {why}")

    def watches_sync(ctx):
        assert not ctx.aborted.wait_blocking(0)
        begun.set()
        assert ctx.aborted.wait_blocking() and ctx.aborted
        raise ToolCancelled(f"stopped before the payment: {ctx.aborted.why}")

    sink, late = stopped(make(effect, watches_async if is_async else watches_sync), host, begun)
    assert late is None
    assert sink.only.outcome == "cancelled"
    assert sink.text == "stopped before the payment: cancel c-1"


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_tool_that_returns_after_the_abort_is_ok(host, effect):
    begun = threading.Event()

    async def finishes(ctx):
        begun.set()
        await ctx.aborted
        return "paid"

    sink, _ = stopped(make(effect, finishes), host, begun)
    assert (sink.only.outcome, sink.text) == ("ok", "paid")


@pytest.mark.parametrize("effect", EFFECTS)
def test_constraint_3_a_thread_that_ignores_the_abort_does_not_block_the_turn(
    host, effect
):
    """No thread can be killed; the README states this limit."""
    begun, release, acted = threading.Event(), threading.Event(), threading.Event()

    def ignores(ctx):
        begun.set()
        release.wait(20)
        acted.set()

    async def main():
        sink, stop = RecordingSink(), Stop()
        a_tool = make(effect, ignores)
        running = asyncio.create_task(run(claim_of(a_tool), a_tool, b"{}", sink, stop, host))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        stop.request("cancel c-1")
        late = await running
        assert late is not None and not acted.is_set(), "the outcome did not wait for it"
        (first,) = sink.events
        release.set()
        await late
        return first

    first = asyncio.run(main())
    assert acted.is_set(), "it acted after the abort"
    in_doubt = isinstance(first, ToolFailedUncertain)
    assert in_doubt if effect == "once" else first.outcome == "cancelled"


@pytest.mark.parametrize("effect", EFFECTS)
def test_S2_8_a_task_is_cancelled_at_its_deadline(host, effect):
    async def hangs():
        await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_S)

    event = run_once(make(effect, hangs, timeout_s=0.02), host).only
    if effect == "once":
        assert isinstance(event, ToolFailedUncertain) and event.code == "timed_out"
        assert "did not end within 0.02 s" in event.reason
    else:
        assert event.outcome == "error"
        assert "did not end within 0.02 s" in event.content.inline.decode()


@pytest.mark.parametrize("late_end", ["return", "fail", "raise"])
@pytest.mark.parametrize("effect", EFFECTS)
def test_F20_a_thread_that_ends_after_its_deadline_still_reports_its_result(host, effect, late_end):
    release = threading.Event()

    def slow() -> str:
        release.wait(20)
        if late_end == "fail":
            raise ToolFailed("refused in the end")
        if late_end == "raise":
            raise ConnectionError
        return "paid in the end"

    a_tool = make(effect, slow, timeout_s=0.02)

    async def main():
        sink = RecordingSink()
        late = await run(claim_of(a_tool), a_tool, b"{}", sink, Stop(), host)
        assert late is not None and len(sink.events) == 1, "the outcome did not wait for it"
        release.set()
        await late
        return sink.events

    first, *rest = asyncio.run(main())
    if effect != "once":
        assert first.outcome == "error" and rest == [], "one outcome, and no doubt to resolve"
        return
    assert isinstance(first, ToolFailedUncertain)
    if late_end == "raise":
        assert rest == []
        return
    (late_result,) = rest
    expected = {"return": ("ok", b"paid in the end"), "fail": ("error", b"refused in the end")}
    assert (late_result.outcome, late_result.content.inline) == expected[late_end]
    assert late_result.attempt == first.attempt == 1


def test_F20_a_task_that_swallows_its_cancellation_does_not_block_the_turn(host):
    async def main():
        sink, release = RecordingSink(), asyncio.Event()

        async def stubborn():
            deadline = monotonic() + PATIENCE_S
            while not release.is_set() and monotonic() < deadline:
                try:
                    await asyncio.wait_for(release.wait(), PATIENCE_S)
                except asyncio.CancelledError:
                    continue
            return "at last"

        a_tool = make("once", stubborn, timeout_s=0.02)
        late = await run(claim_of(a_tool), a_tool, b"{}", sink, Stop(), host)
        assert isinstance(sink.only, ToolFailedUncertain)
        release.set()
        await late
        return sink.events[1]

    late_result = asyncio.run(main())
    assert isinstance(late_result, ToolResult) and late_result.content.inline == b"at last"


def test_a_stopping_worker_still_reports_the_outcome(host):
    async def hangs():
        await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_S)

    a_tool = make("once", hangs)

    async def main():
        sink = RecordingSink()
        running = asyncio.create_task(run(claim_of(a_tool), a_tool, b"{}", sink, Stop(), host))
        async with asyncio.timeout(PATIENCE_S):
            while not [t for t in asyncio.all_tasks() if t.get_name() == "tool s1 2.1.0"]:
                await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return sink

    assert "the worker is stopping" in asyncio.run(main()).only.reason


def test_S2_8_a_call_is_once_if_the_log_or_the_code_calls_it_once(host):
    def bad():
        raise ConnectionError

    for effect, logged in [("pure", "once"), ("once", "pure")]:
        event = run_once(make(effect, bad), host, effect=logged).only
        assert isinstance(event, ToolFailedUncertain)


def test_a_tool_without_a_timeout_has_that_of_the_agent():
    a_tool = make("pure", lambda: 1)
    assert timeout_ms(a_tool, LIMITS) == 120_000
    assert timeout_ms(replace(a_tool, timeout_ms=5), LIMITS) == 5
