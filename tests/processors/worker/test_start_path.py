"""Which modules a worker imports before its first decision; each takeover has to wait for them."""

import json
import subprocess
import sys

import pytest

from foldlog.tests.cli.test_on_a_broker import WAIT_S, machine

pytestmark = pytest.mark.broker
__all__ = ["machine"]

NEVER = {
    "aiohttp", "anthropic", "duckdb", "fastapi", "faust", "http.server", "httpx2", "jwt", "mcp",
    "mode", "numpy", "opentelemetry", "prometheus_client", "starlette", "urllib.request", "uvicorn",
}  # fmt: skip
SCRIPT = """
import json, os, sys
from foldlog.cli.__main__ import main
from foldlog.processors.worker import worker

def decided(self, owned, views, owed, now, *, before=worker.Worker._discharge):
    before(self, owned, views, owed, now)
    if owed.owed == "LLM_CALLED":
        os.write(1, json.dumps(sorted(sys.modules)).encode())
        os._exit(0)

worker.Worker._discharge = decided
main(["worker"])
"""


def test_a_worker_imports_nothing_before_its_first_decision_that_only_effects_need(machine):
    machine("send", "s1", "hi")
    env = {**machine.env, "ANTHROPIC_API_KEY": "none", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=env, stdout=subprocess.PIPE, timeout=WAIT_S
    )
    imported = set(json.loads(ran.stdout))
    assert "foldlog.processors.worker.host" in imported
    assert sorted(NEVER & imported) == []
