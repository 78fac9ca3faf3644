"""What happened to a call: the side log is asked first, then the reconciler; the call is in doubt
if neither knows (S2.8)."""

import asyncio
from dataclasses import replace

import pytest

from foldlog.processors.tools.call import reconcile
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.tools.tool import DidNotHappen, Happened, ToolFailed, tool
from foldlog.schemas.events import ToolFailedUncertain
from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.tests.processors.tools.tool_bench import RecordingSink, claim_of, make, run_once

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
    assert runs == [1, 1, 1], "other calls have results of their own"


def test_S2_8_a_tool_may_record_its_result_before_it_returns(host):
    def deploy(ctx) -> str:
        if not ctx.side_log.has_result:
            ctx.side_log.record("done by attempt 1")
            raise ConnectionError("lost after the effect")
        raise AssertionError("it ran although its result is known")

    a_tool = make("idempotent", deploy)
    assert run_once(a_tool, host).only.outcome == "error"
    assert run_once(a_tool, host, attempt=2).text == "done by attempt 1"


@pytest.mark.parametrize("effect", ["pure", "once"])
def test_only_idempotent_tools_return_an_earlier_result(host, effect):
    runs = []

    def work() -> int:
        runs.append(1)
        return len(runs)

    a_tool = make(effect, work)
    assert [run_once(a_tool, host).text for _ in range(2)] == ["1", "2"]


# --- reconciling ---


def reconciled(a_tool, host, args=b"{}", stop=None, early=False, **changes):
    async def main():
        sink, claim = RecordingSink(), claim_of(a_tool, args, **changes)
        await reconcile(claim, a_tool, args, sink, stop or Stop(), host, early=early)
        return sink

    return asyncio.run(main())


def charge(ctx, cents: int) -> str:
    """Charge."""
    raise AssertionError("the tool ran again, only its reconciler may be called")


def charge_reconciled_by(answer):
    def reconciler(ctx, cents):
        assert (ctx.call_key, cents) == ("2.1.0", 5)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return tool(reconciler=reconciler)(charge)


ARGS = b'{"cents":5}'


def test_S2_8_a_call_that_happened_has_the_reconcilers_result(host):
    sink = reconciled(charge_reconciled_by(Happened({"id": "ch_1"})), host, ARGS)
    assert (sink.only.outcome, sink.only.via, sink.text) == ("ok", "reconciler", '{"id":"ch_1"}')


def test_S2_8_a_call_that_did_not_happen_is_not_run(host):
    sink = reconciled(charge_reconciled_by(DidNotHappen("no such charge")), host, ARGS)
    assert (sink.only.outcome, sink.only.via) == ("not_run", "reconciler")
    assert sink.text == "the call did not happen: no such charge"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "does not know"),
        (True, "does not know"),
        (ConnectionError("down"), "raised ConnectionError: down"),
        (ToolFailed("not found"), "raised ToolFailed"),
    ],
)
def test_S2_8_a_reconciler_that_does_not_know_leaves_the_call_in_doubt(host, answer, reason):
    event = reconciled(charge_reconciled_by(answer), host, ARGS).only
    assert isinstance(event, ToolFailedUncertain) and reason in event.reason
    assert event.code == "worker_died"


@pytest.mark.parametrize(
    "answer", [DidNotHappen("not yet"), None, True, ConnectionError("down"), ToolFailed("no")]
)
def test_S2_8_before_the_deadline_only_happened_counts(host, answer):
    """A request may still be under way."""
    assert reconciled(charge_reconciled_by(answer), host, ARGS, early=True).events == []
    sink = reconciled(charge_reconciled_by(Happened("ch_1")), host, ARGS, early=True)
    assert (sink.only.outcome, sink.only.via, sink.text) == ("ok", "reconciler", "ch_1")


def test_S2_8_before_the_deadline_a_result_in_the_side_log_counts(host):
    host.side_log.of("s1", "2.1.0").record({"id": "ch_2"})
    sink = reconciled(charge_reconciled_by(DidNotHappen()), host, ARGS, early=True)
    assert (sink.only.outcome, sink.text) == ("ok", '{"id":"ch_2"}')


def test_S2_8_without_a_reconciler_the_call_stays_in_doubt(host):
    event = reconciled(tool(charge), host, ARGS).only
    assert isinstance(event, ToolFailedUncertain) and "its worker died" in event.reason


def test_S2_8_the_side_log_is_read_before_the_reconciler_is_called(host):
    host.side_log.of("s1", "2.1.0").record({"id": "ch_2"})
    sink = reconciled(charge_reconciled_by(DidNotHappen()), host, ARGS)
    assert (sink.only.outcome, sink.text) == ("ok", '{"id":"ch_2"}')


def test_S2_8_a_reconciler_has_a_deadline_and_can_be_stopped(host):
    async def hangs(ctx, cents):
        await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_S)

    a_tool = tool(reconciler=hangs)(charge)
    event = reconciled(a_tool, host, ARGS, timeout_ms=20).only
    assert isinstance(event, ToolFailedUncertain) and "within 0.02 s" in event.reason
    stop = Stop()
    stop.request("cancel c-1")
    event = reconciled(a_tool, host, ARGS, stop=stop).only
    assert isinstance(event, ToolFailedUncertain) and "cancel c-1" in event.reason
