"""Symptom 3: "after ESC it takes tens of seconds until it really stops".

The cause was a tool or a model call that did not receive the abort signal. In foldlog, a cancel
closes the turn: WAKE at once owes an abort to every running effect, nothing new starts, and the
turn ends after the grace period even if an effect ignores the abort. Effects stop even if the other
end of a connection is silent.
"""

import asyncio

import pytest

from foldlog.local.messages_api import Reply, ScriptedServer, text
from foldlog.processors.effects.models.call import generate, make_client
from foldlog.processors.tools.call import run
from foldlog.processors.tools.output_sink import Stop
from foldlog.schemas import events as ev
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import History, with_calls
from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.tests.processors.effects.models.attempts import Collected
from foldlog.tests.processors.tools.tool_bench import RecordingSink, claim_of, make, make_host
from foldlog.tests.symptoms.by_model import claim_of as gen_claim_of, opened

STARTS = {"LLM_CALLED", "GEN_START", "GEN_RESUMED", "TOOL_INVOKED", "TOOL_STARTED"}


def owed_events(history: History) -> set[str]:
    return {o.owed for o in history.owed()}


@pytest.mark.parametrize("uses", [1, 3])
def test_S1_symptom_3_constraint_3_every_running_tool_is_aborted_at_once(uses):
    history = with_calls(*(Use("look", "{}", str(n)) for n in range(uses)))
    history.cancel()
    aborts = [o.subject for o in history.owed() if o.owed == "abort"]
    assert aborts == [(1, 1, n) for n in range(uses)]
    assert not owed_events(history) & STARTS


def test_S1_symptom_3_constraint_3_a_running_model_call_is_aborted_at_once():
    history = opened()
    history.say("go")
    history.work()
    history.cancel()
    assert [(o.owed, o.role) for o in history.owed() if o.owed == "abort"] == [("abort", "models")]
    assert not owed_events(history) & STARTS


@pytest.mark.parametrize("running", ["tool", "model"])
def test_S1_symptom_3_the_turn_ends_after_the_grace_period_if_the_abort_is_ignored(running):
    history = with_calls(Use("look", "{}", "a"))
    if running == "model":
        history.result("1.1.0", "seen")
        history.work()
    history.cancel()
    (due,) = {o.due for o in history.owed() if o.owed == "wait" and o.lane == "C"}
    assert due - history.at <= history.agent.limits.grace_ms
    assert "TURN_ENDED" not in owed_events(history)
    history.later(due - history.at)
    assert "TURN_ENDED" in owed_events(history)
    history.discharge("C2")
    assert not history.turn.open and history.end_reason() == "cancelled"
    assert not owed_events(history) & STARTS


def test_S1_symptom_3_an_abort_ends_a_stalled_model_call_at_once():
    """The server stalls in the middle of the response, so only the abort can end the attempt."""
    silent = Reply([text("a b c d e f")], chunk=2, gate="never", gate_after=4)
    with ScriptedServer(silent) as server:
        history = opened()
        history.say("go")
        history.work()
        sink, stop = Collected(), Stop()

        async def main() -> None:
            async with make_client("k", server.base_url) as client:
                request, limits = history.request_bytes(), history.agent.limits
                work = asyncio.create_task(
                    generate(gen_claim_of(history), request, sink, stop, client, limits=limits)
                )
                await asyncio.to_thread(server.wait_count, "waiting")
                assert history.cancel().accepted
                stop.request("the turn is ending")
                await work
                await asyncio.to_thread(server.wait_count, "client_gone")

        asyncio.run(main())
        (outcome,) = sink.outcomes
    assert isinstance(outcome, ev.GenStopped)
    assert history.append(outcome, "models").accepted
    history.work()
    assert not history.turn.open, "nothing runs, so there is no grace period"


@pytest.mark.parametrize("effect", ["pure", "once"])
def test_S1_symptom_3_an_abort_ends_a_tool_that_ignores_the_signal(tmp_path, effect):
    async def main() -> RecordingSink:
        started, sink, stop = asyncio.Event(), RecordingSink(), Stop()

        async def hang() -> str:
            started.set()
            await asyncio.sleep(2 * PATIENCE_S)  # longer than the test waits for the abort
            return ""

        tool = make(effect, hang)
        host = make_host(tmp_path)
        work = asyncio.create_task(run(claim_of(tool), tool, b"{}", sink, stop, host))
        await asyncio.wait_for(started.wait(), PATIENCE_S)
        stop.request("the turn is ending")
        done, _ = await asyncio.wait({work}, timeout=PATIENCE_S)
        assert done and work.result() is None
        return sink

    outcome = asyncio.run(main()).only
    assert isinstance(outcome, ev.ToolResult if effect == "pure" else ev.ToolFailedUncertain)
