"""The Makefile, .ci/run, the linter and the type checker, which people and CI servers run."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from foldlog.tests.schemas.built_decoder import can_compile
from foldlog.tests.structure.tree import ROOT, demand_none

TARGETS = """
    accelerate adapter bench clean docs help lint lock pictures quick recording run screenshot
    search setup soak states test
""".split()


def _run(*command: str, cwd=ROOT, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False,
        # Without make's own variables: these tests may themselves be run by `make test`.
        env={k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
        | environment,
        timeout=60,
    )


def test_make_alone_lists_every_target():
    ran = _run("make")
    assert ran.returncode == 0
    listed = re.findall(r"^  make ([a-z]+) +\S", ran.stdout, re.MULTILINE)
    assert sorted(listed) == sorted(TARGETS)


@pytest.mark.parametrize("target", [t for t in TARGETS if t not in ("help", "clean")])
def test_every_target_can_be_planned(target):
    ran = _run("make", "--dry-run", target)
    assert ran.returncode == 0, ran.stderr


def _copy_setup(directory) -> None:
    for name in ("requirements.lock", "requirements-dev.lock", "pyproject.toml", "Makefile"):
        (directory / name).write_bytes((ROOT / name).read_bytes())


def _is_up_to_date(directory) -> bool:
    return _run("make", "--question", "setup", cwd=directory).returncode == 0


def test_setup_runs_again_only_when_something_changed(tmp_path):
    _copy_setup(tmp_path)
    assert not _is_up_to_date(tmp_path)
    stamp = tmp_path / ".venv" / ".foldlog-setup"
    stamp.parent.mkdir()
    stamp.write_text(f"{tmp_path}\n")
    assert _is_up_to_date(tmp_path)
    for name in ("requirements.lock", "pyproject.toml"):
        newer = stamp.stat().st_mtime + 1
        os.utime(tmp_path / name, (newer, newer))
        assert not _is_up_to_date(tmp_path)
        os.utime(tmp_path / name, (newer - 2, newer - 2))
        assert _is_up_to_date(tmp_path)
    stamp.write_text("/opt/elsewhere\n")  # the checkout was moved together with its .venv
    assert not _is_up_to_date(tmp_path)


def test_setup_shows_what_it_does_while_it_does_it(tmp_path):
    """The defect: pip was quiet for two minutes."""
    _copy_setup(tmp_path)
    planned = _run("make", "--dry-run", "setup", cwd=tmp_path).stdout
    (install,) = (line for line in planned.splitlines() if "-r requirements.lock" in line)
    assert "--quiet" not in install and "setup: compiling them" in planned


def test_setup_without_a_python_names_what_is_missing(tmp_path):
    _copy_setup(tmp_path)
    ran = _run("make", "setup", "PYTHON=no-such-python", cwd=tmp_path)
    assert ran.returncode != 0
    assert "no Python 3.11 or newer found" in ran.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(
    ("refused", "message"),
    [("version_info", "no Python 3.11 or newer found"), ("ensurepip", "apt install python3-venv")],
)
def test_setup_names_what_the_python_lacks(tmp_path, refused, message):
    _copy_setup(tmp_path)
    # A Python that fails one check, as an old one or Debian's without python3-venv does.
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$2" in *{refused}*) exit 1;; esac\nexec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    ran = _run("make", "setup", "PYTHON=./python", cwd=tmp_path)
    assert ran.returncode != 0
    assert message in ran.stderr
    assert not (tmp_path / ".venv").exists()


def _accelerate(directory, **environment: str) -> subprocess.CompletedProcess:
    for name in ("Makefile", "pyproject.toml", "setup.py", "schemas/_decoder.c"):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes((ROOT / name).read_bytes())
    ran = _run(
        "make", "accelerate", "--old-file=setup", f"PY={sys.executable}",
        cwd=directory, **environment,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran


def test_the_compiled_decoder_is_built_in_the_checkout(tmp_path):
    if not can_compile():
        pytest.skip("needs a C compiler and Python's headers: the compiled decoder is optional")
    assert _accelerate(tmp_path).stdout == "decoder: compiled\n"
    assert list((tmp_path / "schemas").glob("_decoder.*.*"))


def test_without_a_compiler_one_line_names_what_is_missing(tmp_path):
    (tmp_path / "schemas").mkdir()
    old = tmp_path / "schemas" / "_decoder.cpython-311-x86_64-linux-gnu.so"
    old.write_bytes(b"built from an older source")
    ran = _accelerate(tmp_path, CC="/nowhere/cc")
    assert ran.stdout.startswith("decoder: not compiled, Python decodes, more slowly")
    assert len(ran.stdout.splitlines()) == 1 and ran.stderr == ""
    assert not old.exists()
    assert "/nowhere/cc" in (tmp_path / "build" / "decoder" / "log").read_text()


def test_ci_run_calls_make_test_and_can_be_executed():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & stat.S_IXUSR
    text = script.read_text(encoding="utf-8")
    assert "set -euo pipefail" in text
    assert re.search(r"^ *make test\b", text, re.MULTILINE)
    assert _run("bash", "-n", str(script)).returncode == 0


def test_ci_run_fails_with_the_tests_and_ends_leftover_processes(tmp_path):
    # Its test fails, and leaves a process with the mark in a session of its own.
    (tmp_path / ".ci").mkdir()
    script = tmp_path / ".ci" / "run"
    script.write_bytes((ROOT / ".ci" / "run").read_bytes())
    (tmp_path / "Makefile").write_text(
        "tools:\n"
        "test:\n"
        "\t@setsid sleep 600 >/dev/null 2>&1 & echo $$! > pid\n"
        "\t@test -n \"$$FOLDLOG_HOME\"\n"
        "\t@exit 3\n"
    )
    ran = _run("bash", str(script), cwd="/", PATH=_path_with_a_browser(tmp_path))
    assert ran.returncode == 2  # make's own code for a failed recipe
    pid = int((tmp_path / "pid").read_text())
    assert "ending leftover process" in ran.stdout
    with pytest.raises(ProcessLookupError):
        _signal_until_gone(pid)


# The directory of the running tests changed in the future, which is progress, or long ago.
@pytest.mark.parametrize(("changed", "seconds"), [("2999", range(12, 60)), ("2001", range(6, 12))])
def test_ci_run_ends_itself_and_names_the_running_tests(tmp_path, changed, seconds):
    (tmp_path / ".ci").mkdir()
    script = tmp_path / ".ci" / "run"
    script.write_bytes((ROOT / ".ci" / "run").read_bytes())
    (tmp_path / "Makefile").write_text(
        "tools:\n"
        "test:\n"
        "\t@echo tests/x.py::test_endless > $$FOLDLOG_RUNNING_TESTS/1\n"
        f"\t@touch -d {changed}-01-01 $$FOLDLOG_RUNNING_TESTS\n"
        "\t@sleep 600\n"
    )
    ran = subprocess.run(
        ["bash", str(script)], capture_output=True, text=True, check=False, timeout=60,
        env={
            **os.environ, "FOLDLOG_CI_SECONDS": "6", "PATH": _path_with_a_browser(tmp_path),
        },
    )
    assert ran.returncode == 124
    ended = re.search(r"not finished after (\d+) s", ran.stdout)
    assert ended is not None and int(ended[1]) in seconds
    assert "tests/x.py::test_endless" in ran.stdout
    assert "ending leftover process" in ran.stdout


def _path_with_a_browser(tmp_path: Path) -> str:
    """A PATH on which .ci/run finds the browser that it would install otherwise."""
    browser = tmp_path / "bin" / "chromium-headless-shell"
    browser.parent.mkdir()
    browser.touch(0o755)
    return f"{browser.parent}:{os.environ['PATH']}"


def _signal_until_gone(pid: int) -> None:
    """Send signal 0 until the killed process is gone: raises ProcessLookupError once it has been
    reaped or is a zombie."""
    for _ in range(10_000):
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat_file:
            if stat_file.read().rsplit(")", 1)[1].split()[0] == "Z":
                raise ProcessLookupError(pid)


def test_the_linter_finds_nothing():
    ran = _run(sys.executable, "-m", "ruff", "check", "--quiet", "--output-format=concise", ".")
    demand_none((ran.stdout + ran.stderr).splitlines())
    assert ran.returncode == 0


def test_make_test_fails_with_the_type_checker_and_with_the_tests(tmp_path):
    _copy_setup(tmp_path)
    for tests, types in ((0, 0), (0, 1), (3, 0)):
        for path, code in ((".venv/bin/python", tests), (".venv/bin/mypy", types)):
            program = tmp_path / path
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(f"#!/bin/sh\necho ran {path}\nexit {code}\n")
            program.chmod(0o755)
        ran = _run("make", "test", "--old-file=tools", cwd=tmp_path)
        assert (ran.returncode != 0) == bool(tests or types), ran.stdout
        assert ("the type checker failed\nran .venv/bin/mypy" in ran.stdout) == bool(types)
