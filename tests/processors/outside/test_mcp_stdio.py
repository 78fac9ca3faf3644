"""MCP servers on stdin and stdout: real processes that die, stall, send too much, or change their
tools."""

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import version

import psutil
import pytest

from foldlog import Agent
from foldlog.processors.mcp_server import McpServer
from foldlog.processors.outside import connection
from foldlog.processors.outside.tools import OutsideTools
from foldlog.processors.tools.arguments import why_wrong
from foldlog.processors.tools.output_sink import Stop
from foldlog.schemas.events import ToolFailedUncertain
from foldlog.tests.kit.programs import line_of
from foldlog.tests.kit.waiting import until_async
from foldlog.tests.processors.outside.conftest import text
from foldlog.upkeep.doctor.checks import mcp_servers


def findings_of(status):
    """What doctor reports about the servers of a worker."""
    states = {name: str(each.state) for name, each in status.items()}
    return mcp_servers(states, {name: str(each) for name, each in status.items()})


def test_an_agent_gets_the_tools_of_its_server_under_the_rules_of_the_operator(world):
    agent = world.begin(
        world.stdio(
            allow=("add", "charge", "fail"),
            effects={"charge": "idempotent"},
            approvals={"charge": "none", "fail": "deny"},
        )
    )
    found = {t.name: (t.effect, t.approval) for t in agent.tools}
    assert found == {
        "small__add": ("once", "ask"),  # the server claims it only reads; the operator set no rule
        "small__charge": ("idempotent", "none"),
        "small__fail": ("once", "deny"),
    }
    assert text(world.call(agent, "small__charge", cents=5)) == "charged 5"
    assert "cents is missing" in why_wrong(agent.tool("small__charge").arguments.parse, b"{}")


def test_hints_of_a_server_set_the_defaults_only_if_the_operator_trusts_them(world):
    agent = world.begin(world.stdio(trust_hints=True, allow=("add", "charge")))
    found = {t.name: (t.effect, t.approval) for t in agent.tools}
    assert found == {"small__add": ("pure", "none"), "small__charge": ("once", "ask")}


def test_the_tools_have_the_same_bytes_in_whatever_order_the_server_lists_them(world):
    (world.directory / "tools").write_text('["zeta", "alpha"]')
    first = world.begin(world.stdio()).tools_json()
    (world.directory / "tools").write_text('["alpha", "zeta"]')
    assert world.begin(world.stdio()).tools_json() == first
    assert "\u202e" not in first.decode() and "\x07" not in first.decode()


def test_E33_a_server_receives_the_name_and_version_of_foldlog(world):
    (world.directory / "who").touch()
    agent = world.begin(world.stdio(allow=("who",)))
    assert text(world.call(agent, "small__who")) == f"foldlog {version('foldlog')}"


def test_a_response_becomes_a_tool_result(world):
    agent = world.begin(world.stdio())
    failed = world.call(agent, "small__fail")
    assert failed.outcome == "error" and "fail" in text(failed)
    alone = world.call(agent, "small__picture", alone=True)
    assert text(alone).startswith("[28 bytes of binary data, not shown.]")
    assert world.host.blobs.get(alone.content.ref.sha256).startswith(b"\x89PNG")
    mixed = world.call(agent, "small__picture", alone=False)
    assert text(mixed).startswith("look:\n[image, image/png, 30 bytes, not shown]")
    stored = json.loads(world.host.blobs.get(mixed.content.ref.sha256))
    assert stored["content"][1]["type"] == "image", "the full content is stored"


def test_S3_5_a_huge_response_is_bounded_and_the_connection_survives(world):
    agent = world.begin(world.stdio(effects={"huge": "pure"}))
    big = world.call(agent, "small__huge", megabytes=2)
    assert big.outcome == "ok" and big.bytes == 2 * 1024 * 1024 and big.tokens <= 8_000
    too_big = world.call(agent, "small__huge", megabytes=20)  # twice: text and structure
    assert too_big.outcome == "error" and "at most" in text(too_big)
    assert text(world.call(agent, "small__add", a=1, b=2)) == "3"


@pytest.mark.parametrize("effect", ["once", "pure"])
def test_a_server_that_dies_during_a_call_leaves_only_a_once_tool_in_doubt(world, effect):
    agent = world.begin(world.stdio(effects={"die.now": effect}))
    (name,) = [t.name for t in agent.tools if "die" in t.name]
    event = world.call(agent, name)
    if effect == "once":
        assert isinstance(event, ToolFailedUncertain) and "lost" in event.reason
    else:
        assert event.outcome == "error" and "lost" in text(event)
    assert world.calls() == ["die"], "the call was not retried"
    assert text(world.call(agent, "small__add", a=1, b=2)) == "3", "a new process serves it"


def test_a_server_that_died_while_idle_leaves_no_call_in_doubt(world):
    agent = world.begin(world.stdio())
    assert text(world.call(agent, "small__charge", cents=1)) == "charged 1"
    pid = int((world.directory / "calls").read_text().split()[1])
    os.kill(pid, 9)
    until = time.monotonic() + 5
    while "down" not in str(world.open[0].status()["small"]) and time.monotonic() < until:
        time.sleep(0.01)
    assert text(world.call(agent, "small__charge", cents=2)) == "charged 2"


@pytest.mark.parametrize("how", ["deadline", "abort"])
def test_S1_D_a_deadline_or_an_abort_ends_a_slow_call(world, how):
    agent = world.begin(world.stdio(effects={"slow": "pure"}))
    stop = Stop()

    async def main():
        calling = asyncio.ensure_future(
            world.calling(
                agent, "small__slow", stop, 1_000 if how == "deadline" else None, seconds=60
            )
        )
        if how == "abort":
            await until_async("the call begins", world.calls)
            stop.request("the turn is ending")
        return await calling

    event = asyncio.run(main())
    assert event.outcome == ("error" if how == "deadline" else "cancelled")
    assert text(world.call(agent, "small__add", a=2, b=2)) == "4", "it serves other calls"


def command_lines(process):
    """The command lines of the living processes below this one."""
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # an earlier test's process has just ended
            yield " ".join(child.cmdline())


def test_secrets_reach_only_the_server(world):
    server = world.stdio(env={"SHOP_KEY": "hush-hush"})
    agent = world.begin(server)
    assert text(world.call(agent, "small__secret")) == "hush-hush None"
    lines = list(command_lines(psutil.Process()))
    assert any("stdio_server" in line for line in lines)
    assert not any("hush" in line for line in lines), "other users can read command lines"
    assert "hush" not in repr(server)
    (world.directory / "broken").touch()
    world.begin(server)
    assert any("***" in line for line in world.logged), "its stderr is logged, secrets masked"
    assert not any("hush" in line for line in world.logged)
    lists = (world.directory / "lists").iterdir()
    assert not any(b"hush" in path.read_bytes() for path in lists)


def test_a_server_that_is_down_keeps_its_tools_and_calls_fail_with_a_reason(world):
    first = world.begin(world.stdio())
    world.close()
    (world.directory / "broken").touch()
    agent = world.begin(world.stdio())
    assert agent.tools_json() == first.tools_json(), "the request prefix is unchanged"
    assert any("tools it listed before are kept" in line for line in world.logged)
    event = world.call(agent, "small__charge", cents=1)
    assert event.outcome == "error" and "was not run" in text(event) and "down" in text(event)
    (world.directory / "broken").unlink()
    assert text(world.call(agent, "small__charge", cents=1)) == "charged 1", "it is up again"


def test_an_agent_starts_without_a_server_that_is_unavailable(world):
    agent = world.begin(McpServer(name="no", command=("no-such-program-anywhere",)))
    assert agent.tools == () and any("it has no tools" in line for line in world.logged)
    silent = McpServer(name="mute", command=(sys.executable, "-c", "import time; time.sleep(60)"))
    assert world.begin(silent, start_s=0.5).tools == ()
    assert "no answer within 0.5 s" in world.logged[-1]


def test_doctor_reports_a_server_that_never_responds_as_down(world):
    """The defect: `doctor` reported "ok, not connected yet" until the first call, but without the
    server's tools no call can be made."""
    noise = "while True: print('no protocol at all', flush=True); __import__('time').sleep(0.1)"
    world.begin(McpServer(name="garb", command=(sys.executable, "-c", noise)), start_s=0.5)
    (finding,) = findings_of(world.open[-1].status())
    assert finding.level == "problem"
    assert finding.text == "server garb is down: no answer within 0.5 s"


def test_a_call_that_waits_too_long_for_its_server_marks_the_server_down(world, monkeypatch):
    world.begin(world.stdio())
    world.close()
    monkeypatch.setattr(connection, "CONNECT_S", 0.5)
    (world.directory / "mute").touch()
    agent = world.begin(world.stdio(), start_s=0.1)
    event = world.call(agent, "small__charge", cents=1)
    assert event.outcome == "error" and "did not answer within 0.5 s" in text(event)
    until = time.monotonic() + 10
    while str(world.open[-1].status()["small"]) != "down: no answer within 0.5 s":
        assert time.monotonic() < until, world.open[-1].status()
        time.sleep(0.02)


def test_doctor_counts_the_tools_that_the_agent_may_use(world):
    (world.directory / "tools").write_text(json.dumps([f"tool{n}" for n in range(301)]))
    agent = world.begin(world.stdio())
    (finding,) = findings_of(world.open[-1].status())
    assert len(agent.tools) == 256 and finding.text == "server small is up, 256 of its 309 tools"
    (world.directory / "tools").unlink()
    world.begin(world.stdio())
    (finding,) = findings_of(world.open[-1].status())
    assert finding.text == "server small is up, 8 tools"


def test_a_server_that_starts_too_late_provides_its_tools_at_the_next_start(world):
    server = world.stdio(effects={"charge": "idempotent"})
    agent = world.begin(server, start_s=0.01)
    assert agent.tools == () and not any("which effects names" in line for line in world.logged)
    until = time.monotonic() + 30
    while not (late := any("after the worker's next start" in line for line in world.logged)):
        assert time.monotonic() < until, world.logged
        time.sleep(0.02)
    assert late
    (finding,) = findings_of(world.open[-1].status())
    assert finding.level == "note" and "up" in finding.text, "up, but the agents lack its tools"
    assert world.begin(server, start_s=0.01).tool("small__charge"), "from the saved list"


def test_the_tools_of_an_agent_change_only_at_its_start(world):
    (world.directory / "tools").write_text('["old"]')
    agent = world.begin(world.stdio())
    assert text(world.call(agent, "small__old")) == "new"
    before = agent.tools_json()
    (world.directory / "tools").write_text('["new"]')
    (name,) = [t.name for t in agent.tools if "die" in t.name]
    world.call(agent, name)
    removed = world.call(agent, "small__old")
    assert removed.outcome == "error" and "has no such tool any more" in text(removed)
    assert agent.tools_json() == before
    assert "lists other tools than before (new, old)" in world.logged[-1]
    later = world.begin(world.stdio())
    assert later.tool("small__new") and not later.tool("small__old")


def test_an_unusable_schema_drops_only_its_own_tool(world):
    (world.directory / "odd").touch()
    agent = world.begin(world.stdio())
    assert len(agent.tools) == 5, world.logged
    log = "\n".join(world.logged)
    assert "refers to another document" in log and "nested too deeply" in log
    assert "bytes, at most 16384 are taken" in log


def test_a_rule_for_an_unknown_tool_is_logged(world):
    world.begin(world.stdio(approvals={"chrage": "deny"}))
    assert any("has no tool 'chrage', which approvals names" in line for line in world.logged)


def test_servers_exit_when_their_worker_is_killed(tmp_path):
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from foldlog import Agent, McpServer\n"
        "from foldlog.processors.outside.tools import OutsideTools\n"
        "server = McpServer(name='s', command=(sys.executable, sys.argv[1], sys.argv[2]))\n"
        "agent = Agent(name='a', model='m', mcp=[server])\n"
        "OutsideTools([agent], Path(sys.argv[2]), print, start_s=60).begin()\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    script = os.path.join(os.path.dirname(__file__), "stdio_server.py")
    command = [sys.executable, "-c", program, script, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert line_of(worker.stdout, "the server is up", within_s=90) == "up\n"
            children = psutil.Process(worker.pid).children(recursive=True)
            assert len(children) >= 2
        finally:
            worker.kill()
    _, alive = psutil.wait_procs(children, timeout=90)
    assert alive == []


def test_an_agent_without_servers_starts_no_process_and_does_not_import_mcp(tmp_path):
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from foldlog import Agent\n"
        "from foldlog.processors.outside.tools import OutsideTools\n"
        "tools = OutsideTools([Agent(name='a', model='m')], Path(sys.argv[1]) / 'x', print)\n"
        "tools.begin(); tools.close()\n"
        "assert 'mcp' not in sys.modules and not (Path(sys.argv[1]) / 'x').exists()\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60)


def test_the_error_for_a_missing_package_names_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    agent = Agent(name="a", model="m", mcp=[McpServer(name="s", url="http://127.0.0.1:1/mcp")])
    with pytest.raises(Exception, match=r"foldlog\[mcp\]"):
        OutsideTools([agent], tmp_path, print).begin()
