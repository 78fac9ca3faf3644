"""The conformance suite of Durable Streams against a gateway: what it said of each case.

`python -m foldlog.tests.consumers.protocols.durable_suite` (make durable) runs all of it; the test
beside runs what takes seconds. A case that is not in durable_excluded.json must pass.
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
ORIGIN = "https://example.com"  # the suite's own, from which it asks whether it may ask
LONG_POLL_S = 0.5
SUITE_S = 600
SLOW = ("Fork - ", "TTL Expiration", "Property-Based", "Chunking", "Subscriptions")


def clock() -> int:
    """Unix ms: streams expire by the broker's time."""
    return time.time_ns() // 1_000_000


def outcomes(node: Node, directory: Path, pattern: str = "") -> dict[str, str]:
    """Case -> passed or why it failed; of the cases whose name fits the pattern."""
    before, routes_durable.LONG_POLL_S = routes_durable.LONG_POLL_S, LONG_POLL_S
    log = MemoryLog(topics(4), threaded=True, clock_ms=clock)
    try:
        with served(log, settings_in(directory), directory / "gateway", origins=(ORIGIN,)) as at:
            return _run(node, at.url, pattern)
    finally:
        routes_durable.LONG_POLL_S = before


def _run(node: Node, url: str, pattern: str) -> dict[str, str]:
    node.command(SUITE)  # copies it beside the packages
    vitest = node.directory / "node_modules" / "vitest" / "vitest.mjs"
    told = node.directory / "durable.json"
    done = subprocess.run(
        [str(NODE), str(vitest), "run", SUITE.name, "--testTimeout=60000", "--reporter=json",
         f"--outputFile={told}", *(["-t", pattern] if pattern else [])],
        cwd=node.directory,
        env={**os.environ, "DURABLE_URL": url, "DURABLE_LONG_POLL_MS": str(int(LONG_POLL_S * 1e3))},
        capture_output=True,
        text=True,
        timeout=SUITE_S,
        check=False,
    )
    assert told.exists(), f"the suite did not run:\n{done.stdout}\n{done.stderr}"
    cases = [c for file in json.loads(told.read_text())["testResults"]
             for c in file["assertionResults"]]
    return {
        " > ".join([*case["ancestorTitles"], case["title"]]):
            "passed" if case["status"] == "passed" else "\n".join(case["failureMessages"])
        for case in cases
        if case["status"] in ("passed", "failed")
    }


def is_excluded(case: str) -> bool:
    """Whether a case, or all of its group, is out of scope."""
    return case in EXCLUDED or case.split(" > ")[0] in EXCLUDED


def main() -> int:
    """Run all of it; 1 where a case fails that is not excluded."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        node = Node(installed(Path.home() / ".cache" / "foldlog"), home)
        said = outcomes(node, home)
    wrong = {c: why for c, why in said.items() if why != "passed" and not is_excluded(c)}
    for case, why in wrong.items():
        print(f"FAILED {case}\n  {why[:400]}")
    needless = [c for c in EXCLUDED if said.get(c) == "passed"]
    for case in needless:
        print(f"PASSED, though excluded: {case}")
    passed = sum(why == "passed" and not is_excluded(c) for c, why in said.items())
    print(f"{passed} passed, {len(wrong)} failed, {sum(map(is_excluded, said))} excluded")
    return 1 if wrong or needless or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
