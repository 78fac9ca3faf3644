"""The built-in tools that edit files and run commands, on a real directory, and `read_result`."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import suppress
from hashlib import sha256

import psutil
import pytest

from foldlog.processors.effects.tool import tool_host_of
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.tools.side_log import SideLogStore
from foldlog.tests.kit.programs import output_of
from foldlog.tests.kit.waiting import within
from foldlog.tests.processors.tools.tool_bench import RecordingSink

# --- edit_file ---


def test_an_edit_changes_one_place(bench):
    path = bench.directory / "src" / "shop.py"
    path.parent.mkdir()
    path.write_text("def charge(cents):\n    return cents  # TODO charge\n")
    edit = {"path": "src/shop.py", "old_text": "return cents ", "new_text": "return 2 * cents "}
    assert bench.ok("edit_file", **edit) == "edited src/shop.py at line 2"
    text = path.read_text()
    assert text == "def charge(cents):\n    return 2 * cents  # TODO charge\n"
    assert "but new_text is: maybe it was edited before" in bench.failed("edit_file", **edit)
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("a\nb\r\nc\nd\n", "c\nd", "c\nD", "a\nb\r\nc\nD\n"),
        ("a\nb\r\nc\nd\n", "d", "one\ntwo", "a\nb\r\nc\none\ntwo\n"),
        ("a\nb\r\nc\n", "b", "one\ntwo", "a\none\r\ntwo\r\nc\n"),
        ("a\nb\r\nc\n", "a\nb\nc", "a\nx\nb\nc", "a\nx\nb\r\nc\n"),
        ("a\nb\r\nc\n", "a\nb\nc", "a\nc", "a\r\nc\n"),
        ("a\r\nb", "b", "b\nc", "a\r\nb\r\nc"),
        ("a", "a", "a\nb", "a\nb"),
        ("a\nb\n", "a\n", "a\r\n", "a\r\nb\n"),
        ("a\r\nb\n", "a\r\nb", "a\nb", "a\nb\n"),
        ("\ufeffa\nb\n", "a\nb", "c", "\ufeffc\n"),
        ("\ufeffa\r\nb", "\ufeffa", "c\nd", "\ufeffc\r\nd\r\nb"),
        ("\ufeffa", "a", "\ufeffb", "\ufeffb"),
    ],
    ids=ascii,
)
def test_an_edit_keeps_line_ends_and_a_byte_order_mark(bench, before, old, new, after):
    path = bench.directory / "f"
    path.write_bytes(before.encode())
    bench.ok("edit_file", path="f", old_text=old, new_text=new)
    assert path.read_bytes().decode() == after


@pytest.mark.parametrize(
    ("before", "old", "new"),
    [
        ("a = 1\nb = 2\n", "b = 3", "a = 1"),
        ("if x {\n  a();\n}\n", "  b();", "}"),
        ("a\n", "b", ""),
        ("a\n", "", "a\n"),
    ],
)
@pytest.mark.parametrize("attempt", [1, 2])
def test_S2_8_an_edit_that_nobody_made_is_never_already_done(bench, before, old, new, attempt):
    (bench.directory / "f").write_text(before)
    bench.failed("edit_file", path="f", old_text=old, new_text=new, attempt=attempt)
    assert (bench.directory / "f").read_text() == before


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("a b c", "b", "b b2", "a b b2 c"),
        ("a b c", "b", "xbx", "a xbx c"),
        ("new old", "old", "new", "new new"),
        ("one\ntwo\n", "one\n", "one\none and a half\n", "one\none and a half\ntwo\n"),
        ("a b c", " b", "", "a c"),
        ("a\r\nb\r\n", "a\nb\n", "a\nc\n", "a\r\nc\r\n"),
        ("same", "same", "same", "same"),
        ("ü 🎉", "🎉", "é", "ü é"),
    ],
)
def test_S2_8_an_edit_that_is_repeated_after_a_crash_is_done_once(bench, before, old, new, after):
    path = bench.directory / "f"
    path.write_bytes(before.encode())
    bench.ok("edit_file", path="f", old_text=old, new_text=new)
    assert path.read_bytes() == after.encode()
    # The worker died before it recorded the result: the next attempt runs the tool again.
    again = {"path": "f", "old_text": old, "new_text": new, "attempt": 2}
    log = bench.host.side_log.of("s1", f"2.1.{bench.calls}")
    log.intend({"becomes": sha256(after.encode()).hexdigest()})
    assert bench.ok("edit_file", **again).startswith("already done")
    assert path.read_bytes() == after.encode()
    # Its side log is lost, too: nothing is edited twice, and nothing is said to be done.
    bench.host = tool_host_of(bench.agent, bench.blobs, SideLogStore(bench.directory / ".side"))
    if old != new:
        bench.failed("edit_file", **again)
    assert path.read_bytes() == after.encode()


def test_a_new_file_is_created_once_with_its_directories(bench):
    make = {"path": "a/b/new.txt", "old_text": "", "new_text": "one\ntwo"}
    assert bench.ok("edit_file", **make) == "made a/b/new.txt, 2 lines"
    assert "already exists" in bench.failed("edit_file", **make)
    assert (bench.directory / "a/b/new.txt").read_text() == "one\ntwo"
    other = {**make, "new_text": "other"}
    assert "already exists" in bench.failed("edit_file", **other)


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        ({"path": "none", "old_text": "x"}, "there is no none; to make it"),
        ({"path": "f", "old_text": "x"}, "old_text is not in f"),
        ({"path": "f", "old_text": "twice"}, "old_text is 2 times in f"),
        ({"path": "f", "old_text": "x", "new_text": ""}, "old_text is not in f"),
        ({"path": "binary", "old_text": "x"}, "not UTF-8 text"),
        ({"path": "../f", "old_text": ""}, "must not contain"),
        ({"path": ".git/hooks/pre-commit", "old_text": ""}, "belongs to git"),
        ({"path": "link/f", "old_text": ""}, "symbolic link"),
        ({"path": "f", "old_text": "", "new_text": "x" * 2_097_153}, "longer than"),
    ],
)
def test_an_impossible_edit_is_explained(bench, edit, error):
    (bench.directory / "f").write_text("twice twice")
    (bench.directory / "binary").write_bytes(b"\xff\xfe")
    (bench.directory / "link").symlink_to("/tmp")
    assert error in bench.failed("edit_file", **{"new_text": "new", **edit})
    assert (bench.directory / "f").read_text() == "twice twice"


# --- run_command ---


def test_a_command_runs_in_the_directory_with_its_exit_code(bench):
    assert bench.ok("run_command", command="pwd; exit 3") == f"{bench.directory}\n[exit code 3]"
    assert bench.ok("run_command", command="kill -9 $$") == "[killed by signal 9]"
    assert bench.ok("run_command", command="printf x; cat") == "x\n[exit code 0]"
    assert "NUL" in bench.failed("run_command", command="a\0b")


def test_S3_9_of_a_long_output_the_last_200_lines_are_shown_and_the_whole_is_stored(bench):
    event = bench.event("run_command", command="seq 1 5000; exit 1")
    lines = event.content.inline.decode().split("\n")
    assert lines[0] == "[the first 4800 of 5000 lines are left out]"
    assert lines[1:201] == [str(n) for n in range(4801, 5001)]
    assert lines[201] == "[exit code 1]" and event.content.ref.sha256 in lines[202]
    whole = "".join(f"{n}\n" for n in range(1, 5001))
    assert bench.blobs.resolve(event.content).decode() == whole
    read = bench.ok("read_result", ref=event.content.ref.sha256, offset=10_000)
    assert whole[10_000:].startswith(read.split("\n[")[0])


def test_lines_over_the_limit_are_cut(bench):
    event = bench.event("run_command", command="head -c 50000 /dev/zero | tr '\\0' x")
    assert event.tokens <= 8_000 and event.content.ref.bytes == 50_000


def test_a_command_over_its_time_is_killed_and_reported(bench):
    text = bench.failed("run_command", command="echo begun; sleep 1000", timeout_s=1)
    assert text.startswith("begun\n") and "[killed after 1 s" in text


def test_S1_D_constraint_3_an_aborted_command_is_cancelled_not_in_doubt(bench, tmp_path):
    fifo = tmp_path / "begun"
    os.mkfifo(fifo)

    async def main():
        sink, stop = RecordingSink(), Stop()
        command = f"sleep 1000 & echo $! > {fifo}; echo out; sleep 1000"
        running = asyncio.create_task(bench.begin("run_command", sink, stop, command=command))
        pid = int(await asyncio.to_thread(within, "the command begins", fifo.read_text))
        stop.request("cancel c-1")
        await running
        return sink.only, pid

    event, pid = asyncio.run(main())
    assert event.outcome == "cancelled"
    assert "[killed (cancel c-1)" in event.content.inline.decode()
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie"


_WORKER = """
import asyncio, sys
from hashlib import sha256
from pathlib import Path
from foldlog.processors.default_agent import default_agent
from foldlog.processors.tools.side_log import SideLogStore
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.tools.call import ToolClaim, run
from foldlog.processors.effects.tool import tool_host_of
from foldlog.log.blobs import BlobStore
class Sink:
    async def outcome(self, session_id, event):
        print(event, flush=True)
async def main(state, work, args):
    agent = default_agent(work)
    host = tool_host_of(agent, BlobStore(state / "blobs"), SideLogStore(state / "side"))
    claim = ToolClaim(
        session_id="s1", turn=1, step=1, index=0, attempt=1, name="run_command", effect="once",
        approval="ask", args_sha256=sha256(args).hexdigest(), timeout_ms=60000,
    )
    await run(claim, agent.tool("run_command"), args, Sink(), Stop(), host)
asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3].encode()))
"""


def test_S2_8_F20_kill_9_of_a_worker_inside_a_command(bench, tmp_path):
    """No outcome is written, no process survives, and the effect happens once."""
    fifo, ledger = tmp_path / "begun", tmp_path / "ledger"
    os.mkfifo(fifo)
    command = f"echo run >> {ledger}; (sleep 1000 & echo $!; wait) > {fifo}"
    args = json.dumps({"command": command})
    worker = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(tmp_path), str(bench.directory), args],
        stdout=subprocess.PIPE,
    )

    def first_line():
        with open(fifo) as stream:
            return stream.readline()

    try:
        pid = int(within("the command begins", first_line))
    finally:
        worker.kill()
        output, _ = output_of(worker)
    assert output == b"" and ledger.read_text() == "run\n"
    with suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(20)


# --- read_result ---


def test_a_cut_result_can_be_read_to_its_end(bench):
    whole = "".join(f"row {n} ü\n" for n in range(20_000))
    ref = bench.blobs.put(whole.encode()).sha256
    got, offset = "", 0
    while True:
        event = bench.event("read_result", ref=ref, offset=offset)
        assert event.left_out == 0 and event.tokens <= 8_000
        text = event.content.inline.decode()
        part, _, notice = text.rpartition("\n[") if text.endswith("]") else (text, "", "")
        got += part
        if not notice:
            break
        offset = int(notice.split("offset ")[1][:-1])
    assert got == whole


def test_a_missing_or_binary_result_is_reported(bench):
    for ref in ("0" * 64, "../../etc/passwd", ""):
        assert "no result of this session is kept" in bench.failed("read_result", ref=ref)
    binary = bench.blobs.put(b"\xff\xfe").sha256
    assert "binary" in bench.failed("read_result", ref=binary)
    text = bench.blobs.put(b"abc").sha256
    assert "nothing follows 3" in bench.failed("read_result", ref=text, offset=3)
