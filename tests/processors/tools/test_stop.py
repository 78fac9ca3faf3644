"""Abort and deadline: what can be ended is ended, and the outcome says what is known."""

import asyncio
import threading
from dataclasses import replace

import pytest

from foldlog.processors.tools.call import run, timeout_ms
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.tools.tool import ToolCancelled, ToolFailed
from foldlog.schemas.events import ToolFailedUncertain, ToolResult
from foldlog.tests.processors.tools.tool_bench import (
    EFFECTS,
    LIMITS,
    Told,
    claim_of,
    make,
    make_host,
    run_once,
)


@pytest.fixture
def host(tmp_path):
    return make_host(tmp_path)


def stopped(a_tool, host, begun, **changes):
    """Begin, abort once the tool says that it runs, and return what was told and the late task."""

    async def main():
        told, stop = Told(), Stop()
        claim = claim_of(a_tool, **changes)
        running = asyncio.create_task(run(claim, a_tool, b"{}", told, stop, host))
        await asyncio.to_thread(begun.wait, 20)
        stop.request("cancel c-1")
        return told, await running

    return asyncio.run(main())


@pytest.mark.parametrize("effect", EFFECTS)
def test_S2_8_constraint_3_an_abort_ends_a_task_that_does_not_look(host, effect):
    begun, ended = threading.Event(), []

    async def hangs():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    told, late = stopped(make(effect, hangs), host, begun)
    assert ended and late is None
    if effect == "once":
        assert isinstance(told.only, ToolFailedUncertain) and "cancel c-1" in told.only.reason
    else:
        assert told.only.outcome == "cancelled" and "cancel c-1" in told.text


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("effect", EFFECTS)
def test_S2_8_a_tool_that_ends_itself_on_abort_says_what_happened(host, effect, is_async):
    begun = threading.Event()

    async def looks_async(ctx):
        begun.set()
        why = await ctx.aborted
        raise ToolCancelled(f"stopped before the payment: {why}")

    def looks_sync(ctx):
        assert not ctx.aborted.wait_blocking(0)
        begun.set()
        assert ctx.aborted.wait_blocking() and ctx.aborted
        raise ToolCancelled(f"stopped before the payment: {ctx.aborted.why}")

    told, late = stopped(make(effect, looks_async if is_async else looks_sync), host, begun)
    assert late is None
    assert told.only.outcome == "cancelled"
    assert told.text == "stopped before the payment: cancel c-1"


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_tool_that_returns_in_spite_of_the_abort_is_ok(host, effect):
    begun = threading.Event()

    async def finishes(ctx):
        begun.set()
        await ctx.aborted
        return "paid"

    told, _ = stopped(make(effect, finishes), host, begun)
    assert (told.only.outcome, told.text) == ("ok", "paid")


@pytest.mark.parametrize("effect", EFFECTS)
def test_constraint_3_a_thread_that_ignores_the_abort_runs_on_and_does_not_hold_the_turn(
    host, effect
):
    """The limit that the README names: no thread can be killed."""
    begun, release, acted = threading.Event(), threading.Event(), threading.Event()

    def ignores(ctx):
        begun.set()
        release.wait(20)
        acted.set()

    async def main():
        told, stop = Told(), Stop()
        a_tool = make(effect, ignores)
        running = asyncio.create_task(run(claim_of(a_tool), a_tool, b"{}", told, stop, host))
        await asyncio.to_thread(begun.wait)
        stop.request("cancel c-1")
        late = await running
        assert late is not None and not acted.is_set(), "the outcome did not wait for it"
        (first,) = told.events
        release.set()
        await late
        return first

    first = asyncio.run(main())
    assert acted.is_set(), "it acted after the abort"
    doubtful = isinstance(first, ToolFailedUncertain)
    assert doubtful if effect == "once" else first.outcome == "cancelled"


@pytest.mark.parametrize("effect", EFFECTS)
def test_S2_8_the_deadline_of_a_task(host, effect):
    async def hangs():
        await asyncio.Event().wait()

    event = run_once(make(effect, hangs, timeout_s=0.02), host).only
    if effect == "once":
        assert isinstance(event, ToolFailedUncertain)
        assert "did not end within 0.02 s" in event.reason
    else:
        assert event.outcome == "error"
        assert "did not end within 0.02 s" in event.content.inline.decode()


@pytest.mark.parametrize("late_end", ["return", "fail", "raise"])
@pytest.mark.parametrize("effect", EFFECTS)
def test_F20_a_thread_that_ends_after_its_deadline_still_tells_the_truth(host, effect, late_end):
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
        told = Told()
        late = await run(claim_of(a_tool), a_tool, b"{}", told, Stop(), host)
        assert late is not None and len(told.events) == 1, "the outcome did not wait for it"
        release.set()
        await late
        return told.events

    first, *rest = asyncio.run(main())
    if effect != "once":
        assert first.outcome == "error" and rest == [], "one outcome, and no doubt to resolve"
        return
    assert isinstance(first, ToolFailedUncertain)
    if late_end == "raise":
        assert rest == []
        return
    (truth,) = rest
    expected = {"return": ("ok", b"paid in the end"), "fail": ("error", b"refused in the end")}
    assert (truth.outcome, truth.content.inline) == expected[late_end]
    assert truth.attempt == first.attempt == 1


def test_F20_a_task_that_swallows_its_cancellation_does_not_hold_the_turn(host):
    async def main():
        told, release = Told(), asyncio.Event()

        async def stubborn():
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            return "at last"

        a_tool = make("once", stubborn, timeout_s=0.02)
        late = await run(claim_of(a_tool), a_tool, b"{}", told, Stop(), host)
        assert isinstance(told.only, ToolFailedUncertain)
        release.set()
        await late
        return told.events[1]

    truth = asyncio.run(main())
    assert isinstance(truth, ToolResult) and truth.content.inline == b"at last"


def test_a_worker_that_goes_still_reports(host):
    async def hangs():
        await asyncio.Event().wait()

    a_tool = make("once", hangs)

    async def main():
        told = Told()
        running = asyncio.create_task(run(claim_of(a_tool), a_tool, b"{}", told, Stop(), host))
        while not [t for t in asyncio.all_tasks() if t.get_name() == "tool s1 2.1.0"]:
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return told

    assert "the worker is stopping" in asyncio.run(main()).only.reason


def test_S2_8_the_stricter_of_log_and_code_decides_what_once_means(host):
    def bad():
        raise ConnectionError

    for effect, logged in [("pure", "once"), ("once", "pure")]:
        event = run_once(make(effect, bad), host, effect=logged).only
        assert isinstance(event, ToolFailedUncertain)


def test_the_time_of_a_tool_is_its_own_or_the_agents():
    a_tool = make("pure", lambda: 1)
    assert timeout_ms(a_tool, LIMITS) == 120_000
    assert timeout_ms(replace(a_tool, timeout_ms=5), LIMITS) == 5
