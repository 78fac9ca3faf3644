"""Runs the tests of the OpenAI Agents SDK with foldlog's sessions: `make adapter`.

python -m foldlog.tests.adapters [--broker] [--only sqlite|list] [PYTEST ARGUMENTS]

The command downloads the source release of the installed SDK, copies the SDK's tests and source
into a temporary directory, and runs the tests there twice. In the first run, foldlog's session
replaces `SQLiteSession`; in the second, it replaces the double that the tests of the SDK's runner
use. Afterwards it deletes everything. `--broker`: the first of the two runs uses a real broker.
sdk_excluded.json names each test that cannot pass, with the reason, and the run leaves these out.
If an excluded test passes or no longer exists, the run fails.
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
FETCH_S, RUN_S = 600.0, 3_600.0
"""The limits of the download and of one run. Each test of a run has a limit of 120 s."""
EXCLUDED = json.loads((HERE / "sdk_excluded.json").read_text("utf-8"))
SQLITE = ("tests/memory/test_session.py", "tests/memory/test_session_limit.py")
LIST = ("tests/memory", "tests/deferred_session_writes")
DOUBLE = "simple_session"
"""The SDK's module with the double: every test file that names it is run with our sessions."""


def fetch(into: Path) -> Path:
    """Download and unpack the source release of the SDK."""
    wanted = f"{PACKAGE}=={version(PACKAGE)}"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    subprocess.run(
        [*pip, "--no-deps", "--no-binary", PACKAGE, "--dest", str(into), wanted],
        check=True,
        timeout=FETCH_S,
    )
    (archive,) = into.glob("*.tar.gz")
    with tarfile.open(archive) as archive_file:
        archive_file.extractall(into, filter="data")
    return next(path for path in into.iterdir() if path.is_dir())


def pytest(
    source: Path, hook: str, more: list[str], broker: str | None = None, **how: Any
) -> subprocess.CompletedProcess:
    """Run tests of the SDK."""
    environment = {
        "OPENAI_API_KEY": "none",
        "FOLDLOG_SDK_HOOK": hook,
        # The SDK's source comes first: some tests check which file a frame is from.
        "PYTHONPATH": os.pathsep.join([str(source / "src"), os.environ.get("PYTHONPATH", "")]),
        **({"FOLDLOG_SDK_BROKER": broker} if broker else {}),
    }
    plugin = "foldlog.tests.adapters.sdk_plugin"
    command = [sys.executable, "-m", "pytest", "-p", plugin, "-q"]
    return subprocess.run(
        [*command, "--timeout", "120", *more],
        cwd=source,
        env=os.environ | environment,
        timeout=RUN_S,
        **how,
    )


def excluded_still_fail(source: Path) -> bool:
    """Whether every excluded test still fails; a test that passes must not be excluded."""
    names = [f"{file}::{test}" for file, tests in EXCLUDED.items() for test in tests]
    result = pytest(source, "sqlite", ["--tb=no", *names], capture_output=True, text=True)
    counted = re.search(r"(\d+) failed in", result.stdout)
    if counted is None or int(counted[1]) != len(names):
        print(result.stdout[-2000:], "not every excluded test fails", file=sys.stderr)
        return False
    print(f"excluded and still failing: {len(names)} tests of SQLite internals (sdk_excluded.json)")
    return True


def main() -> int:
    """Fetch the SDK and run its tests. Returns 0 if all of them passed."""
    parser = argparse.ArgumentParser(prog="make adapter")
    parser.add_argument("--broker", action="store_true")
    parser.add_argument("--only", choices=("sqlite", "list"))
    options, more = parser.parse_known_args()
    left_out = [f"--deselect={file}::{test}" for file, tests in EXCLUDED.items() for test in tests]
    with ExitStack() as stack:
        source = fetch(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        codes = []
        if options.only != "list":
            broker = None
            if options.broker:
                cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "foldlog"
                broker = stack.enter_context(temporary_broker(cache)).bootstrap_servers
            result = pytest(source, "sqlite", [*left_out, *more, *SQLITE], broker)
            codes.append(result.returncode)
            codes.append(0 if excluded_still_fail(source) else 1)
        if options.only != "sqlite":
            files = sorted(
                str(path.relative_to(source))
                for path in (source / "tests").glob("test_*.py")
                if DOUBLE in path.read_text("utf-8")
            )
            codes.append(pytest(source, "list", [*more, *LIST, *files]).returncode)
    return max(codes)


if __name__ == "__main__":
    raise SystemExit(main())
