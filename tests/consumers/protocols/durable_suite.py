"""Runs the conformance suite of Durable Streams against a gateway, and returns the result of each
case.

`python -m foldlog.tests.consumers.protocols.durable_suite` (make durable) runs all cases;
test_durable_suite.py runs those that take seconds. Each case must pass unless durable_excluded.json
names it.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from foldlog.consumers.gateway.routes import durable as routes_durable
from foldlog.log import MemoryLog
from foldlog.schemas.topics import topics
from foldlog.tests.consumers.gateway.served import served
from foldlog.tests.consumers.played import settings_in
from foldlog.tests.node_fixture import NODE, PINNED, Node, installed

EXCLUDED = json.loads(Path(__file__).with_name("durable_excluded.json").read_text("utf-8"))
SUITE = PINNED / "durable.test.mjs"
ORIGIN = "https://example.com"  # from which the suite sends its preflight requests
LONG_POLL_S = 0.5
SUITE_S = 600
SLOW = ("Fork - ", "TTL Expiration", "Property-Based", "Chunking", "Subscriptions")


def clock() -> int:
    """The present time in Unix ms. It serves as the broker's time, by which streams expire."""
    return time.time_ns() // 1_000_000


def outcomes(node: Node, directory: Path, pattern: str = "") -> dict[str, str]:
    """The result of each case whose name matches the pattern: `passed`, or why it failed."""
    before, routes_durable.LONG_POLL_S = routes_durable.LONG_POLL_S, LONG_POLL_S
    log = MemoryLog(topics(4), threaded=True, clock_ms=clock)
    try:
        with served(log, settings_in(directory), directory / "gateway", origins=(ORIGIN,)) as at:
            return _run(node, at.url, pattern)
    finally:
        routes_durable.LONG_POLL_S = before


def _run(node: Node, url: str, pattern: str) -> dict[str, str]:
    node.command(SUITE)  # copies the suite to the packages
    vitest = node.directory / "node_modules" / "vitest" / "vitest.mjs"
    report = node.directory / "durable.json"
    run = subprocess.run(
        [str(NODE), str(vitest), "run", SUITE.name, "--testTimeout=60000", "--reporter=json",
         f"--outputFile={report}", *(["-t", pattern] if pattern else [])],
        cwd=node.directory,
        env={**os.environ, "DURABLE_URL": url, "DURABLE_LONG_POLL_MS": str(int(LONG_POLL_S * 1e3))},
        capture_output=True,
        text=True,
        timeout=SUITE_S,
        check=False,
    )
    assert report.exists(), f"the suite did not run:\n{run.stdout}\n{run.stderr}"
    cases = [c for file in json.loads(report.read_text())["testResults"]
             for c in file["assertionResults"]]
    return {
        " > ".join([*case["ancestorTitles"], case["title"]]):
            "passed" if case["status"] == "passed" else "\n".join(case["failureMessages"])
        for case in cases
        if case["status"] in ("passed", "failed")
    }


def is_excluded(case: str) -> bool:
    """Whether a case, or its whole group, is excluded."""
    return case in EXCLUDED or case.split(" > ")[0] in EXCLUDED


def failures(results: dict[str, str]) -> dict[str, str]:
    """The failed cases that are not excluded."""
    return {c: why for c, why in results.items() if why != "passed" and not is_excluded(c)}


def main() -> int:
    """Run all cases. Returns 1 if a case fails that is not excluded, or passes although it is
    excluded."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        node = Node(installed(Path.home() / ".cache" / "foldlog"), home)
        results = outcomes(node, home)
    wrong = failures(results)
    for case, why in wrong.items():
        print(f"FAILED {case}\n  {why[:400]}")
    needless = [c for c in EXCLUDED if results.get(c) == "passed"]
    for case in needless:
        print(f"PASSED, but is excluded: {case}")
    passed = sum(why == "passed" and not is_excluded(c) for c, why in results.items())
    print(f"{passed} passed, {len(wrong)} failed, {sum(map(is_excluded, results))} excluded")
    return 1 if wrong or needless or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
