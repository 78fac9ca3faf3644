"""Background work: a failed memory extraction is tried again, and no work outlives its session."""

import asyncio
import os
import re
import threading
from dataclasses import replace
from typing import Any

import pytest

from foldlog.log.blobs import BlobStore
from foldlog.processors.agent import Agent
from foldlog.processors.effects import background as effect
from foldlog.processors.effects.background import work_ended
from foldlog.processors.fold.projections.background import MEMORY_TRIES, MEMORY_WAIT_MS
from foldlog.processors.limits import Limits
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.tools.tool import tool
from foldlog.processors.wake import background_tasks as tasks
from foldlog.processors.wake.background_tasks import Task, task_of
from foldlog.processors.wake.work_ends import WorkEnd
from foldlog.schemas import events as ev
from foldlog.schemas.tokens import CHARS_PER_TOKEN, NEW
from foldlog.tests.kit import answers
from foldlog.tests.kit.agents import variant
from foldlog.tests.kit.blobs import MemoryBlobs
from foldlog.tests.kit.history import History, opened
from foldlog.tests.kit.waiting import PATIENCE_S, until
from foldlog.tests.processors.tools import isolated_tools
from foldlog.tests.processors.tools.test_children import wait_dead


def extracting() -> History:
    """A session whose turn has ended and whose memory extraction is running."""
    s = opened(agent=variant(memory=True))
    s.say("I like tea.")
    return s.answer("So do I.")


def memory_work(s: History):
    (work,) = [work for work in s.views.background.works if work.kind == "memory"]
    return work


def fail(s: History, why: str = "no words") -> None:
    """Let the running extraction fail."""
    work = memory_work(s)
    outcome = answers.done("memory", work.upto, work.attempt, why=why)
    assert s.append(outcome, "background").accepted


def request_of(s: History) -> str:
    """The request of the memory extraction."""
    return task_of(s.views, memory_work(s), s.agent, s.blobs.read).request.decode()


# -- memory ----------------------------------------------------------------------------------------


def test_S1_H_a_failed_extraction_is_tried_again_with_growing_pauses():
    s = extracting()
    for number in range(MEMORY_TRIES - 1):
        first = memory_work(s)
        fail(s)
        view = s.views.background
        assert (view.memory_missed, view.said) == (number + 1, "memory: no words")
        assert s.rows() == ["B1w"], "not at once"
        s.later(MEMORY_WAIT_MS * 10**number - 2)
        assert s.rows() == ["B1w"]
        s.later(2).work()
        assert memory_work(s).upto > first.upto, "a new work, with attempts of its own"
        assert "I like tea." in request_of(s)


def test_S1_H_an_extraction_is_abandoned_after_MEMORY_TRIES():
    s = extracting()
    for _ in range(MEMORY_TRIES):
        s.later(MEMORY_WAIT_MS * 10**MEMORY_TRIES).work()
        fail(s)
    assert s.later(10**12).rows() == []
    s.say("And coffee?")
    s.answer("Too.")
    assert "coffee" in request_of(s) and "tea" not in request_of(s)
    assert s.views.background.memory_missed == 0


def test_S1_H_the_extraction_of_the_next_turn_covers_a_failed_one():
    s = extracting()
    fail(s)
    s.say("And coffee?")
    s.answer("Too.")
    assert s.rows() == ["B1w"], "a new turn does not shorten the wait after a failure"
    s.later(MEMORY_WAIT_MS).work()
    assert "tea" in request_of(s) and "coffee" in request_of(s)
    work = memory_work(s)
    s.append(answers.done("memory", work.upto, work.attempt), "background")
    assert (s.views.background.memory_missed, s.rows()) == (0, [])


def test_S1_H_an_extraction_without_new_content_is_not_tried_again():
    s = extracting()
    ending = work_ended(s.views, memory_work(s))
    assert ending.ok and s.append(ending, "background").accepted
    assert (s.views.background.memory_missed, s.rows()) == (0, [])


# -- a terminated session --------------------------------------------------------------------------


def test_constraint_3_a_session_terminated_while_idle_leaves_no_work():
    s = extracting()
    work = memory_work(s)
    s.terminate()
    assert s.views.background.works == () and s.rows() == []
    ending = answers.done("memory", work.upto, work.attempt, why="it was stopped")
    assert s.append(ending, "background").code == "duplicate"
    assert s.views.ledger.output_tokens == 15, "its cost counts"


def test_constraint_3_work_that_outlives_the_grace_of_a_terminated_turn_is_dropped():
    s = extracting()
    s.say("more")
    s.work()
    s.terminate()
    assert memory_work(s).stop
    s.later(60_000).work()
    assert not s.turn.open and s.views.background.works == ()


def test_law_7_a_claim_after_the_end_of_the_session_is_void():
    s = extracting()
    fail(s)
    s.later(MEMORY_WAIT_MS)
    ((claim, role),) = s.in_flight("B1")
    s.terminate()
    assert s.land([(claim, role)]) == ["void"]
    assert s.views.background.works == ()


# -- tries of one work -----------------------------------------------------------------------------


def test_a_second_try_is_timed_from_its_own_start(monkeypatch):
    """Both tries hang for 50 s, and each may be repeated 2 s after its end."""
    at, waited, began = [0.0], [], []

    async def generate(call: Any, request: bytes, sink: Any, stop: Stop, client: Any, **more: Any):
        began.append(call.claimed_at)
        at[0] += 50
        failed = answers.failed((0, 0, call.attempt), retry_at=call.claimed_at + 50_000 + 2_000)
        await sink.outcome("s", failed)

    async def stopped(stop: Stop, failed: ev.GenFailed, now: int) -> bool:
        waited.append(failed.retry_at - now)
        at[0] += 2
        return False

    monkeypatch.setattr(effect.models, "generate", generate)
    monkeypatch.setattr(effect, "_wait_until_due", stopped)
    claim = effect.WorkClaim("s", "result", 3, 1, 1_000_000)
    task = Task(b"{}", "claude-cheapest", 5_000)
    made = effect._ask_model(claim, task, Limits(), Stop(), None, [], lambda: at[0])
    with pytest.raises(effect.UnusableOutput, match="overloaded"):
        asyncio.run(made)
    assert began == [1_000_000, 1_052_000, 1_104_000] and waited == [2_000, 2_000]


def test_the_first_try_is_timed_from_the_moment_when_the_claim_was_read(monkeypatch):
    began = []

    async def generate(call: Any, request: bytes, sink: Any, stop: Stop, client: Any, **more: Any):
        began.append((call.claimed_at, call.error_before))
        raise effect.UnusableOutput(WorkEnd.STOPPED)

    monkeypatch.setattr(effect.models, "generate", generate)
    claim = effect.WorkClaim("s", "result", 3, 1, 1_000_000, read_at=10.0)
    task = Task(b"{}", "claude-cheapest", 5_000)
    with pytest.raises(effect.UnusableOutput, match="it was stopped"):
        asyncio.run(effect._ask_model(claim, task, Limits(), Stop(), None, [], lambda: 17.0))
    assert began == [(1_007_000, "")]


@pytest.mark.parametrize("wait_s", [effect.WAIT_S_MAX, effect.WAIT_S_MAX + 1])
def test_a_try_never_comes_before_the_time_that_the_provider_named(monkeypatch, wait_s):
    """Work whose provider asks for a long wait is given up, not repeated too early."""
    waited, errors = [], []

    async def generate(call: Any, request: bytes, sink: Any, stop: Stop, client: Any, **more: Any):
        errors.append(call.error_before)
        retry_at = call.claimed_at + int(wait_s * 1000)
        await sink.outcome("s", answers.failed((0, 0, call.attempt), retry_at=retry_at))

    async def stopped(stop: Stop, failed: ev.GenFailed, now: int) -> bool:
        waited.append(failed.retry_at - now)
        return False

    monkeypatch.setattr(effect.models, "generate", generate)
    monkeypatch.setattr(effect, "_wait_until_due", stopped)
    claim = effect.WorkClaim("s", "result", 3, 1, 1_000_000)
    made = effect._ask_model(
        claim, Task(b"{}", "claude-cheapest", 5_000), Limits(), Stop(), None, [], lambda: 0.0
    )
    with pytest.raises(effect.UnusableOutput, match="overloaded"):
        asyncio.run(made)
    is_long = wait_s > effect.WAIT_S_MAX
    assert waited == ([] if is_long else [60_000, 60_000])
    assert errors == ([""] if is_long else ["", "overloaded_error", "overloaded_error"])


def test_S0_5_a_request_cut_off_by_the_deadline_reports_its_usage(monkeypatch, tmp_path):
    async def generate(call: Any, request: bytes, sink: Any, stop: Stop, client: Any, **more: Any):
        await asyncio.wait_for(stop.wait(), PATIENCE_S)
        stopped = answers.stopped((0, 0, 1), ["so"], MemoryBlobs())
        await sink.outcome("s", replace(stopped, usage=answers.usage(70)))

    monkeypatch.setattr(effect.models, "generate", generate)
    agent = Agent(name="a", model="m", limits=Limits(background_timeout_ms=20))
    (done,) = worked("result", Task(b"{}", "claude-cheapest", 5_000), agent, tmp_path)
    assert not done.ok and "20 ms" in done.why and not done.released
    assert (done.model, done.usage) == ("claude-cheapest", answers.usage(70))


def test_lane_B_a_work_that_ignores_its_stop_is_abandoned(monkeypatch, tmp_path):
    async def generate(*_: Any, **more: Any):
        await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_S)

    monkeypatch.setattr(effect.models, "generate", generate)
    monkeypatch.setattr(effect, "GRACE_S", 0.02)
    agent = Agent(name="a", model="m", limits=Limits(background_timeout_ms=20))
    (done,) = worked("result", Task(b"{}", "claude-cheapest", 5_000), agent, tmp_path)
    assert not done.ok and "20 ms" in done.why and done.usage is None


# -- results ---------------------------------------------------------------------------------------

CHARS_OF_WORD = 5.7  # of English prose, including the space


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [(tasks._SUMMARY, tasks.SUMMARY_TOKENS), (tasks._SHORT, tasks.SHORT_TOKENS)],
)
def test_the_requested_number_of_words_fits_the_token_limit(prompt, tokens):
    words = int(re.search(r"at most ([0-9,]+) words", prompt)[1].replace(",", ""))
    assert words * CHARS_OF_WORD / CHARS_PER_TOKEN[NEW] <= 0.8 * tokens


@pytest.mark.parametrize(("stop_reason", "is_cut"), [("end_turn", False), ("max_tokens", True)])
def test_S3_4_a_summary_that_was_cut_is_marked(stop_reason, is_cut, monkeypatch, tmp_path):
    async def generate(call: Any, request: bytes, sink: Any, stop: Stop, client: Any, **more: Any):
        blocks = ['{"type":"text","text":"They want"}']
        await sink.outcome("s", answers.complete((0, 0, 1), blocks, stop_reason, MemoryBlobs()))

    monkeypatch.setattr(effect.models, "generate", generate)
    task = Task(b"{}", "claude-cheapest", 5_000, kept_from=4)
    made, done = worked("context", task, Agent(name="a", model="m"), tmp_path)
    assert done.ok and b"They want" in made.summary.inline
    assert (effect.CUT.encode() in made.summary.inline) is is_cut


@pytest.mark.parametrize("written", [40, 2_000_000])
def test_S3_4_an_absurd_count_does_not_discard_a_signed_summary(written, monkeypatch, tmp_path):
    async def generate(call: Any, request: bytes, sink: Any, stop: Stop, client: Any, **more: Any):
        blocks = ['{"type":"compaction","content":"They want tea.","signature":"s"}']
        made = answers.complete((0, 0, 1), blocks, "compaction", MemoryBlobs())
        await sink.outcome("s", replace(made, usage=answers.usage(100, written)))

    monkeypatch.setattr(effect.models, "generate", generate)
    task = Task(b"{}", "claude-cheapest", 5_000, kept_from=4)
    made, done = worked("context", task, Agent(name="a", model="m"), tmp_path)
    assert done.ok and done.usage.output_tokens == written
    assert made.tokens <= 40


def worked(kind: str, task: Task, agent: Agent, path: Any, stop: Stop | None = None) -> list[Any]:
    """The events that this background work writes."""
    sink = effect.OutcomeSink([])
    claim = effect.WorkClaim("s", kind, 3, 1, 1_000_000)
    blobs = BlobStore(path)
    asyncio.run(effect.work(claim, task, agent, sink, stop or Stop(), client, blobs=blobs))
    return sink.outcomes


def read_by(compacting, text):
    agent = Agent(name="a", model="m", tools=(compacting,))
    task = Task(b"{}", "m", 5_000, call="1.1.0", tool=compacting.name, text=text)
    return task, agent


def test_the_compactor_of_an_isolated_tool_runs_in_another_process(tmp_path):
    task, agent = read_by(isolated_tools.read_short, "long " * 4_000)
    made, done = worked("result", task, agent, tmp_path)
    assert done.ok
    pid, _, short = made.short.inline.decode().partition(" ")
    assert int(pid) != os.getpid() and short.startswith("long long")


@pytest.mark.parametrize("how", ["abort", "limit"])
def test_S1_constraint_3_a_hanging_compactor_of_an_isolated_tool_is_killed(tmp_path, how):
    pids, stop = tmp_path / "pids", Stop()
    task, agent = read_by(isolated_tools.read_endless, f"{pids} " + "long " * 4_000)

    def begun():
        return pids.exists() and pids.read_text().endswith("\n")

    def abort():
        until("the compactor has begun", begun)
        stop.request("the turn was aborted")

    if how == "abort":
        threading.Thread(target=abort, daemon=True).start()
    else:
        agent = replace(agent, limits=replace(agent.limits, background_timeout_ms=3_000))
    (done,) = worked("result", task, agent, tmp_path, stop)
    assert not done.ok and done.code == ("stopped" if how == "abort" else "too_late")
    if begun():  # a busy machine needs 3 s to begin the function
        assert wait_dead([int(pids.read_text())])


async def client() -> None:
    """A client that must not be needed: no model is called."""


def test_constraint_3_a_hanging_compactor_ends_with_the_abort_and_blocks_nothing(tmp_path):
    stop, ended, threads = Stop(), threading.Event(), []

    def hangs(text: str) -> str:
        threads.append(threading.current_thread())
        stop.request("the turn was aborted")
        ended.wait(60)
        return "short"

    @tool(effect="pure", compactor=hangs)
    def read() -> str:
        """Read."""
        return ""

    agent = Agent(name="a", model="m", tools=(read,))
    task = Task(b"{}", "m", 5_000, call="1.1.0", tool="read", text="long " * 4_000)
    try:
        (done,) = worked("result", task, agent, tmp_path, stop)
        assert not done.ok and "stopped" in done.why
        assert not ended.is_set() and threads[0].is_alive() and threads[0].daemon
    finally:
        ended.set()
