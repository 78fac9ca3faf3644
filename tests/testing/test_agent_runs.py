"""The test kit for users (`foldlog.testing`): an agent's run in memory, with crashes, a clock and a
script."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from textwrap import dedent

import pytest

from foldlog import Agent, DidNotHappen, Happened, ToolContext, tool
from foldlog.client.aio import aconnect
from foldlog.client.events import ApprovalAsked, InDoubt, Token, ToolFinished
from foldlog.client.session import ReplyEnded
from foldlog.log.errors import Refused
from foldlog.testing import (
    RunWaits,
    ScriptExhausted,
    calls,
    check_tool,
    fails,
    from_session,
    says,
    thinks,
)
from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.tests.processors.tools import isolated_tools
from foldlog.tests.processors.tools.test_children import wait_dead

refunds: list[str] = []


@tool(effect="once", approval="ask")
def refund(ctx: ToolContext, order: int) -> str:
    """Refund an order."""
    refunds.append(ctx.idempotency_key)
    return f"refunded {order}"


@tool(effect="pure")
def look_up(order: int) -> str:
    """Find an order."""
    return f"order {order}: two books"


shop = Agent(name="shop", model="claude-opus-5-5", system="Be brief.", tools=(refund, look_up))


@pytest.fixture(autouse=True)
def no_refunds():
    refunds.clear()


async def test_the_example_of_the_documentation(foldlog_agent):
    run = foldlog_agent(shop, script=[calls("refund", order=17), says("done")])
    ask = await run.send("refund 17").until(ApprovalAsked)
    await run.approve(ask)
    await run.crash()
    assert (await run.result()).text == "done"
    assert refunds == ["test/1.1.0"]


async def test_an_isolated_tool_runs_in_another_process(foldlog_agent):
    agent = replace(shop, tools=(isolated_tools.where_am_i,))
    place = {"street": "Elm", "number": 3}
    script = [calls("where_am_i", place=place), says("done")]
    run = foldlog_agent(agent, script=script, patience_s=PATIENCE_S)
    events = [event async for event in run.send("where?")]
    (found,) = [e for e in events if isinstance(e, ToolFinished)]
    value = json.loads(found.text)
    assert value["place"] == place and value["pid"] != os.getpid()


async def test_an_isolated_tool_that_is_rare_gets_its_arguments(foldlog_agent):
    """The defect: its process did not know the envelope in which use_tool calls it."""
    agent = replace(shop, tools=(isolated_tools.look_rarely,))
    look = calls("use_tool", name="look_rarely", arguments={"name": "ada"})
    run = foldlog_agent(agent, script=[look, says("done")], patience_s=PATIENCE_S)
    events = [event async for event in run.send("who?")]
    (found,) = [e for e in events if isinstance(e, ToolFinished)]
    assert found.text == "ada"


async def test_S1_constraint_3_an_isolated_tool_that_hangs_ends(foldlog_agent, tmp_path):
    pids = tmp_path / "pids"
    hanging = replace(isolated_tools.hang_pure, timeout_ms=3_000)
    hang = calls("hang_pure", how="loop", pids=str(pids))
    agent = replace(shop, tools=(hanging,))
    run = foldlog_agent(agent, script=[hang, says("done")], patience_s=PATIENCE_S)
    events = [event async for event in run.send("hang")]
    (found,) = [e for e in events if isinstance(e, ToolFinished)]
    assert "did not end within" in found.text
    if pids.exists():  # a busy machine needs 3 s to begin the function
        assert wait_dead([int(line) for line in pids.read_text().splitlines()])


async def test_every_part_of_a_run_can_be_inspected(foldlog_agent):
    asks = thinks("hm") + says("Let me see.") + calls("look_up", order=3)
    run = foldlog_agent(shop, script=[asks, "Two books."])
    events = [event async for event in run.send("what is in 3?")]
    assert "".join(e.text for e in events if isinstance(e, Token)) == "Let me see.Two books."
    (found,) = [e for e in events if isinstance(e, ToolFinished)]
    assert found.text == "order 3: two books"
    assert [request.step for request in run.requests()] == ["1.1", "1.2"]
    assert all(request.agrees for request in run.requests())
    assert run.request("1.2").json["messages"][-1]["role"] == "user"
    assert run.cost_usd > 0
    assert run.event_types().count("TOOL_RESULT") == 1
    assert str(run.state()).startswith("test (shop, tester) idle, turn 1, $0.")


@pytest.mark.parametrize("event", ["LLM_CALLED", "GEN_START", "GEN_CHUNK", "GEN_COMPLETE",
                                   "TOOL_INVOKED", "TURN_ENDED"])
async def test_S2_1_a_crash_after_any_record_changes_nothing_for_the_user(foldlog_agent, event):
    run = foldlog_agent(shop, script=[calls("look_up", order=3), says("Two books.")])
    run.crash_after(event)
    assert (await run.send("what is in 3?")).text == "Two books."
    assert run.crashes == 1


@pytest.mark.parametrize(
    ("answers", "outcome", "asked"),
    [
        ([Happened("paid")], "ok", 1),
        ([DidNotHappen(), None, Happened("paid")], "ok", 3),
        ([DidNotHappen()] * 4 + [Happened("paid")], "ok", 5),
        ([DidNotHappen()], "not_run", 5),
        ([None] * 4 + [DidNotHappen()], "not_run", 5),
    ],
)
async def test_S2_8_only_happened_counts_until_the_deadline(foldlog_agent, answers, outcome, asked):
    """Four questions come before the deadline and the margin, the fifth one after them."""
    questions = []

    def was_it_paid(ctx: ToolContext) -> Happened | DidNotHappen | None:
        questions.append(ctx.idempotency_key)
        return answers[min(len(questions), len(answers)) - 1]

    @tool(effect="once", reconciler=was_it_paid)
    def pay() -> str:
        """Pay."""
        raise AssertionError("it runs only if the worker lives")

    agent = Agent(name="bank", model="claude-opus-5-5", tools=(pay,))
    run = foldlog_agent(agent, script=[calls("pay"), says("I see.")])
    run.crash_after("TOOL_STARTED")
    events = [event async for event in run.send("pay")]
    assert [e.outcome for e in events if isinstance(e, ToolFinished)] == [outcome]
    assert questions == ["test/1.1.0"] * asked


async def test_S2_a_crash_after_the_claim_of_a_once_tool_is_in_doubt(foldlog_agent):
    run = foldlog_agent(shop, script=[calls("refund", order=17), says("I see.")])
    run.crash_after("TOOL_STARTED")
    reply = run.send("refund 17")
    await run.approve(await reply.until(ApprovalAsked))
    doubt = await reply.until(InDoubt)
    assert refunds == []
    with pytest.raises(RunWaits, match="waits for a person.*run.resolve"):
        await reply
    await run.resolve(doubt, did_not_happen=True)
    assert (await reply).text == "I see." and refunds == []


async def test_a_run_that_waits_for_a_person_reports_it(foldlog_agent):
    run = foldlog_agent(shop, script=[calls("refund", order=17)])
    with pytest.raises(RunWaits, match="waits for an approval.*run.approve"):
        await run.send("refund 17")


async def test_an_approval_expires_when_the_clock_moves(foldlog_agent):
    run = foldlog_agent(shop, script=[calls("refund", order=17), says("Too late.")])
    reply = run.send("refund 17")
    await reply.until(ApprovalAsked)
    await run.advance(365 * 86_400)
    assert (await reply).text == "Too late." and refunds == []


async def test_a_denied_call_does_not_run(foldlog_agent):
    run = foldlog_agent(shop, script=[calls("refund", order=17), says("As you wish.")])
    reply = run.send("refund 17")
    await run.deny(await reply.until(ApprovalAsked))
    assert (await reply).text == "As you wish." and refunds == []


async def test_a_failed_model_call_is_retried_without_waiting(foldlog_agent):
    run = foldlog_agent(shop, script=[fails(), fails("rate_limit"), says("four")])
    assert (await run.send("2+2?")).text == "four"
    assert run.event_types().count("GEN_FAILED") == 2


async def test_bad_input_a_script_that_runs_out_names_the_step(foldlog_agent):
    run = foldlog_agent(shop, script=[calls("look_up", order=3)])
    with pytest.raises(ScriptExhausted, match=r"has 1 answer, and .* one more \(step 1\.2\)"):
        await run.send("what is in 3?")


@pytest.mark.parametrize("script", ["done", says("done"), [3], [None], 5])
async def test_bad_input_a_script_that_is_no_list_of_answers_is_refused(foldlog_agent, script):
    with pytest.raises(Refused, match=r"script=.*(Write script=\[|An answer is a text)"):
        foldlog_agent(shop, script=script)


def test_bad_input_an_unknown_failure_is_refused():
    with pytest.raises(Refused, match="'overload' is not a failure.*overloaded"):
        fails("overload")


async def test_two_replies_may_be_awaited_at_once(foldlog_agent):
    run = foldlog_agent(shop, script=[says("Let me see.") + calls("look_up", order=3), "1", "2"])
    first = run.send("one")
    await first.until(Token)
    answers = await asyncio.gather(first.answer(), run.send("two").answer())
    assert [answer.text for answer in answers] == ["1", "2"]


def run_python(directory, *arguments):
    """Returns what a Python process prints in a directory."""
    command = [sys.executable, *arguments]
    ran = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=100)
    return ran.stdout + ran.stderr


def test_a_test_that_ran_less_than_it_asked_for_fails(tmp_path):
    (tmp_path / "test_it.py").write_text(dedent("""
        import sys
        from foldlog import Agent, tool
        import asyncio
        from foldlog.testing import calls, check_tool
        agent = Agent(name="a", model="claude-opus-5-5")

        @tool(effect="once")
        async def sleep() -> str:
            "Sleep."
            await asyncio.sleep(3600)

        sleeper = Agent(name="s", model="claude-opus-5-5", tools=[sleep])

        @tool(effect="pure")
        def now() -> str:
            "The time."

        async def test_forgets_to_await_the_crash(foldlog_agent):
            run = foldlog_agent(agent)
            run.crash()
            forgotten = run.advance(5)

        async def test_forgets_the_crash_and_waits(foldlog_agent):
            run = foldlog_agent(sleeper, script=[calls("sleep")], patience_s=3600)
            reply = run.send("hi")
            run.crash()
            await reply

        def test_forgets_to_run_the_check():
            check_tool(now)

        async def test_never_crashes(foldlog_agent):
            run = foldlog_agent(agent, script=["hello"])
            run.crash_after("TOOL_STARTED")
            await run.send("hi")
            assert run.crashes == 0
            assert not {"anthropic", "httpx2"} & set(sys.modules), "they take longer than a test"

        def test_never_awaits(foldlog_agent):
            foldlog_agent(agent, script=["hello"]).send("hi")

        async def test_forgets_to_await_the_answer(foldlog_agent):
            foldlog_agent(agent, script=["hello"]).send("hi").answer()

        async def test_fails_before_its_crash(foldlog_agent):
            run = foldlog_agent(agent, script=["hello"])
            run.crash_after("TOOL_STARTED")
            assert run.send("hi") is None
    """))
    printed = run_python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py")
    assert "5 failed, 2 passed, 2 errors" in printed, f"each mistake counts once: {printed}"
    for call in ("run.crash", "run.advance", "check_tool", "reply.answer"):
        assert f"{call}(...) was not awaited, so it did nothing. Write `await {call}(" in printed
    assert "crash_after('TOOL_STARTED') did not crash the worker" in printed
    assert "the reply was not awaited. Write `await run.send(...)`" in printed


@pytest.mark.parametrize(("line", "printed"), [
    ("from foldlog.testing import check_tool, says, AgentRun; print(says('hi').blocks)", "'hi'"),
    ("import foldlog.testing.plugin", "needs pytest: pip install 'foldlog[testing]'"),
    ("from foldlog.testing import foldlog_agent", "a fixture of pytest, so it is not imported"),
])
def test_without_the_extra_only_the_fixture_is_missing(tmp_path, line, printed):
    without = "import sys; sys.modules['pytest'] = None; "
    assert printed in run_python(tmp_path, "-c", without + line)


async def test_a_recorded_session_is_a_script(foldlog_agent, tmp_path):
    asks = thinks("hm") + says("Let me see.") + calls("look_up", order=3)
    run = foldlog_agent(shop, script=[asks, "Two books."])
    await run.send("what is in 3?")
    file = run.export(tmp_path / "recorded.foldlog")
    again = foldlog_agent(shop, script=from_session(file))
    assert (await again.send("what is in 3?")).text == "Two books."
    assert again.requests() == run.requests()


async def test_until_an_event_that_never_comes_raises(foldlog_agent):
    run = foldlog_agent(shop, script=["four"])
    with pytest.raises(ReplyEnded, match="without ApprovalAsked: end_turn"):
        await run.send("2+2?").until(ApprovalAsked)


async def test_a_reply_that_ended_reports_the_call_that_failed(foldlog_agent):
    run = foldlog_agent(shop, script=[calls("refund", ordr=17).unchecked(), "done"])
    with pytest.raises(ReplyEnded, match=r"ApprovalAsked: .*refund \(1\.1\.0\) error: .*ordr"):
        await run.send("refund 17").until(ApprovalAsked)


async def test_bad_input_a_script_that_calls_an_unknown_tool_is_refused(foldlog_agent):
    with pytest.raises(Refused, match=r"answer 2 .* calls refnd, .*did you mean refund\? Their "):
        foldlog_agent(shop, script=["hello", calls("refnd", order=17)])


@pytest.mark.parametrize("call", [
    calls("refund", ordr=17),
    calls("refund", order="17"),
    calls("refund"),
    calls("look_rarely", name="ada"),
    calls("use_tool", name="look_rarely", arguments={"nme": "ada"}),
])
async def test_bad_input_a_script_with_a_call_that_the_agent_refuses_is_refused(
    foldlog_agent, call
):
    """The defect: a misspelled argument passed, as long as the test did not need the call."""
    agent = replace(shop, tools=(refund, isolated_tools.look_rarely))
    with pytest.raises(Refused, match=r"answer 2 .*wrongly: .*not run.*\.unchecked\(\)"):
        foldlog_agent(agent, script=["hello", says("I try.") + call])
    run = foldlog_agent(agent, script=[says("I try.") + call.unchecked(), "I cannot."])
    assert (await run.send("go")).text == "I cannot." and refunds == []


@tool(effect="pure")
def search(words: str) -> str:
    """Search."""
    raise ValueError("the index is empty")


@tool(effect="once")
def pay(euros: int) -> str:
    """Pay."""
    raise ValueError("the card is declined")


async def test_the_traceback_of_a_tool_is_logged_and_the_model_reads_its_error(
    foldlog_agent, caplog
):
    agent = replace(shop, tools=(search,))
    run = foldlog_agent(agent, script=[calls("search", words="x"), "I cannot."])
    assert (await run.send("find x")).text == "I cannot."
    assert 'raise ValueError("the index is empty")' in caplog.text
    (result,) = run.request("1.2").json["messages"][-1]["content"]
    assert result["is_error"] and "the index is empty" in result["content"]


async def test_a_once_tool_that_raises_is_in_doubt_for_the_reason_it_gave(foldlog_agent):
    run = foldlog_agent(replace(shop, tools=(pay,)), script=[calls("pay", euros=3)])
    declined = r"pay raised ValueError: the card is declined.*ToolFailed"
    with pytest.raises(RunWaits, match=declined) as waits:
        await run.send("pay")
    assert str(waits.value).count("the card is declined") == 1


async def test_a_tool_that_returns_after_its_deadline_still_resolves_its_doubt(foldlog_agent):
    gate = threading.Event()

    @tool(effect="once", timeout_s=0.05)
    def slow() -> str:
        """Take long."""
        gate.wait(PATIENCE_S)
        return "late"

    run = foldlog_agent(replace(shop, tools=(slow,)), script=[calls("slow"), "It is late."])
    reply = run.send("go")
    await reply.until(InDoubt)
    gate.set()
    async with asyncio.timeout(60):  # or the test would hang if the result is lost
        while not run.events("TOOL_RESULT"):
            await asyncio.sleep(0)
    assert (await reply).text == "It is late."


async def test_a_run_may_crash_again_and_again(foldlog_agent):
    run = foldlog_agent(shop, script=[calls("refund", order=17), says("done")])
    ask = await run.send("refund 17").until(ApprovalAsked)
    await run.crash()
    await run.crash()
    await run.approve(ask)
    run.crash_after("GEN_CHUNK")
    run.crash_after("TURN_ENDED")
    assert (await run.result()).text == "done"
    assert run.crashes == 4 and refunds == ["test/1.1.0"]


def packer(how, *, effect):
    """A tool that calls `how` with the number of its call, and the calls' beginnings and ends."""
    steps = []

    @tool(effect=effect)
    async def pack(order: int) -> str:
        """Pack an order."""
        steps.append("start")
        await how(steps.count("start"))
        steps.append("end")
        return "packed"

    return replace(shop, tools=(pack,)), steps


@pytest.mark.parametrize("effect", ["pure", "idempotent", "once"])
async def test_S2_a_crash_while_a_tool_runs_ends_it(foldlog_agent, effect):
    """The defect: the tool ran on to its end, and a second crash ended the next worker."""
    begun = asyncio.Event()

    async def hang_at_first(number):
        begun.set()
        if number == 1:
            await asyncio.sleep(3600)

    agent, steps = packer(hang_at_first, effect=effect)
    run = foldlog_agent(agent, script=[calls("pack", order=17), "I see."])
    reply = run.send("pack 17")
    async with asyncio.timeout(PATIENCE_S):
        answer = asyncio.ensure_future(reply.answer())
        await begun.wait()
        await run.crash()
        assert run.event_types()[-1] == "TOOL_STARTED" and steps == ["start"]
        if effect == "once":
            with pytest.raises(RunWaits, match="waits for a person: InDoubt pack"):
                await answer
            await run.resolve(run.state().doubts[0], did_not_happen=True)
            answer = asyncio.ensure_future(reply.answer())
        assert (await answer).text == "I see."
    assert steps == (["start"] if effect == "once" else ["start", "start", "end"])
    assert run.crashes == 1


async def test_a_cancelled_wait_for_an_answer_leaves_the_tool_running(foldlog_agent):
    """The defect: asyncio.wait_for never ended, or the tool was stopped."""
    begun, gate = asyncio.Event(), asyncio.Event()

    async def wait_for_gate(_):
        begun.set()
        await asyncio.wait_for(gate.wait(), PATIENCE_S)

    agent, steps = packer(wait_for_gate, effect="once")
    run = foldlog_agent(agent, script=[calls("pack", order=17), "Packed."])
    reply = run.send("pack 17")
    answer = asyncio.ensure_future(reply.answer())
    await asyncio.wait_for(begun.wait(), PATIENCE_S)
    answer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answer
    gate.set()
    assert (await reply).text == "Packed." and steps == ["start", "end"]


async def test_a_wait_for_a_tool_that_runs_long_names_the_tool(foldlog_agent):
    """The defect: a test that forgot the crash waited for the timeout of the tool, 120 s."""
    agent, _ = packer(lambda _: asyncio.sleep(3600), effect="once")
    run = foldlog_agent(agent, script=[calls("pack", order=17), "I see."], patience_s=0.05)
    reply = run.send("pack 17")
    long = r"pack \(1\.1\.0\) of session test .* 0\.05 s.*await run\.crash\(\).*patience_s="
    with pytest.raises(RunWaits, match=long):
        await reply
    with pytest.raises(RunWaits, match=long):
        async with run.working():
            await asyncio.sleep(3600)
    await run.crash()
    await run.resolve(await reply.until(InDoubt), did_not_happen=True)
    assert (await reply).text == "I see."


async def test_S2_a_crash_drops_the_result_of_a_tool_in_a_thread(foldlog_agent):
    begun, gate = threading.Event(), threading.Event()

    @tool(effect="once")
    def slow() -> str:
        """Take long."""
        begun.set()
        gate.wait(PATIENCE_S)
        return "done"

    run = foldlog_agent(replace(shop, tools=(slow,)), script=[calls("slow"), "I see."])
    reply = run.send("go")
    async with run.working():
        assert await asyncio.to_thread(begun.wait, PATIENCE_S)
        await run.crash()
    doubt = await reply.until(InDoubt)
    gate.set()
    assert run.left_running() == []
    await run.resolve(doubt, did_not_happen=True)
    assert (await reply).text == "I see." and run.crashes == 1
    assert "TOOL_RESULT" not in run.event_types()


async def test_two_runs_in_one_test_are_independent(foldlog_agent):
    one = foldlog_agent(shop, script=["one"])
    two = foldlog_agent(shop, script=["two"], user="eve")
    assert ((await one.send("hi")).text, (await two.send("hi")).text) == ("one", "two")
    assert two.state().user == "eve" and one.state().user == "tester"


@pytest.mark.parametrize("wrong", [(), (refund,), ("shop",)])
async def test_bad_input_a_value_that_is_not_an_agent_is_refused(foldlog_agent, wrong):
    with pytest.raises(Refused, match="agent"):
        foldlog_agent(*wrong)


async def test_bad_input_an_unknown_crash_event_and_a_missing_message_are_refused(foldlog_agent):
    run = foldlog_agent(shop, script=["hello"])
    with pytest.raises(Refused, match="did you mean TOOL_STARTED"):
        run.crash_after("TOOL_START")
    with pytest.raises(Refused, match="no event type; the types are .*TOOL_STARTED"):
        run.events("xyz")
    with pytest.raises(Refused, match="nothing was sent"):
        await run.result()
    with pytest.raises(Refused, match="event class"):
        await run.send("hi").until("Token")
    assert (await run.result()).text == "hello"


def test_check_tool_runs_an_idempotent_tool_twice_and_a_once_tool_never():
    count = 0

    @tool(effect="idempotent")
    def counts(step: int) -> str:
        """Count."""
        nonlocal count
        count += step
        return str(count)

    assert asyncio.run(check_tool(look_up, {"order": 3})).runs == 2
    assert asyncio.run(check_tool(refund, {"order": 3})).runs == 0 and refunds == []
    with pytest.raises(AssertionError, match="'2' after ok: '1'"):
        asyncio.run(check_tool(counts, {"step": 1}))
    with pytest.raises(Refused, match="@tool"):
        asyncio.run(check_tool("look_up", {"order": 3}))
    with pytest.raises(Refused, match="do not fit"):
        asyncio.run(check_tool(look_up, {"order": "x"}))


async def test_the_worker_logs_a_failed_turn_in_one_line_without_content(foldlog_agent):
    run = foldlog_agent(shop, script=[fails("not_found"), says("hello")])
    assert (await run.send("my secret")).reason == "failed"
    (line,) = run._engine.log_lines
    assert line.startswith("session test: turn 1 failed: the model call failed (attempt 1): ")
    assert "not_found: no retry: a person must correct" in line and "\n" not in line
    assert line.endswith("(model name or base URL). The whole reason: foldlog tail test")
    assert "could not be found" not in line, "the words of an API may be content"
    assert (await run.send("again")).text == "hello"
    await run.crash()
    await run.settle()
    assert len(run._engine.log_lines) == 1, "a worker that folds an old failure prints nothing"


async def test_two_runs_of_one_test_have_idempotency_keys_of_their_own(foldlog_agent):
    for number, session_id in enumerate(("test", "test-2", "mine")):
        more = {"session_id": "mine"} if number == 2 else {}
        run = foldlog_agent(shop, script=[calls("refund", order=17), "done"], **more)
        await run.approve(await run.send("refund 17").until(ApprovalAsked))
        await run.result()
        assert run.session.id == session_id
    assert refunds == ["test/1.1.0", "test-2/1.1.0", "mine/1.1.0"]


def test_answers_and_threads_that_are_left_at_the_end_are_warnings(tmp_path):
    (tmp_path / "test_it.py").write_text(dedent("""
        import asyncio, threading
        from foldlog import Agent, InDoubt, tool
        from foldlog.testing import calls
        begun = threading.Event()

        @tool(effect="once")
        def hang() -> str:
            "Never end."
            begun.set()
            threading.Event().wait()

        agent = Agent(name="a", model="claude-opus-5-5", tools=[hang])

        async def test_a_thread(foldlog_agent):
            run = foldlog_agent(agent, script=[calls("hang")])
            run.send("go")
            async with run.working():
                await asyncio.to_thread(begun.wait, 60)
                await run.crash()
            await run.settle()

        async def test_it(foldlog_agent):
            run = foldlog_agent(agent, script=["one", "two", "three"])
            assert (await run.send("hi")).text == "one"
    """))
    out = run_python(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py")
    assert "2 passed, 2 warnings" in out, out
    assert "ToolStillRuns: tool hang (1.1.0) of session test still runs" in out
    assert "AnswersUnused: 2 answers of the script of session test were not used" in out


async def test_a_reply_that_is_not_awaited_says_what_to_write(foldlog_agent):
    run = foldlog_agent(shop, script=["hello"])
    reply = run.send("hi")
    with pytest.raises(AttributeError, match=r"Write `\(await run.send\(...\)\).text`"):
        reply.text  # noqa: B018
    assert (await reply).text == "hello"


async def test_code_that_connects_by_itself_is_answered_while_the_worker_works(foldlog_agent):
    run = foldlog_agent(shop, script=[calls("refund", order=17), fails("overloaded"), "done"])
    async with run.working(), aconnect(run.settings, log=run.log) as log:
        session = await log.open("c1", agent="shop", user="eve")
        async for event in session.send("refund 17"):
            if isinstance(event, ApprovalAsked):
                await session.approve(event)
        assert (await session.history())[-2].text == "done"
    assert refunds == ["c1/1.1.0"]


async def test_a_script_that_ends_while_the_worker_works_by_itself_fails_the_block(foldlog_agent):
    run = foldlog_agent(shop, script=[calls("look_up", order=17)])
    with pytest.raises(ScriptExhausted, match="the script has 1 answer"):
        async with run.working(), aconnect(run.settings, log=run.log) as log:
            session = await log.open("c1", agent="shop")
            assert (await session.send("look it up")).reason == "failed"
