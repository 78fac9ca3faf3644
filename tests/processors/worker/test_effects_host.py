"""Every effect that has begun ends in an outcome, even if its task dies; a blocked host can be
closed."""

import asyncio
import threading
import time
from hashlib import sha256

import pytest

from foldlog.log.blobs import BlobStore
from foldlog.log.memory import MemoryLog
from foldlog.processors.agent import Agent
from foldlog.processors.effects.models.errors import POLICY
from foldlog.processors.effects.ports import BeginGeneration, BeginTool, BeginWork
from foldlog.processors.effects.slots import Slots
from foldlog.processors.fold.projections.turn_view import Call, Claim
from foldlog.processors.limits import DEFAULT_LIMITS, Limits
from foldlog.processors.store.chunks_reader import chunks_reader
from foldlog.processors.tools.result_cache import ResultCache
from foldlog.processors.tools.side_log import SideLogStore
from foldlog.processors.tools.tool import DidNotHappen, Happened, tool
from foldlog.processors.wake.background_tasks import Task
from foldlog.processors.worker import effects_host
from foldlog.processors.worker.effects_host import EffectsHost
from foldlog.processors.worker.outbox import Outbox
from foldlog.processors.worker.reports import Reports
from foldlog.schemas import events as ev
from foldlog.schemas.codec import entry_of
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.kit.waiting import until

CLAIM = Claim("w/1", 0, 7, 0, 10**15)
WAIT_S = 20.0


class Unwind(BaseException):
    """An exception like those that frameworks raise to end their tasks. It is not a subclass of
    Exception, so `except Exception` does not catch it."""


async def unwind() -> str:
    """Raises Unwind."""
    raise Unwind("out of here")


class Host:
    """A real effects host on an in-memory log."""

    def __init__(self, path, make_client=lambda: None) -> None:
        self.log = MemoryLog(topics(1), threaded=True)
        self.output: list[str] = []
        self.reader = self.log.reader(SESSION_EVENTS, {0: 0})
        reports = Reports(self.log.producer(), Outbox(path / "outbox"), self.output.append)
        self.host = EffectsHost(
            reports,
            BlobStore(path / "blobs"),
            SideLogStore(path / "side_log"),
            Slots(9),
            make_client,
            chunks_reader(self.log),
            self.output.append,
            results=ResultCache(path / "results.sqlite", self.output.append),
        )

    def outcome(self):
        """Wait for the next outcome in the log, and return it."""
        records = self.reader.poll(WAIT_S, 1)
        assert records, self.output
        return entry_of(records[0]).event


@pytest.fixture
def start(tmp_path):
    """A factory of hosts. All of them are closed when the test ends."""
    hosts = []

    def make(**more) -> Host:
        hosts.append(Host(tmp_path, **more))
        return hosts[-1]

    yield make
    for host in hosts:
        host.host.close()


def error_of(outcome) -> str:
    return getattr(outcome, "reason", None) or outcome.content.inline.decode()


def begin_tool(function, effect: str, limits: Limits = DEFAULT_LIMITS, **more) -> BeginTool:
    each = tool(effect=effect, **more)(function)
    call = Call(
        turn=1,
        step=1,
        index=0,
        call_id="c",
        name=each.name,
        args=ev.Body(inline=b"{}"),
        args_sha256=sha256(b"{}").hexdigest(),
        args_error=None,
        proposed_at=0,
        status="started",
        effect=effect,
        attempt=1,
        claim=CLAIM,
    )
    agent = Agent(name="a", model="m", tools=[each], limits=limits)
    return BeginTool(call, b"{}", CLAIM, agent)


@pytest.mark.parametrize(
    ("effect", "kind"), [("once", ev.ToolFailedUncertain), ("pure", ev.ToolResult)]
)
def test_T4_a_tool_whose_task_dies_gets_an_outcome(start, effect, kind):
    host = start()
    host.host.begin("s", begin_tool(unwind, effect))
    outcome = host.outcome()
    assert type(outcome) is kind and "Unwind" in error_of(outcome)
    assert effect == "once" or outcome.outcome == "error"


@pytest.mark.parametrize("effect", ["once", "pure"])
def test_T4_an_outcome_that_cannot_be_written_is_replaced_by_an_error(start, monkeypatch, effect):
    """The defect: the outcome counted as reported, and the call stayed open until the worker was
    restarted."""
    host = start()
    write = Reports.outcome
    broken = iter([ValueError("no event can hold that")])

    async def write_or_raise(self, session_id, event):
        for error in broken:
            raise error
        await write(self, session_id, event)

    def look() -> str:
        """Look."""
        return "done"

    monkeypatch.setattr(Reports, "outcome", write_or_raise)
    host.host.begin("s", begin_tool(look, effect))
    assert "no event can hold that" in error_of(host.outcome())


def test_invalid_utf8_in_a_reminder_is_replaced(start):
    def look(ctx) -> str:
        """Look."""
        ctx.remind("the file \udcff.txt is gone")
        return "looked"

    host = start()
    host.host.begin("s", begin_tool(look, "once"))
    outcome = host.outcome()
    assert outcome.outcome == "ok" and outcome.reminders == ("the file ?.txt is gone",)


def test_S0_8_a_cached_result_is_reused_for_the_same_user_only(start):
    runs = []

    def look() -> int:
        """Looks."""
        runs.append(1)
        return len(runs)

    host, begin = start(), begin_tool(look, "pure", cache_ttl_s=3_600)
    results = []
    for session, user in (("s", "ana"), ("other", "ana"), ("s2", "bob"), ("s3", "")):
        host.host.begin(session, begin._replace(user_id=user))
        outcome = host.outcome()
        results.append((outcome.content.inline, outcome.cached_at is not None))
    assert results == [(b"1", False), (b"1", True), (b"2", False), (b"3", False)]
    assert not host.output


def test_T4_a_once_tool_that_cannot_begin_within_its_window_is_not_run(start):
    """The defect: after another tool had blocked the loop for minutes, the tool ran long after its
    deadline."""
    began, release, ran = threading.Event(), threading.Event(), []

    async def blocks() -> str:
        """Blocks the loop, like a synchronous HTTP client in an async tool."""
        began.set()
        release.wait(WAIT_S)
        return "at last"

    async def charge() -> str:
        """Charges."""
        ran.append(1)
        return "charged"

    host = start()
    host.host.begin("first", begin_tool(blocks, "pure"))
    assert began.wait(WAIT_S)
    host.host.begin("s", begin_tool(charge, "once", Limits(start_window_ms=1)))
    produced_at = time.monotonic()
    while time.monotonic() < produced_at + 0.002:
        pass
    release.set()
    assert sorted(host.outcome().outcome for _ in range(2)) == ["not_run", "ok"]
    assert ran == []


def test_S2_a_model_call_that_cannot_begin_within_its_window_is_not_sent(start):
    """Another worker may have taken the call over in the meantime, and the call would be paid
    twice."""
    began, release, attempts = threading.Event(), threading.Event(), []

    async def blocks() -> str:
        """Blocks the loop."""
        began.set()
        release.wait(WAIT_S)
        return "at last"

    def make():
        attempts.append(1)
        raise RuntimeError("no client")

    host = start(make_client=make)
    host.host.begin("first", begin_tool(blocks, "pure"))
    assert began.wait(WAIT_S)
    agent = Agent(name="a", model="m", limits=Limits(start_window_ms=1))
    host.host.begin("s", BeginGeneration(1, 1, 1, CLAIM, b"{}", agent))
    produced_at = time.monotonic()
    while time.monotonic() < produced_at + 0.002:
        pass
    release.set()
    (failed,) = [o for o in (host.outcome(), host.outcome()) if isinstance(o, ev.GenFailed)]
    assert (failed.error, failed.permanent) == ("not_begun", False)
    assert attempts == []


def test_T6_a_reconciler_whose_task_dies_leaves_the_call_in_doubt(start):
    async def was_it_done(ctx) -> Happened:
        raise Unwind("out of here")

    host = start()
    host.host.begin("s", begin_tool(unwind, "once", reconciler=was_it_done)._replace(recovers=True))
    assert isinstance(host.outcome(), ev.ToolFailedUncertain)


def test_T6_an_early_question_is_dropped_while_the_reconciler_thinks_and_a_no_is_not_final(start):
    asked, release = [], threading.Event()

    def was_it_done(ctx) -> Happened | DidNotHappen:
        asked.append(ctx.call_key)
        release.wait(WAIT_S)
        return Happened("done") if len(asked) > 1 else DidNotHappen("not yet")

    host = start()
    final = begin_tool(unwind, "once", reconciler=was_it_done)._replace(recovers=True)
    for _ in range(3):
        host.host.begin("s", final._replace(early=True))
    until("it is asked", lambda: asked)
    release.set()
    until("it has answered", lambda: not host.host.begun())
    assert len(asked) == 1
    host.host.begin("s", final._replace(early=True))
    assert host.outcome().via == "reconciler", "the first outcome is of the second question"


def test_T6_an_early_question_whose_task_dies_reports_nothing(start):
    async def was_it_done(ctx) -> Happened:
        raise Unwind("out of here")

    host = start()
    begin = begin_tool(unwind, "once", reconciler=was_it_done)._replace(recovers=True)
    host.host.begin("s", begin._replace(early=True))
    until("it has ended", lambda: not host.host.begun())
    host.host.begin("later", begin)
    assert isinstance(host.outcome(), ev.ToolFailedUncertain)
    assert not host.reader.poll(0, 1), "one outcome, of the later question"


def test_the_next_call_retries_to_make_the_client(start):
    attempts = []

    def make():
        attempts.append(1)
        raise RuntimeError("no")

    host = start(make_client=make)
    agent = Agent(name="a", model="m")
    for attempt in (1, 2):
        begin = BeginGeneration(1, 1, attempt, CLAIM, b"{}", agent)
        host.host.begin(f"s{attempt}", begin)
        assert host.outcome().error == "client"
    assert len(attempts) == 2


def test_the_import_of_the_sdk_counts_in_the_time_of_a_retry(start):
    """Making the client takes long at the first call of a process. The call then fails."""
    took_ms = []

    def make():
        began = time.monotonic()
        while time.monotonic() < began + 0.05:
            pass
        took_ms.append(int((time.monotonic() - began) * 1000))
        return Refuses()

    host, now = start(make_client=make), CLAIM.at + 3_000
    agent = Agent(name="a", model="m")
    begin = BeginGeneration(1, 1, 1, CLAIM, b'{"model":"m"}', agent, now=now)
    host.host.begin("s", begin)
    failed = host.outcome()
    assert isinstance(failed, ev.GenFailed) and failed.error == "internal"
    least = POLICY["internal"].backoff.first_ms // 2
    assert failed.retry_at >= now + took_ms[0] + least


class Refuses:
    """A client whose every call fails at once."""

    base_url = ""

    async def post(self, *_, **more):
        raise RuntimeError("refused")

    async def close(self):
        """Closes nothing."""


def test_a_tool_that_blocks_the_loop_does_not_keep_the_host_from_ending(tmp_path, monkeypatch):
    monkeypatch.setattr(effects_host, "SHUTDOWN_S", 0.1)
    began, release = threading.Event(), threading.Event()

    async def blocks() -> str:
        """Blocks the loop until the test ends it."""
        began.set()
        release.wait(WAIT_S)  # like `requests` in an async tool
        return "late"

    host = Host(tmp_path)
    host.host.begin("s", begin_tool(blocks, "pure"))
    assert began.wait(WAIT_S)
    try:
        host.host.close()
    finally:
        release.set()
        host.host._thread.join(WAIT_S)
        loop = host.host._loop  # runs the remaining tasks, so that none is left
        loop.run_until_complete(asyncio.wait(asyncio.all_tasks(loop)))
    assert any("effect" in line for line in host.output)


def test_S2_9_an_effect_that_waits_for_the_client_is_stopped_at_once(tmp_path):
    """The defect: the end of the worker waited for the import of the model SDK. Here it never
    ends."""
    release = threading.Event()
    host = Host(tmp_path, make_client=release.wait)
    host.host.warm()
    host.host.begin("s", BeginGeneration(1, 1, 1, CLAIM, b"{}", Agent(name="a", model="m")))
    begin = BeginWork("result", 3, 1, CLAIM, Task(b"{}", "m", 100), Agent(name="a", model="m"))
    host.host.begin("other", begin)
    host.host.close()
    assert {type(host.outcome()), type(host.outcome())} == {ev.GenStopped, ev.BackgroundDone}
    imports = [t for t in threading.enumerate() if t.name == effects_host.CLIENT_THREAD]
    assert [t.daemon for t in imports] == [True], "one import, for which no exit waits"
    release.set()
