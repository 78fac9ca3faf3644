"""Isolated tools run in a process of their own, which ends when the run must end."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from foldlog import Agent, IsolatedContext, ToolContext, tool
from foldlog.processors.effects.tool import tool_host_of
from foldlog.processors.tools.call import run
from foldlog.processors.tools.output_sink import Stop
from foldlog.schemas.events import ToolFailedUncertain
from foldlog.tests.kit.programs import END_S
from foldlog.tests.kit.waiting import until
from foldlog.tests.processors.tools import isolated_tools as tools
from foldlog.tests.processors.tools.test_children import wait_dead
from foldlog.tests.processors.tools.tool_bench import RecordingSink, claim_of, run_once

PROCESSES = 3  # of a tool that hangs: the function's, its child, its child in another session


def done(a_tool, host, /, **arguments):
    return run_once(a_tool, host, json.dumps(arguments).encode())


def pids_in(path, count):
    """The process ids in a file, once it has so many lines."""

    def found():
        lines = path.read_text().splitlines() if path.exists() else []
        return len(lines) == count and [int(line) for line in lines]

    return until("the processes have started", found)


def test_S1_constraint_3_an_isolated_tool_runs_in_another_process(host, caplog):
    caplog.set_level("INFO", "foldlog.tools")
    sink = done(tools.where_am_i, host, place={"street": "Elm", "number": 3})
    value = json.loads(sink.text)
    assert sink.only.outcome == "ok" and value["place"] == {"street": "Elm", "number": 3}
    assert os.getpid() not in (value["pid"], value["parent"])
    assert wait_dead([value["pid"], value["parent"]])
    assert "tool where_am_i printed\nhello from inside" in caplog.text


def test_an_isolated_tool_gets_the_values_of_its_context(host, tmp_path):
    host = replace(host, workdir=tmp_path)
    raw = b'{"note": "n"}'
    sink = run_once(tools.look_at_ctx, host, raw, attempt=2, user_id="ada")
    limit = host.limits.result_tokens
    assert json.loads(sink.text) == ["s1/2.1.0", 2, "ada", limit, tmp_path.name, "n"]


def test_a_tool_that_is_made_by_a_call_is_found_by_its_function(host):
    Agent(name="a", model="m", tools=(tools.made_by_call,))
    assert done(tools.made_by_call, host, number=2).text == "3"


@pytest.mark.parametrize("how", ["loop", "sleep"])
@pytest.mark.parametrize("a_tool", [tools.hang_pure, tools.hang_once], ids=["pure", "once"])
def test_S1_constraint_3_an_abort_kills_an_isolated_tool_and_all_it_started(
    host, tmp_path, a_tool, how
):
    pids = tmp_path / "pids"
    args = json.dumps({"how": how, "pids": str(pids)}).encode()

    async def main():
        sink, stop = RecordingSink(), Stop()
        running = asyncio.create_task(run(claim_of(a_tool, args), a_tool, args, sink, stop, host))
        found = await asyncio.to_thread(pids_in, pids, PROCESSES)
        stop.request("cancel c-1")
        assert await running is None, "nothing runs any longer"
        return sink.only, found

    event, found = asyncio.run(main())
    assert wait_dead(found)
    if a_tool.effect == "once":
        assert isinstance(event, ToolFailedUncertain) and "cancel c-1" in event.reason
        assert event.code == "aborted"
    else:
        assert event.outcome == "cancelled" and b"cancel c-1" in event.content.inline


def test_S1_constraint_3_a_deadline_kills_an_isolated_tool(host, tmp_path):
    pids = tmp_path / "pids"
    args = json.dumps({"how": "loop", "pids": str(pids)}).encode()
    sink = run_once(tools.hang_pure, host, args, timeout_ms=3_000)
    assert "did not end within 3 s" in sink.text
    if pids.exists():  # a busy machine needs 3 s to begin the function
        assert sink.only.outcome == "error"
        assert wait_dead([int(line) for line in pids.read_text().splitlines()])


def test_S1_constraint_3_an_abort_before_the_function_begins_leaves_no_doubt(host, tmp_path):
    """The process takes a moment to start, in which a `once` tool has no effect."""
    pids = tmp_path / "pids"
    args = json.dumps({"how": "loop", "pids": str(pids)}).encode()
    host = replace(host, limits=replace(host.limits, grace_ms=60_000))
    event = run_once(tools.hang_once, host, args, timeout_ms=1).only
    assert event.outcome == "not_run" and b"did not end within 0.001 s" in event.content.inline
    assert not pids.exists()


_WORKER = """
import asyncio, sys
from pathlib import Path
from foldlog.tests.processors.tools import isolated_tools
from foldlog.tests.processors.tools.tool_bench import make_host, run_once
run_once(isolated_tools.hang_once, make_host(Path(sys.argv[1])), sys.argv[2].encode())
"""


def test_S1_constraint_3_kill_9_of_the_worker_kills_its_isolated_tools(tmp_path):
    pids = tmp_path / "pids"
    args = json.dumps({"how": "loop", "pids": str(pids)})
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _WORKER, str(tmp_path), args]
    worker = subprocess.Popen(command, env=env)
    try:
        found = pids_in(pids, PROCESSES)
        below = [child.pid for child in psutil.Process(worker.pid).children(recursive=True)]
    finally:
        worker.kill()
        worker.wait(END_S)
    assert set(found) <= set(below) and wait_dead(below)


def test_S1_constraint_3_an_isolated_tool_sees_no_secret_of_the_worker(host, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "SOME_DB_URL", "OTHER_TOKEN"):
        monkeypatch.setenv(name, f"canary of {name}")
    text = done(tools.show_environment, host).text
    assert "PATH=" in text and "canary" not in text
    named = replace(host, tool_env=("SOME_*",))
    lines = done(tools.show_environment, named).text.splitlines()
    assert {line for line in lines if "canary" in line} == {"SOME_DB_URL=canary of SOME_DB_URL"}


HOW_IT_DIED = {
    "kill": "was killed by SIGKILL",
    "exit": "ended with exit code 7",
    "segfault": "was killed by SIGSEGV",
    "forged": "ended with exit code 0",
}


@pytest.mark.parametrize("how", HOW_IT_DIED)
@pytest.mark.parametrize("a_tool", [tools.die_pure, tools.die_idempotent, tools.die_once])
def test_S1_constraint_3_a_process_that_dies_leaves_only_a_once_call_in_doubt(host, a_tool, how):
    sink = done(a_tool, host, how=how)
    why = f"{a_tool.name}: its process {HOW_IT_DIED[how]} before it returned"
    if a_tool.effect == "once":
        assert isinstance(sink.only, ToolFailedUncertain)
        assert sink.only.reason == f"{why}; whether it had its effect is not known"
        assert sink.only.code == "process_died"
    else:
        assert (sink.only.outcome, sink.text) == ("error", why)


@pytest.mark.parametrize("a_tool", [tools.fail_pure, tools.fail_once])
def test_an_exception_has_its_type_and_its_traceback(host, a_tool, caplog):
    event = done(a_tool, host, how="odd").only
    why = f"{a_tool.name} raised OddError: odd"
    text = event.reason if a_tool.effect == "once" else event.content.inline.decode()
    assert text.startswith(why)
    (record,) = caplog.records
    first, second, *_ = record.getMessage().split("\n")
    assert first == f"session s1: tool {a_tool.name} (call 2.1.0, attempt 1) raised an error"
    assert second == "Traceback (most recent call last):"
    assert "in _raise_below" in caplog.text and "isolated_child.py" not in caplog.text


def test_other_ends_of_the_function_are_those_of_a_thread(host, caplog):
    for a_tool in (tools.fail_pure, tools.fail_once):
        refused = done(a_tool, host, how="failed")
        assert (refused.only.outcome, refused.text) == ("error", "the card was refused")
        ended = done(a_tool, host, how="cancelled")
        assert (ended.only.outcome, ended.text) == ("cancelled", "ended before the payment")
    assert not caplog.records
    assert "raised SystemExit: bye" in done(tools.fail_pure, host, how="exit").text
    caplog.clear()
    assert len(done(tools.fail_pure, host, how="huge").text) < 4_000
    (record,) = caplog.records
    assert len(record.getMessage()) < 40_000


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("bytes", "[2000 bytes of binary data, not shown.]"),
        ("shortened", "short\n"),
        ("lambda", "[function that is not JSON (PydanticSerializationError"),
        ("surrogate", "a?b"),
        ("long", "0123456789"),
        ("too long", "[It returned, but its result is lost: it has 629"),
        ("deep", "[[["),
        ("too deep", "[list that is not JSON ("),
        ("nan", '["NaN",[1,2]]'),
        ("nothing", "null"),
    ],
)
def test_a_result_of_any_kind_reaches_the_model(host, what, shown):
    sink = done(tools.give, host, what=what)
    assert sink.only.outcome == "ok" and sink.text.startswith(shown)
    assert len(sink.text) < 100_000
    if what == "long":
        assert sink.only.bytes == 2_000_000


def nested():
    @tool(effect="pure", isolate=True)
    def inside() -> str:
        """Doc."""
        return ""

    return inside


def in_the_script():
    def started() -> str:
        """Doc."""
        return ""

    started.__module__, started.__qualname__ = "__main__", "started"
    return tool(effect="pure", isolate=True)(started)


def hidden():
    def gone() -> str:
        """Doc."""
        return ""

    gone.__module__, gone.__qualname__ = tools.__name__, "gone"
    return tool(effect="pure", isolate=True)(gone)


def replaced():
    def give() -> str:
        """Doc."""
        return ""

    give.__module__, give.__qualname__ = tools.__name__, "give"
    return tool(effect="pure", isolate=True)(give)


def with_lambda():
    return replace(tools.give, compactor=lambda text: text)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (nested, "it is a lambda or inside of a function"),
        (in_the_script, "it is in the script that was started"),
        (hidden, "has no gone"),
        (replaced, "is another object"),
        (with_lambda, "the compactor of tool give"),
    ],
)
def test_S1_constraint_3_a_function_that_no_process_can_import_is_refused_with_its_agent(make, why):
    with pytest.raises(ValueError, match=f"agent a: .*{why}"):
        Agent(name="a", model="m", tools=(make(),))


def test_a_module_without_a_file_of_its_name_is_refused(tmp_path, monkeypatch):
    (tmp_path / "made_here.py").write_text(
        "from foldlog import tool\n@tool(effect='pure', isolate=True)\ndef f() -> str:\n    'D.'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("made_here")
    Agent(name="a", model="m", tools=(module.f,))
    (tmp_path / "made_here.py").unlink()
    with pytest.raises(ValueError, match="no file of module made_here is on Python's path"):
        Agent(name="a", model="m", tools=(module.f,))


def test_definitions_that_make_no_sense_are_refused():
    async def waits() -> None:
        """Doc."""

    def wants_all(ctx: ToolContext) -> None:
        """Doc."""

    def wants(ctx) -> None:
        """Doc."""

    def isolated(ctx: IsolatedContext) -> None:
        """Doc."""

    with pytest.raises(ValueError, match="tool waits is async, so an abort cancels it"):
        tool(isolate=True)(waits)
    for function in (wants_all, wants):
        with pytest.raises(TypeError, match="'ctx' of tool wants.* the type IsolatedContext"):
            tool(isolate=True)(function)
    with pytest.raises(TypeError, match="must have the type ToolContext"):
        tool(isolated)
    with pytest.raises(ValueError, match="isolate of tool isolated must be True or False"):
        tool(isolate="yes")(isolated)


def test_S1_constraint_3_a_module_that_fails_in_the_process_leaves_no_doubt(
    host, tmp_path, monkeypatch, caplog
):
    """A module may need a secret that an isolated tool does not get."""
    (tmp_path / "needs_secret.py").write_text(
        "import os\nfrom foldlog import tool\nKEY = os.environ['SECRET_KEY']\n"
        "@tool(effect='once', isolate=True)\ndef f() -> str:\n    'D.'\n    return 'ok'\n"
    )
    monkeypatch.setenv("SECRET_KEY", "x")
    monkeypatch.syspath_prepend(tmp_path)
    a_tool = __import__("needs_secret").f
    sink = done(a_tool, host)
    assert sink.only.outcome == "not_run" and "KeyError: 'SECRET_KEY'" in sink.text
    assert 'needs_secret.py", line 3' in caplog.text
    assert done(a_tool, replace(host, tool_env=("SECRET_KEY",))).text == "ok"


def test_a_cached_and_a_repeated_call_are_those_of_any_tool(host):
    agent = Agent(name="a", model="m", tools=(tools.die_idempotent,))
    host = tool_host_of(agent, host.blobs, host.side_log)
    assert done(tools.die_idempotent, host, how="first").text == "first"
    args = b'{"how": "kill"}'
    again = run_once(tools.die_idempotent, host, args, attempt=2)
    assert again.text == "first", "the side log has the result of the earlier attempt"
