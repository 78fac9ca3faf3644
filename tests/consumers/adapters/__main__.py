"""`make adapter`: the OpenAI Agents SDK's own tests, with our sessions in the place of theirs.

    python -m foldlog.tests.consumers.adapters [--broker] [--only sqlite|list] [PYTEST ARGUMENTS]

Fetches the SDK's source release of the installed version, copies its tests and its source into a
temporary directory and runs them there twice: once with `SQLiteSession` replaced, once with the
double that the tests of its runner use. Nothing of it is kept. `--broker`: the first of the two on
a real broker. What can't pass is named in sdk_excluded.json with the reason, and is left out by
name: one that passes all the same, or is not there any more, fails the run.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from foldlog.local.kafka import temporary_broker

HERE = Path(__file__).parent
PACKAGE = "openai-agents"
EXCLUDED = json.loads((HERE / "sdk_excluded.json").read_text("utf-8"))
SQLITE = ("tests/memory/test_session.py", "tests/memory/test_session_limit.py")
LIST = ("tests/memory", "tests/deferred_session_writes")
DOUBLE = "simple_session"
"""Their module of the double: every test file that names it is run with ours."""


def fetch(into: Path) -> Path:
    """The source release, unpacked."""
    wanted = f"{PACKAGE}=={version(PACKAGE)}"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    subprocess.run(
        [*pip, "--no-deps", "--no-binary", PACKAGE, "--dest", str(into), wanted], check=True
    )
    (archive,) = into.glob("*.tar.gz")
    with tarfile.open(archive) as held:
        held.extractall(into, filter="data")
    return next(path for path in into.iterdir() if path.is_dir())


def pytest(
    source: Path, hook: str, more: list[str], broker: str | None = None, **how: Any
) -> subprocess.CompletedProcess:
    """Run tests of theirs."""
    told = {
        "OPENAI_API_KEY": "none",
        "FOLDLOG_SDK_HOOK": hook,
        # Their own source first: some tests look at where a frame comes from.
        "PYTHONPATH": os.pathsep.join([str(source / "src"), os.environ.get("PYTHONPATH", "")]),
        **({"FOLDLOG_SDK_BROKER": broker} if broker else {}),
    }
    plugin = "foldlog.tests.consumers.adapters.sdk_plugin"
    command = [sys.executable, "-m", "pytest", "-p", plugin, "-q"]
    return subprocess.run(
        [*command, "--timeout", "120", *more], cwd=source, env=os.environ | told, **how
    )


def excluded_still_fail(source: Path) -> bool:
    """Whether what is left out would fail, test by test: else it need not be left out."""
    names = [f"{file}::{test}" for file, tests in EXCLUDED.items() for test in tests]
    done = pytest(source, "sqlite", ["--tb=no", *names], capture_output=True, text=True)
    counted = re.search(r"(\d+) failed in", done.stdout)
    if counted is None or int(counted[1]) != len(names):
        print(done.stdout[-2000:], "left out, and not all of it fails", file=sys.stderr)
        return False
    print(f"left out, and would fail: {len(names)} tests of SQLite internals (sdk_excluded.json)")
    return True


def main() -> int:
    """Fetch, run, say; 0 if everything passed."""
    parser = argparse.ArgumentParser(prog="make adapter")
    parser.add_argument("--broker", action="store_true")
    parser.add_argument("--only", choices=("sqlite", "list"))
    asked, more = parser.parse_known_args()
    left_out = [f"--deselect={file}::{test}" for file, held in EXCLUDED.items() for test in held]
    with ExitStack() as stack:
        source = fetch(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        codes = []
        if asked.only != "list":
            broker = None
            if asked.broker:
                cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "foldlog"
                broker = stack.enter_context(temporary_broker(cache)).bootstrap_servers
            done = pytest(source, "sqlite", [*left_out, *more, *SQLITE], broker)
            codes.append(done.returncode)
            codes.append(0 if excluded_still_fail(source) else 1)
        if asked.only != "sqlite":
            naming = sorted(
                str(path.relative_to(source))
                for path in (source / "tests").glob("test_*.py")
                if DOUBLE in path.read_text("utf-8")
            )
            codes.append(pytest(source, "list", [*more, *LIST, *naming]).returncode)
    return max(codes)


if __name__ == "__main__":
    raise SystemExit(main())
