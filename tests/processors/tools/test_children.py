"""The processes of a tool end with the command, the run or the worker, whichever ends first."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from foldlog.processors.tools.children import Children
from foldlog.processors.tools.output_sink import Stop
from foldlog.tests.kit.programs import END_S
from foldlog.tests.kit.waiting import within

DEATH_S = 90  # how long a test waits for a process to end before it fails; not a measurement


def run_commands(use, **options):
    async def main():
        stop = Stop()
        children = Children(stop, **options)
        try:
            async with asyncio.timeout(2 * DEATH_S):
                return await use(children, stop)
        finally:
            await children.close()

    return asyncio.run(main())


def shell(text, **options):
    return run_commands(lambda children, _: children.run(["sh", "-c", text], **options))


def is_dead(process):
    """Whether a process has ended, even if its parent has not reaped it yet."""
    try:
        process.wait(0.02)
    except psutil.TimeoutExpired:
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def wait_dead(pids):
    """Whether all of these processes end in time."""
    deadline = time.monotonic() + DEATH_S
    for pid in pids:
        try:
            process = psutil.Process(pid)
            while not is_dead(process):
                if time.monotonic() > deadline:
                    return False
        except psutil.NoSuchProcess:
            continue
    return True


# Four processes remain: a child, its child, one in a new group, a daemon's double fork.
LEAVE_BEHIND = """
sleep 1000 & echo $!
(sleep 1000 & echo $!; wait) &
setsid sh -c 'echo $$; exec sleep 1000' &
(setsid sh -c '(echo $$; exec sleep 1000) &') &
"""


def pids_of(lines):
    found = [int(line) for line in lines]
    assert len(found) == 4 and all(found)
    return found


@pytest.mark.parametrize(
    ("text", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9), ("kill -TERM $$", -15)]
)
def test_a_command_ends_with_its_exit_code_or_signal(text, code):
    ended = shell(f"echo out; echo err >&2; {text}")
    assert (ended.code, ended.output, ended.why) == (code, b"out\nerr\n", None)


def test_a_missing_command_ends_like_in_a_shell():
    ended = run_commands(lambda children, _: children.run(["no-such-command-here"]))
    assert ended.code == 127 and b"no-such-command-here: No such file" in ended.output


def test_a_missing_directory_raises(tmp_path):
    with pytest.raises(FileNotFoundError):
        shell("true", cwd=tmp_path / "missing")


def test_commands_do_not_get_the_secrets_of_the_worker(monkeypatch, tmp_path):
    """A list of suspicious names is not enough: a variable such as SOME_DB_URL may contain a
    password."""
    for name in ("ANTHROPIC_API_KEY", "my_token", "SOME_DB_URL", "LC_HARMLESS"):
        monkeypatch.setenv(name, "canary")
    text = "env; cat /proc/$PPID/environ; echo $PWD"
    ended = shell(text, env={"ADDED": "given"}, cwd=tmp_path)
    lines = ended.output.decode().replace("\0", "\n").split("\n")
    assert {line for line in lines if "canary" in line} == {"LC_HARMLESS=canary"}
    assert lines.count("ADDED=given") == 1, "not in the reaper's"
    assert str(tmp_path) in lines


def test_commands_get_the_variables_that_the_operator_names(monkeypatch):
    monkeypatch.setenv("SOME_DB_URL", "postgres://user:pw@db/x")

    command = ["sh", "-c", "echo $SOME_DB_URL"]
    ended = run_commands(lambda children, _: children.run(command), env_names=["SOME_*"])
    assert ended.output == b"postgres://user:pw@db/x\n"


def test_variables_larger_than_a_socket_buffer_reach_the_command():
    """The defect: the variables were sent before their reader started, which blocked the loop and
    so the whole worker."""
    given = {f"PART_{number}": str(number) * 100_000 for number in range(6)}
    ended = shell("printf '%s' \"$PART_0$PART_5\" | wc -c", env=given)
    assert ended.output.strip() == b"200000"


def test_standard_input_is_empty():
    assert shell("cat; echo end").output == b"end\n"


def test_output_is_cut_to_its_head_and_tail():
    ended = shell("seq 1 100000", output_bytes_max=4_000)
    assert len(ended.output) == 4_000
    assert ended.output.startswith(b"1\n2\n") and ended.output.endswith(b"99999\n100000\n")
    assert ended.left_out == sum(len(str(n)) + 1 for n in range(1, 100_001)) - 4_000


def test_processes_left_behind_by_a_command_are_killed():
    ended = shell(f"{LEAVE_BEHIND} sleep 0.2")
    assert ended.code == 0 and wait_dead(pids_of(ended.output.split()))


def test_constraint_3_at_its_timeout_a_command_and_all_it_started_are_killed():
    ended = shell(f"trap '' TERM; {LEAVE_BEHIND} sleep 1000", timeout_s=0.5)
    assert (ended.code, ended.why) == (-9, "timeout")
    assert wait_dead(pids_of(ended.output.split()))


def test_a_command_may_clean_up_on_SIGTERM():
    ended = shell("trap 'echo cleaned; exit 5' TERM; sleep 1000 & wait", timeout_s=1.5)
    assert (ended.code, ended.output, ended.why) == (5, b"cleaned\n", "timeout")


def pids_from(fifo):
    """The four process ids that a command writes into a pipe."""

    def lines():
        with open(fifo) as stream:
            return [stream.readline() for _ in range(4)]

    return pids_of(within("the command has started its processes", lines))


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "pids"
    os.mkfifo(path)
    return path


def test_constraint_3_an_abort_kills_the_command_and_all_it_started(fifo):
    async def use(children, stop):
        command = ["sh", "-c", f"({LEAVE_BEHIND}) > {fifo}; sleep 1000"]
        running = asyncio.create_task(children.run(command))
        pids = await asyncio.to_thread(pids_from, fifo)
        stop.request("cancel c-1")
        ended = await running
        with pytest.raises(OSError, match="the run is ending"):
            await children.run(["true"])
        return ended, pids

    ended, pids = run_commands(use)
    assert ended.why == "cancel c-1" and wait_dead(pids)


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_constraint_3_a_run_that_ends_kills_its_commands(fifo, how):
    async def use(children, stop):
        command = ["sh", "-c", f"({LEAVE_BEHIND}) > {fifo}; sleep 1000"]
        running = asyncio.create_task(children.run(command))
        pids = await asyncio.to_thread(pids_from, fifo)
        if how == "cancel":
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        else:
            await children.close()
            assert (await running).code == -9
        return pids

    assert wait_dead(run_commands(use))


def test_a_tool_in_a_thread_may_run_commands():
    async def use(children, stop):
        return await asyncio.to_thread(children.run_blocking, ["sh", "-c", "echo hi"])

    assert run_commands(use).output == b"hi\n"


_WORKER = """
import asyncio, sys
from foldlog.processors.tools.children import Children
from foldlog.processors.tools.output_sink import Stop
async def main():
    await Children(Stop()).run(["sh", "-c", sys.argv[1]])
asyncio.run(main())
"""


def test_S2_8_F20_kill_9_of_the_worker_kills_the_processes_of_its_tools(fifo):
    text = f"({LEAVE_BEHIND}) > {fifo}; sleep 1000"
    worker = subprocess.Popen([sys.executable, "-c", _WORKER, text])
    try:
        pids = pids_from(fifo)
        children = psutil.Process(worker.pid).children(recursive=True)
        assert len(children) >= 3, "reaper, shell and the sleeps"
    finally:
        worker.kill()
        worker.wait(END_S)
    assert wait_dead(pids) and wait_dead([child.pid for child in children])


def test_kill_9_of_the_reaper_kills_the_command(fifo):
    async def use(children, stop):
        command = ["sh", "-c", f"echo $$ > {fifo}; exec sleep 1000"]
        running = asyncio.create_task(children.run(command))
        pid = int(await asyncio.to_thread(within, "the command begins", fifo.read_text))
        os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
        return (await running).code, pid

    code, pid = run_commands(use)
    assert code == -9 and wait_dead([pid])


def test_no_descriptor_and_no_process_is_leaked():
    me = psutil.Process()
    others = set(me.children())  # a broker that other tests of this run share

    async def use(children, stop):
        await children.run(["true"])  # the loop has now opened what it keeps open
        before = me.num_fds()
        for _ in range(5):
            await children.run(["sh", "-c", "sleep 1000 &"])
            await children.run(["sleep", "1000"], timeout_s=0.01)
        return before, me.num_fds()

    before, after = run_commands(use)
    assert after <= before
    left = set(me.children()) - others
    assert [p for p in left if p.status() != psutil.STATUS_ZOMBIE] == []
