"""The built-in tools that only read. They run on a real directory, as a worker runs them."""

import os

import pytest

from foldlog.processors.agent import Agent
from foldlog.processors.default_agent import default_agent
from foldlog.processors.effects.tool import tool_host_of
from foldlog.processors.limits import Limits
from foldlog.processors.tools import builtin as builtin_tools
from foldlog.processors.tools.builtin import tools
from foldlog.processors.tools.side_log import SideLogStore
from foldlog.schemas.enums import Approval, Effect


@pytest.fixture
def tree(bench):
    """A small project that has files that must not be searched, and a link that leads out of the
    project."""
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


def test_the_default_agent_has_these_tools_and_approvals(tmp_path):
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


def test_without_a_working_directory_the_tools_fail(bench, tmp_path):
    bench.agent = Agent(name="a", model="m", tools=builtin_tools.ALL)
    bench.host = tool_host_of(bench.agent, bench.blobs, SideLogStore(tmp_path / "s"))
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


def test_unusual_files_are_read(bench):
    (bench.directory / "empty").touch()
    (bench.directory / "latin").write_bytes("Stra\xdfe\r\nzwei\r\n".encode("latin-1"))
    (bench.directory / "wide").write_text("漢" * 3_000)
    os.mkfifo(bench.directory / "pipe")
    assert bench.ok("read_file", path="empty") == "(the file is empty)"
    assert bench.ok("read_file", path="latin") == "1\tStra\ufffde\n2\tzwei"
    assert bench.ok("read_file", path="wide").startswith("1\t漢漢")
    assert "not a regular file" in bench.failed("read_file", path="pipe")


def test_a_small_limit_still_gives_a_line(bench):
    (bench.directory / "wide").write_text("漢" * 1_000 + "\nnext")
    bench.agent = default_agent(bench.directory, limits=Limits(result_tokens=300))
    bench.host = tool_host_of(bench.agent, bench.blobs, bench.host.side_log)
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


def test_an_invalid_pattern_is_explained(bench):
    assert "not a regular expression" in bench.failed("search_files", pattern="(")
    assert "longer than 1000" in bench.failed("search_files", pattern="x" * 1_001)


def test_a_pattern_that_never_ends_is_killed_and_reported(bench, monkeypatch):
    (bench.directory / "a").write_text("found a\n")
    (bench.directory / "b").write_text("a" * 60 + "!\n")
    for limit_s in (0.5, 2, 8, 32):  # a busy machine may need more to reach the second file
        monkeypatch.setattr(builtin_tools, "SEARCH_KILL_S", limit_s)
        text = bench.ok("search_files", pattern="^(a+)+$|found")
        if text.startswith("a:1"):
            break
    assert "the pattern may never end" in text and text.startswith("a:1: found a\n")
