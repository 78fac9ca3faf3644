"""Processes of a tool end with the command, the run or the worker, whichever is first."""

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

DEATH_S = 20  # how long a test waits for a death before it is red; nothing is measured


def run_commands(use):
    async def main():
        stop = Stop()
        children = Children(stop)
        try:
            async with asyncio.timeout(2 * DEATH_S):
                return await use(children, stop)
        finally:
            await children.close()

    return asyncio.run(main())


def shell(text, **options):
    return run_commands(lambda children, _: children.run(["sh", "-c", text], **options))


def is_dead(process):
    """Whether it has ended; a zombie that its parent has not buried yet is dead."""
    try:
        process.wait(0.02)
    except psutil.TimeoutExpired:
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def wait_dead(pids):
    """Whether all of them end."""
    patience = time.monotonic() + DEATH_S
    for pid in pids:
        try:
            process = psutil.Process(pid)
            while not is_dead(process):
                if time.monotonic() > patience:
                    return False
        except psutil.NoSuchProcess:
            continue
    return True


# Four ways to stay behind: a child, its child, one in a group of its own, a daemon's double fork.
STAY_BEHIND = """
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
def test_it_ends_as_the_command_ends(text, code):
    ended = shell(f"echo out; echo err >&2; {text}")
    assert (ended.code, ended.output, ended.why) == (code, b"out\nerr\n", None)


def test_a_command_that_does_not_exist_is_told_as_a_shell_would():
    ended = run_commands(lambda children, _: children.run(["no-such-command-here"]))
    assert ended.code == 127 and b"no-such-command-here: No such file" in ended.output


def test_a_directory_that_does_not_exist_raises(tmp_path):
    with pytest.raises(FileNotFoundError):
        shell("true", cwd=tmp_path / "missing")


def test_secrets_of_the_worker_stay_with_the_worker(monkeypatch, tmp_path):
    """Names alone did not tell: SOME_DB_URL holds a password and looks like nothing."""
    for name in ("ANTHROPIC_API_KEY", "my_token", "SOME_DB_URL", "LC_HARMLESS"):
        monkeypatch.setenv(name, "canary")
    text = "env; cat /proc/$PPID/environ; echo $PWD"
    ended = shell(text, env={"ADDED": "given"}, cwd=tmp_path)
    lines = ended.output.decode().replace("\0", "\n").split("\n")
    assert {line for line in lines if "canary" in line} == {"LC_HARMLESS=canary"}
    assert lines.count("ADDED=given") == 1, "not in the reaper's"
    assert str(tmp_path) in lines


def test_an_operator_names_what_else_commands_get(monkeypatch):
    monkeypatch.setenv("SOME_DB_URL", "postgres://user:pw@db/x")

    async def main():
        children = Children(Stop(), env_names=["SOME_*"])
        try:
            return await children.run(["sh", "-c", "echo $SOME_DB_URL"])
        finally:
            await children.close()

    assert asyncio.run(main()).output == b"postgres://user:pw@db/x\n"


def test_variables_that_no_socket_holds_at_once_reach_the_command():
    """They were sent before anybody read: the loop stood still, and with it the whole worker."""
    given = {f"PART_{number}": str(number) * 100_000 for number in range(6)}
    ended = shell("printf '%s' \"$PART_0$PART_5\" | wc -c", env=given)
    assert ended.output.strip() == b"200000"


def test_standard_input_is_empty():
    assert shell("cat; echo end").output == b"end\n"


def test_output_is_bounded_head_and_tail():
    ended = shell("seq 1 100000", output_bytes_max=4_000)
    assert len(ended.output) == 4_000
    assert ended.output.startswith(b"1\n2\n") and ended.output.endswith(b"99999\n100000\n")
    assert ended.left_out == sum(len(str(n)) + 1 for n in range(1, 100_001)) - 4_000


def test_what_a_command_leaves_behind_dies_with_it():
    ended = shell(f"{STAY_BEHIND} sleep 0.2")
    assert ended.code == 0 and wait_dead(pids_of(ended.output.split()))


def test_constraint_3_at_its_timeout_a_command_and_all_it_started_are_killed():
    ended = shell(f"trap '' TERM; {STAY_BEHIND} sleep 1000", timeout_s=0.5)
    assert (ended.code, ended.why) == (-9, "timeout")
    assert wait_dead(pids_of(ended.output.split()))


def test_a_command_may_clean_up_when_it_is_told_to_end():
    ended = shell("trap 'echo cleaned; exit 5' TERM; sleep 1000 & wait", timeout_s=0.3)
    assert (ended.code, ended.output, ended.why) == (5, b"cleaned\n", "timeout")


def pids_told(fifo):
    """The four process ids that a command writes into a pipe, once they are there."""
    with open(fifo) as stream:
        return pids_of([stream.readline() for _ in range(4)])


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "pids"
    os.mkfifo(path)
    return path


def test_constraint_3_an_abort_kills_the_command_and_all_it_started(fifo):
    async def use(children, stop):
        command = ["sh", "-c", f"({STAY_BEHIND}) > {fifo}; sleep 1000"]
        running = asyncio.create_task(children.run(command))
        pids = await asyncio.to_thread(pids_told, fifo)
        stop.request("cancel c-1")
        ended = await running
        with pytest.raises(OSError, match="the run is ending"):
            await children.run(["true"])
        return ended, pids

    ended, pids = run_commands(use)
    assert ended.why == "cancel c-1" and wait_dead(pids)


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_constraint_3_a_run_that_ends_takes_its_commands_with_it(fifo, how):
    async def use(children, stop):
        command = ["sh", "-c", f"({STAY_BEHIND}) > {fifo}; sleep 1000"]
        running = asyncio.create_task(children.run(command))
        pids = await asyncio.to_thread(pids_told, fifo)
        if how == "cancel":
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        else:
            await children.close()
            assert (await running).code == -9
        return pids

    assert wait_dead(run_commands(use))


def test_a_tool_in_a_thread_has_the_same_commands():
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


def test_S2_8_F20_kill_9_of_the_worker_kills_what_its_tools_had_started(fifo):
    text = f"({STAY_BEHIND}) > {fifo}; sleep 1000"
    worker = subprocess.Popen([sys.executable, "-c", _WORKER, text])
    try:
        pids = pids_told(fifo)
        children = psutil.Process(worker.pid).children(recursive=True)
        assert len(children) >= 3, "reaper, shell and the sleeps"
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
    assert wait_dead(pids) and wait_dead([child.pid for child in children])


def test_kill_9_of_the_keeper_kills_the_command(fifo):
    async def use(children, stop):
        command = ["sh", "-c", f"echo $$ > {fifo}; exec sleep 1000"]
        running = asyncio.create_task(children.run(command))
        pid = int(await asyncio.to_thread(fifo.read_text))
        os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
        return (await running).code, pid

    code, pid = run_commands(use)
    assert code == -9 and wait_dead([pid])


def test_no_descriptor_and_no_process_is_left_over():
    me = psutil.Process()
    others = set(me.children())  # a broker that other tests of this run share

    async def use(children, stop):
        await children.run(["true"])  # whatever the loop opens once is open now
        before = me.num_fds()
        for _ in range(5):
            await children.run(["sh", "-c", "sleep 1000 &"])
            await children.run(["sleep", "1000"], timeout_s=0.01)
        return before, me.num_fds()

    before, after = run_commands(use)
    assert after <= before
    left = set(me.children()) - others
    assert [p for p in left if p.status() != psutil.STATUS_ZOMBIE] == []
