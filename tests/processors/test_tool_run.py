"""One run of a tool: exactly one outcome, and it says no more than is known."""

import asyncio
import json
import threading
from dataclasses import replace
from hashlib import sha256

import pytest

from foldlog.processors.agent import Agent
from foldlog.processors.effects.side_log import SideLogStore
from foldlog.processors.effects.sink import Stop
from foldlog.processors.effects.tools import (
    ToolClaim,
    ToolHost,
    gave_up,
    not_run,
    reconcile,
    run,
    timeout_ms,
)
from foldlog.processors.limits import Limits
from foldlog.processors.tool import (
    DidNotHappen,
    Happened,
    ToolCancelled,
    ToolFailed,
    tool,
)
from foldlog.producers.blobs import BlobStore
from foldlog.schemas import codec
from foldlog.schemas.events import ToolFailedUncertain, ToolResult
from foldlog.schemas.parts import Trigger

EFFECTS = ["pure", "idempotent", "once"]
# A short grace: what can't be stopped is given up after 0.3 + 0.3 of it.
LIMITS = Limits(grace_ms=600)


class Told:
    """A sink that keeps what it is told, as the bytes that would be produced."""

    def __init__(self):
        self.events = []
        self.changed = asyncio.Event()

    async def outcome(self, session_id, event):
        assert session_id == "s1"
        self.events.append(codec.decode(codec.encode(event)))
        self.changed.set()

    @property
    def only(self):
        assert len(self.events) == 1, self.events
        return self.events[0]

    @property
    def text(self):
        return self.only.content.inline.decode()


@pytest.fixture
def host(tmp_path):
    return ToolHost(
        limits=LIMITS,
        blobs=BlobStore(tmp_path / "blobs"),
        side_log=SideLogStore(tmp_path / "side_log"),
    )


def claim_of(a_tool, args=b"{}", **changes):
    fields = {
        "session_id": "s1",
        "turn": 2,
        "step": 1,
        "index": 0,
        "attempt": 1,
        "name": a_tool.name,
        "effect": a_tool.effect,
        "approval": a_tool.approval,
        "args_sha256": sha256(args).hexdigest(),
        "timeout_ms": a_tool.timeout_ms or 60_000,
    }
    return ToolClaim(**{**fields, **changes})


def run_once(a_tool, host, args=b"{}", stop=None, **changes):
    """Run to the end, late truth included; returns the sink."""

    async def main():
        told = Told()
        late = await run(
            claim_of(a_tool, args, **changes), a_tool, args, told, stop or Stop(), host
        )
        if late is not None:
            await late
        return told

    return asyncio.run(main())


def make(effect, function, **options):
    function.__doc__ = function.__doc__ or "Doc."
    return tool(effect=effect, name="t", **options)(function)


# --- a tool that ends by itself ---


@pytest.mark.parametrize("effect", EFFECTS)
def test_what_a_tool_returns_is_an_ok_outcome(host, effect):
    async def good(ctx, a: int, b: str = "x") -> dict:
        return {"b": b, "a": a, "call": ctx.call_key, "attempt": ctx.attempt}

    told = run_once(make(effect, good), host, b'{"a":1}')
    assert told.text == '{"a":1,"attempt":1,"b":"x","call":"2.1.0"}'
    event = told.only
    assert (event.outcome, event.via, event.left_out) == ("ok", "tool", 0)
    assert (event.turn, event.step, event.index, event.attempt) == (2, 1, 0, 1)
    assert event.bytes == len(told.text) and event.tokens > 0


@pytest.mark.parametrize("effect", EFFECTS)
def test_S2_8_a_tool_that_says_it_failed_is_an_error_whatever_its_effect(host, effect):
    def bad():
        raise ToolFailed("the card was refused")

    told = run_once(make(effect, bad), host)
    assert (told.only.outcome, told.text) == ("error", "the card was refused")


@pytest.mark.parametrize("raised", [ConnectionError("reset"), SystemExit(3), StopIteration()])
@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("effect", EFFECTS)
def test_S2_8_any_other_exception_of_a_once_tool_is_doubt(host, effect, is_async, raised):
    async def bad_async():
        raise raised

    def bad_sync():
        raise raised

    event = run_once(make(effect, bad_async if is_async else bad_sync), host).only
    if effect == "once":
        assert isinstance(event, ToolFailedUncertain)
        assert "whether it had its effect is not known" in event.reason
    else:
        assert event.outcome == "error"
        assert type(raised).__name__ in event.content.inline.decode()


def test_a_sync_tool_runs_in_a_thread_of_its_own(host):
    def where() -> str:
        return threading.current_thread().name

    assert run_once(make("pure", where), host).text == "tool 2.1.0"


def test_two_sync_tools_run_at_the_same_time(host):
    both = threading.Barrier(2, timeout=20)

    def meet() -> int:
        return both.wait() >= 0

    a_tool = make("pure", meet)

    async def main():
        told = [Told(), Told()]
        await asyncio.gather(*(run(claim_of(a_tool), a_tool, b"{}", t, Stop(), host) for t in told))
        return [t.text for t in told]

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


# --- what a tool asks for ---


def test_S0_2_triggers_and_reminders_travel_with_the_result(host):
    def asks(ctx) -> str:
        ctx.remind("say hello")
        ctx.lock_project("p-1")
        ctx.trigger("start_build")
        return "ok"

    event = run_once(make("once", asks), host).only
    assert event.reminders == ("say hello",)
    assert event.triggers == (Trigger(project_id="p-1"), Trigger(trigger="start_build"))


def test_a_failed_tool_keeps_its_reminders_and_loses_its_triggers(host):
    def asks(ctx) -> str:
        ctx.remind("say hello")
        ctx.trigger("start_build")
        raise ToolFailed("no")

    event = run_once(make("once", asks), host).only
    assert event.reminders == ("say hello",) and event.triggers == ()


@pytest.mark.parametrize(
    "ask",
    [
        lambda ctx: ctx.remind(""),
        lambda ctx: ctx.remind("x" * 5_000),
        lambda ctx: ctx.trigger("no spaces"),
        lambda ctx: ctx.lock_project("a/b"),
        lambda ctx: [ctx.trigger("x") for _ in range(17)],
        lambda ctx: [ctx.remind("x") for _ in range(17)],
    ],
)
def test_what_a_tool_may_ask_for_is_bounded(host, ask):
    def asks(ctx) -> str:
        with pytest.raises(ValueError):
            ask(ctx)
        return "refused"

    assert run_once(make("pure", asks), host).text == "refused"


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
    ("args", "changes", "says"),
    [
        (b'{"a":"x"}', {}, "its arguments are wrong: a: Input should be a valid integer"),
        (b"{", {}, "no JSON"),
        (
            b'{"a":1}',
            {"args_sha256": sha256(b'{"a":2}').hexdigest()},
            "not those that were decided",
        ),
        (b"{}", {"approval": "deny"}, "it is denied"),
        (b"{}", {"name": "other"}, "the call is of other"),
    ],
)
def test_S1_D_a_call_that_may_not_run_does_not(host, args, changes, says):
    told = run_once(NEVER, host, args, **changes)
    assert told.only.outcome == "not_run" and says in told.text


def test_S1_D_an_abort_before_the_begin_means_not_run(host):
    stop = Stop()
    stop.request("cancel c-1")
    told = run_once(NEVER, host, stop=stop)
    assert told.only.outcome == "not_run" and "cancel c-1" in told.text


def test_not_run_is_not_said_of_a_call_whose_earlier_attempt_may_have_run(host):
    told = run_once(NEVER, host, approval="deny", attempt=2)
    assert told.only.outcome == "error" and "earlier attempt may have run" in told.text
    assert not_run(claim_of(NEVER), "too late").outcome == "not_run"
    assert gave_up(claim_of(NEVER, attempt=3), "it crashes").outcome == "error"


# --- abort and deadline ---


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
        begun.set()
        assert not ctx.aborted.wait_blocking(0)
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
    assert timeout_ms(NEVER, LIMITS) == 120_000
    assert timeout_ms(replace(NEVER, timeout_ms=5), LIMITS) == 5


# --- the side log ---


def test_S2_8_an_idempotent_call_that_ran_before_returns_the_earlier_result(host):
    runs = []

    def deploy(ctx, version: str) -> dict:
        runs.append(ctx.attempt)
        ctx.trigger("publish")
        ctx.remind("deployed")
        return {"deployed": version}

    a_tool, args = make("idempotent", deploy), b'{"version":"v1"}'
    first = run_once(a_tool, host, args).only
    again = run_once(a_tool, host, args, attempt=2).only
    assert runs == [1]
    assert replace(first, attempt=2) == again
    run_once(a_tool, host, args, index=1)
    run_once(a_tool, host, args, turn=3)
    assert runs == [1, 1, 1], "other calls have their own"


def test_S2_8_a_tool_may_record_before_it_is_through(host):
    def deploy(ctx) -> str:
        if not ctx.side_log.has_result:
            ctx.side_log.record("done by attempt 1")
            raise ConnectionError("lost after the effect")
        raise AssertionError("asked although the result is known")

    a_tool = make("idempotent", deploy)
    assert run_once(a_tool, host).only.outcome == "error"
    assert run_once(a_tool, host, attempt=2).text == "done by attempt 1"


@pytest.mark.parametrize("effect", ["pure", "once"])
def test_only_idempotent_tools_repeat_an_earlier_result(host, effect):
    runs = []

    def work() -> int:
        runs.append(1)
        return len(runs)

    a_tool = make(effect, work)
    assert [run_once(a_tool, host).text for _ in range(2)] == ["1", "2"]


# --- reconciling ---


def reconciled(a_tool, host, args=b"{}", stop=None, **changes):
    async def main():
        told = Told()
        await reconcile(claim_of(a_tool, args, **changes), a_tool, args, told, stop or Stop(), host)
        return told

    return asyncio.run(main())


def charge(ctx, cents: int) -> str:
    """Charge."""
    raise AssertionError("a reconciler is asked, the tool is never run again")


def asked(answer):
    def reconciler(ctx, cents):
        assert (ctx.call_key, cents) == ("2.1.0", 5)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return tool(reconciler=reconciler)(charge)


ARGS = b'{"cents":5}'


def test_S2_8_a_reconciler_that_knows_it_happened(host):
    told = reconciled(asked(Happened({"id": "ch_1"})), host, ARGS)
    assert (told.only.outcome, told.only.via, told.text) == ("ok", "reconciler", '{"id":"ch_1"}')


def test_S2_8_a_reconciler_that_knows_it_did_not_happen(host):
    told = reconciled(asked(DidNotHappen("no such charge")), host, ARGS)
    assert (told.only.outcome, told.only.via) == ("not_run", "reconciler")
    assert told.text == "the call did not happen: no such charge"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "can't say"),
        (True, "can't say"),
        (ConnectionError("down"), "raised ConnectionError: down"),
        (ToolFailed("not found"), "raised ToolFailed"),
    ],
)
def test_S2_8_a_reconciler_that_does_not_know_leaves_the_doubt(host, answer, says):
    event = reconciled(asked(answer), host, ARGS).only
    assert isinstance(event, ToolFailedUncertain) and says in event.reason


def test_S2_8_without_a_reconciler_nobody_knows(host):
    event = reconciled(tool(charge), host, ARGS).only
    assert isinstance(event, ToolFailedUncertain) and "worker is gone" in event.reason


def test_S2_8_the_side_log_is_asked_before_the_reconciler(host):
    host.side_log.of("s1", "2.1.0").record({"id": "ch_2"})
    told = reconciled(asked(DidNotHappen()), host, ARGS)
    assert (told.only.outcome, told.text) == ("ok", '{"id":"ch_2"}')


def test_S2_8_a_reconciler_has_a_deadline_and_can_be_stopped(host):
    async def hangs(ctx, cents):
        await asyncio.Event().wait()

    a_tool = tool(reconciler=hangs)(charge)
    event = reconciled(a_tool, host, ARGS, timeout_ms=20).only
    assert isinstance(event, ToolFailedUncertain) and "within 0.02 s" in event.reason
    stop = Stop()
    stop.request("cancel c-1")
    event = reconciled(a_tool, host, ARGS, stop=stop).only
    assert isinstance(event, ToolFailedUncertain) and "cancel c-1" in event.reason


def test_a_host_is_made_of_an_agent(tmp_path, host):
    agent = Agent(name="a", model="m", tools=[NEVER], limits=LIMITS, workdir=tmp_path)
    made = ToolHost.of(agent, host.blobs, host.side_log)
    assert (made.limits, made.workdir, made.results_readable) == (LIMITS, tmp_path, False)
    seen = replace(NEVER, function=lambda ctx, a=0: str(ctx.workdir))
    assert run_once(seen, made).text == str(tmp_path)
    assert run_once(replace(seen, workdir=tmp_path / "own"), made).text == str(tmp_path / "own")


def test_json_of_a_result_is_stable(host):
    def odd() -> dict:
        return {"b": [1, 2.5, None, True], "a": "ü"}

    told = run_once(make("pure", odd), host)
    assert told.text == '{"a":"ü","b":[1,2.5,null,true]}' == told.text.strip()
    assert json.loads(told.text) == odd()
