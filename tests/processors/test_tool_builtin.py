"""The built-in tools on a real directory, run as a worker runs them."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from hashlib import sha256

import psutil
import pytest

from foldlog.processors import builtin_tools
from foldlog.processors.agent import Agent
from foldlog.processors.builtin_tools import default_agent, tools
from foldlog.processors.effects.side_log import SideLogStore
from foldlog.processors.effects.sink import Stop
from foldlog.processors.effects.tools import ToolClaim, ToolHost, run
from foldlog.processors.limits import Limits
from foldlog.producers.blobs import BlobStore
from foldlog.schemas.words import Approval, Effect


class Told:
    def __init__(self):
        self.events = []

    async def outcome(self, session_id, event):
        self.events.append(event)


class Bench:
    """A working directory and the tools on it."""

    def __init__(self, directory, state):
        self.directory = directory
        self.agent = default_agent(directory)
        self.blobs = BlobStore(state / "blobs")
        self.host = ToolHost.of(self.agent, self.blobs, SideLogStore(state / "side_log"))
        self.calls = 0

    async def begin(self, name, told, stop, attempt=1, **arguments):
        if attempt == 1:
            self.calls += 1
        args = json.dumps(arguments).encode()
        a_tool = self.agent.tool(name)
        claim = ToolClaim(
            session_id="s1",
            turn=1,
            step=1,
            index=self.calls,
            attempt=attempt,
            name=name,
            effect=a_tool.effect,
            approval="none",
            args_sha256=sha256(args).hexdigest(),
            timeout_ms=a_tool.timeout_ms or 120_000,
        )
        await run(claim, a_tool, args, told, stop, self.host)

    def event(self, name, **arguments):
        told = Told()
        asyncio.run(self.begin(name, told, Stop(), **arguments))
        (event,) = told.events
        return event

    def ok(self, name, **arguments):
        event = self.event(name, **arguments)
        assert event.outcome == "ok", event
        return event.content.inline.decode()

    def failed(self, name, **arguments):
        event = self.event(name, **arguments)
        assert event.outcome == "error", event
        return event.content.inline.decode()


@pytest.fixture
def bench(tmp_path):
    (tmp_path / "work").mkdir()
    return Bench(tmp_path / "work", tmp_path / "state")


@pytest.fixture
def tree(bench):
    """A small project, with what must not be searched or left."""
    root = bench.directory
    files = {
        "README.md": "# Shop\nIt charges cards.\n",
        "src/shop.py": "def charge(cents):\n    return cents  # TODO charge\n",
        "src/deep/other.py": "import shop\n",
        "node_modules/x/charge.js": "charge",
        ".git/config": "charge",
        "data.bin": "charge\0charge",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "link").symlink_to("/etc")
    return root


def test_the_agent_has_what_a_user_expects(tmp_path):
    agent = default_agent(tmp_path)
    assert agent.name == "default" and agent.workdir == tmp_path
    decided = {t.name: (t.effect, t.approval) for t in tools(tmp_path)}
    assert decided == {
        "list_directory": (Effect.PURE, Approval.NONE),
        "read_file": (Effect.PURE, Approval.NONE),
        "search_files": (Effect.PURE, Approval.NONE),
        "edit_file": (Effect.IDEMPOTENT, Approval.ASK),
        "run_command": (Effect.ONCE, Approval.ASK),
        "read_result": (Effect.PURE, Approval.NONE),
        "complete": (Effect.PURE, Approval.NONE),
    }
    assert len(agent.tools_json()) < 5_000, "S3.9: schemas are in every request"


def test_S1_F_complete_stops_the_turn(bench):
    assert [t.name for t in bench.agent.tools if t.stops] == ["complete"]
    assert bench.ok("complete", summary="all done") == "done"


def test_without_a_working_directory_the_tools_say_so(bench, tmp_path):
    bench.agent = Agent(name="a", model="m", tools=builtin_tools.ALL)
    bench.host = ToolHost.of(bench.agent, bench.blobs, SideLogStore(tmp_path / "s"))
    calls = {
        "list_directory": {},
        "read_file": {"path": "x"},
        "search_files": {"pattern": "x"},
        "edit_file": {"path": "x", "old_text": "", "new_text": ""},
        "run_command": {"command": "true"},
    }
    for name, arguments in calls.items():
        assert "no working directory" in bench.failed(name, **arguments)


# --- list_directory ---


def test_a_directory_is_listed_without_git(bench, tree):
    assert bench.ok("list_directory").split("\n") == [
        "node_modules/",
        "src/",
        "README.md  25",
        "data.bin  13",
        "link -> /etc",
    ]
    assert bench.ok("list_directory", path="src", pattern="*.py") == "shop.py  51"
    assert "no more of 0 entries" in bench.ok("list_directory", pattern="*.rs")
    assert "symbolic link to /etc" in bench.failed("list_directory", path="link")
    assert "belongs to git" in bench.failed("list_directory", path=".git")


def test_S3_5_a_listing_gives_100_rows_and_n_more(bench):
    for n in range(250):
        (bench.directory / f"f{n:03}").touch()
    lines = bench.ok("list_directory").split("\n")
    assert len(lines) == 101 and lines[-1] == "150 more; continue with offset 100"
    lines = bench.ok("list_directory", offset=200).split("\n")
    assert lines[0] == "f200  0" and len(lines) == 50


def test_odd_file_names_stay_on_one_line(bench):
    (bench.directory / "new\nline").touch()
    open(os.fsencode(bench.directory) + b"/not-\xff-text", "w").close()
    assert bench.ok("list_directory").split("\n") == ["'new\\nline'  0", "not-\ufffd-text  0"]


# --- read_file ---


def test_a_file_is_read_with_line_numbers(bench, tree):
    assert bench.ok("read_file", path="README.md") == "1\t# Shop\n2\tIt charges cards."
    assert bench.ok("read_file", path="README.md", offset=2) == "2\tIt charges cards."
    assert "has 2 lines" in bench.failed("read_file", path="README.md", offset=3)
    assert "data.bin is binary (13 bytes)" in bench.failed("read_file", path="data.bin")
    assert "there is no nothing" in bench.failed("read_file", path="nothing")


def test_S3_5_a_long_file_is_read_in_parts_and_nothing_is_lost(bench):
    text = "".join(f"line number {n}\n" for n in range(1, 3_001))
    (bench.directory / "long").write_text(text)
    got, offset = [], 1
    while offset:
        event = bench.event("read_file", path="long", offset=offset, limit=2_000)
        assert event.left_out == 0 and event.tokens <= 8_000, "it cuts itself"
        *lines, last = event.content.inline.decode().split("\n")
        if not last.startswith("["):
            lines.append(last)
        got += [line.split("\t")[1] for line in lines]
        offset = int(last.split("offset ")[1][:-1]) if last.startswith("[") else 0
    assert got == text.splitlines()


def test_long_lines_are_cut_and_counted(bench):
    (bench.directory / "min.js").write_text("x" * 10_000 + "\nshort")
    lines = bench.ok("read_file", path="min.js").split("\n")
    assert lines[0].endswith("x [8000 characters of this line left out]")
    assert lines[1] == "2\tshort"


def test_odd_files_are_read(bench):
    (bench.directory / "empty").touch()
    (bench.directory / "latin").write_bytes("Stra\xdfe\r\nzwei\r\n".encode("latin-1"))
    (bench.directory / "wide").write_text("漢" * 3_000)
    os.mkfifo(bench.directory / "pipe")
    assert bench.ok("read_file", path="empty") == "(the file is empty)"
    assert bench.ok("read_file", path="latin") == "1\tStra\ufffde\n2\tzwei"
    assert bench.ok("read_file", path="wide").startswith("1\t漢漢")
    assert "no regular file" in bench.failed("read_file", path="pipe")


def test_a_small_limit_still_gives_a_line(bench):
    (bench.directory / "wide").write_text("漢" * 1_000 + "\nnext")
    bench.agent = default_agent(bench.directory, limits=Limits(result_tokens=300))
    bench.host = ToolHost.of(bench.agent, bench.blobs, bench.host.side_log)
    event = bench.event("read_file", path="wide")
    assert event.tokens <= 300 and event.content.ref is not None


# --- search_files ---


def test_files_are_searched(bench, tree):
    assert bench.ok("search_files", pattern="charge").split("\n") == [
        "README.md:2: It charges cards.",
        "src/shop.py:1: def charge(cents):",
        "src/shop.py:2: return cents  # TODO charge",
    ]
    assert bench.ok("search_files", pattern="SHOP$", ignore_case=True).split("\n") == [
        "README.md:1: # Shop",
        "src/deep/other.py:1: import shop",
    ]
    assert bench.ok("search_files", pattern="(cents)", literal=True, path="src") == (
        "src/shop.py:1: def charge(cents):"
    )
    assert bench.ok("search_files", pattern="cards", path="README.md") == (
        "README.md:2: It charges cards."
    )
    assert bench.ok("search_files", pattern="zzz") == "(no match in 3 files, 1 skipped)"


@pytest.mark.parametrize("glob", ["*.py", "**/*.py", "src/*.py"])
def test_a_glob_narrows_a_search_and_an_empty_pattern_lists(bench, tree, glob):
    assert bench.ok("search_files", pattern="", glob=glob).split("\n") == [
        "src/shop.py",
        "src/deep/other.py",
    ]


def test_S1_D_a_search_does_not_follow_links(bench, tmp_path):
    (tmp_path / "secret").write_text("canary")
    (bench.directory / "link").symlink_to(tmp_path / "secret")
    (bench.directory / "dir").symlink_to(tmp_path)
    assert bench.ok("search_files", pattern="canary") == "(no match in 0 files, 1 skipped)"
    for path in ("link", "dir", "dir/secret", "..", "../secret", str(tmp_path)):
        assert "canary" not in bench.failed("search_files", pattern="canary", path=path)


def test_S3_5_a_search_gives_100_rows_and_n_more(bench):
    (bench.directory / "many").write_text("hit\n" * 350)
    lines = bench.ok("search_files", pattern="hit").split("\n")
    assert len(lines) == 101 and lines[-1] == "250 more; continue with offset 100"
    lines = bench.ok("search_files", pattern="hit", offset=300).split("\n")
    assert lines[0] == "many:301: hit" and len(lines) == 50
    (bench.directory / "many").write_text("hit\n" * 20_000)
    assert bench.ok("search_files", pattern="hit").endswith(
        "at least 9901 more; continue with offset 100"
    )


def test_a_wrong_pattern_is_explained(bench):
    assert "no regular expression" in bench.failed("search_files", pattern="(")
    assert "longer than 1000" in bench.failed("search_files", pattern="x" * 1_001)


def test_a_pattern_that_never_ends_is_killed_and_says_so(bench, monkeypatch):
    (bench.directory / "a").write_text("found a\n")
    (bench.directory / "b").write_text("a" * 60 + "!\n")
    monkeypatch.setattr(builtin_tools, "SEARCH_KILL_S", 0.5)
    text = bench.ok("search_files", pattern="^(a+)+$|found")
    assert "the pattern may never end" in text and text.startswith("a:1: found a\n")


# --- edit_file ---


def test_an_edit_changes_one_place(bench, tree):
    edit = {"path": "src/shop.py", "old_text": "return cents ", "new_text": "return 2 * cents "}
    assert bench.ok("edit_file", **edit) == "edited src/shop.py at line 2"
    text = (tree / "src/shop.py").read_text()
    assert text == "def charge(cents):\n    return 2 * cents  # TODO charge\n"
    assert bench.ok("edit_file", **edit).startswith("already done")
    assert (tree / "src/shop.py").read_text() == text


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        ("a b c", "b", "b b2", "a b b2 c"),
        ("a b c", "b", "xbx", "a xbx c"),
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
    # The worker died before it could note the result: the next attempt runs the tool again.
    bench.host = ToolHost.of(bench.agent, bench.blobs, SideLogStore(bench.directory / ".side"))
    text = bench.ok("edit_file", path="f", old_text=old, new_text=new, attempt=2)
    assert text.startswith("already done")
    assert path.read_bytes() == after.encode()


def test_a_new_file_is_made_with_its_directories_once(bench):
    make = {"path": "a/b/new.txt", "old_text": "", "new_text": "one\ntwo"}
    assert bench.ok("edit_file", **make) == "made a/b/new.txt, 2 lines"
    assert bench.ok("edit_file", **make).startswith("already done")
    assert (bench.directory / "a/b/new.txt").read_text() == "one\ntwo"
    other = {**make, "new_text": "other"}
    assert "exists already" in bench.failed("edit_file", **other)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"path": "none", "old_text": "x"}, "there is no none; to make it"),
        ({"path": "f", "old_text": "x"}, "old_text is not in f"),
        ({"path": "f", "old_text": "twice"}, "old_text is 2 times in f"),
        ({"path": "f", "old_text": "x", "new_text": ""}, "old_text is not in f"),
        ({"path": "binary", "old_text": "x"}, "no UTF-8 text"),
        ({"path": "../f", "old_text": ""}, "must not contain"),
        ({"path": ".git/hooks/pre-commit", "old_text": ""}, "belongs to git"),
        ({"path": "link/f", "old_text": ""}, "symbolic link"),
        ({"path": "f", "old_text": "", "new_text": "x" * 2_097_153}, "longer than"),
    ],
)
def test_an_edit_that_can_not_be_made_is_explained(bench, edit, says):
    (bench.directory / "f").write_text("twice twice")
    (bench.directory / "binary").write_bytes(b"\xff\xfe")
    (bench.directory / "link").symlink_to("/tmp")
    assert says in bench.failed("edit_file", **{"new_text": "new", **edit})
    assert (bench.directory / "f").read_text() == "twice twice"


# --- run_command ---


def test_a_command_runs_in_the_directory_with_its_exit_code(bench):
    assert bench.ok("run_command", command="pwd; exit 3") == f"{bench.directory}\n[exit code 3]"
    assert bench.ok("run_command", command="kill -9 $$") == "[killed by signal 9]"
    assert bench.ok("run_command", command="printf x; cat") == "x\n[exit code 0]"
    assert "NUL" in bench.failed("run_command", command="a\0b")


def test_S3_9_of_a_long_output_the_last_200_lines_are_served_and_the_whole_is_kept(bench):
    event = bench.event("run_command", command="seq 1 5000; exit 1")
    lines = event.content.inline.decode().split("\n")
    assert lines[0] == "[the first 4800 of 5000 lines are left out]"
    assert lines[1:201] == [str(n) for n in range(4801, 5001)]
    assert lines[201] == "[exit code 1]" and event.content.ref.sha256 in lines[202]
    whole = "".join(f"{n}\n" for n in range(1, 5001))
    assert bench.blobs.resolve(event.content).decode() == whole
    read = bench.ok("read_result", ref=event.content.ref.sha256, offset=10_000)
    assert whole[10_000:].startswith(read.split("\n[")[0])


def test_lines_that_are_too_long_for_the_limit_are_cut_too(bench):
    event = bench.event("run_command", command="head -c 50000 /dev/zero | tr '\\0' x")
    assert event.tokens <= 8_000 and event.content.ref.bytes == 50_000


def test_a_command_over_its_time_is_killed_and_the_tool_says_so(bench):
    text = bench.failed("run_command", command="echo begun; sleep 1000", timeout_s=1)
    assert text.startswith("begun\n") and "[killed after 1 s" in text


def test_S1_D_constraint_3_an_aborted_command_is_cancelled_not_in_doubt(bench, tmp_path):
    fifo = tmp_path / "begun"
    os.mkfifo(fifo)

    async def main():
        told, stop = Told(), Stop()
        command = f"sleep 1000 & echo $! > {fifo}; echo out; sleep 1000"
        running = asyncio.create_task(bench.begin("run_command", told, stop, command=command))
        pid = int(await asyncio.to_thread(fifo.read_text))
        stop.request("cancel c-1")
        await running
        return told.events[0], pid

    event, pid = asyncio.run(main())
    assert event.outcome == "cancelled"
    assert "[killed (cancel c-1)" in event.content.inline.decode()
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie"


_WORKER = """
import asyncio, sys
from hashlib import sha256
from pathlib import Path
from foldlog.processors.builtin_tools import default_agent
from foldlog.processors.effects.side_log import SideLogStore
from foldlog.processors.effects.sink import Stop
from foldlog.processors.effects.tools import ToolClaim, ToolHost, run
from foldlog.producers.blobs import BlobStore
class Sink:
    async def outcome(self, session_id, event):
        print(event, flush=True)
async def main(state, work, args):
    agent = default_agent(work)
    host = ToolHost.of(agent, BlobStore(state / "blobs"), SideLogStore(state / "side"))
    claim = ToolClaim(
        session_id="s1", turn=1, step=1, index=0, attempt=1, name="run_command", effect="once",
        approval="ask", args_sha256=sha256(args).hexdigest(), timeout_ms=60000,
    )
    await run(claim, agent.tool("run_command"), args, Sink(), Stop(), host)
asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3].encode()))
"""


def test_S2_8_F20_kill_9_of_a_worker_inside_a_command(bench, tmp_path):
    """No outcome is written, nothing goes on running, and what was done was done once."""
    fifo, ledger = tmp_path / "begun", tmp_path / "ledger"
    os.mkfifo(fifo)
    command = f"echo run >> {ledger}; (sleep 1000 & echo $!; wait) > {fifo}"
    args = json.dumps({"command": command})
    worker = subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(tmp_path), str(bench.directory), args],
        stdout=subprocess.PIPE,
    )
    try:
        with open(fifo) as stream:
            pid = int(stream.readline())
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        said, _ = worker.communicate()
    assert said == b"" and ledger.read_text() == "run\n"
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


def test_a_result_that_is_not_there_or_not_text(bench):
    for ref in ("0" * 64, "../../etc/passwd", ""):
        assert "no result is kept" in bench.failed("read_result", ref=ref)
    binary = bench.blobs.put(b"\xff\xfe").sha256
    assert "binary" in bench.failed("read_result", ref=binary)
    text = bench.blobs.put(b"abc").sha256
    assert "nothing follows 3" in bench.failed("read_result", ref=text, offset=3)
