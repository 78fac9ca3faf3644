"""A peer: DBOS on Postgres. Times each step of a workflow whose steps do nothing.

DBOS writes the result of a step to Postgres before the step returns. Postgres runs with its default
settings, on a socket of its own; without `flush`, a commit does not wait for the disk. Input lines:
{"steps": n, "flush": whether it waits}. Output lines: the ms of each step. It imports only dbos,
pgserver and the standard library, and runs in bench/.venv (see peers.py).
"""

import json
import sys
import tempfile
import time

import pgserver
from dbos import DBOS


@DBOS.step()
def look(number: int) -> str:
    """Do nothing."""
    return "ok"


@DBOS.workflow()
def job(steps: int) -> list[float]:
    """Run the steps one after the other, and return the ms of each."""
    times_ms = []
    for number in range(steps):
        began = time.perf_counter()
        look(number)
        times_ms.append((time.perf_counter() - began) * 1000)
    return times_ms


with tempfile.TemporaryDirectory(prefix="foldlog-bench-") as directory:
    with pgserver.get_server(directory) as postgres:
        DBOS(config={"name": "bench", "system_database_url": postgres.get_uri()})
        DBOS.launch()
        for line in sys.stdin:
            asked = json.loads(line)
            commit = "on" if asked["flush"] else "off"
            postgres.psql(f"ALTER SYSTEM SET synchronous_commit = {commit};")
            postgres.psql("SELECT pg_reload_conf();")
            assert "\n on\n" in postgres.psql("SHOW fsync;")
            print(json.dumps(job(asked["steps"])), flush=True)
        DBOS.destroy()
