"""facts_cost: what deriving, storing and sending facts costs a worker that answers turns.

Two worker processes on one broker, each with a log of its own, answer the same turns in alternating
windows: one writes facts, one does not. A turn is a message and one model call without tools, so it
has the most facts for its cost. The measured figure is the CPU time of the whole worker process,
not of the broker, the model server or the client. Each run starts new processes, because two
processes of the same program differ by about as much as the facts cost.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from foldlog.bench.live import events_until, script
from foldlog.bench.measure import Installation, Ratio, cpu_s, separate
from foldlog.bench.refold import is_ready
from foldlog.client.log_client import LogClient
from foldlog.client.session import Session
from foldlog.local.messages_api import ScriptedServer
from foldlog.schemas import events as ev

TURNS = 60  # of a window
WINDOWS = 8  # of each worker in a run
PATIENCE_S = 60.0
POLL_S = 0.05
MAIN = "import sys; from foldlog.cli.__main__ import main; sys.exit(main())"
WITHOUT = "from foldlog.processors.worker import assemble; assemble.FactRows = lambda *_: None; "


def facts_cost(here: Installation, runs: int) -> Ratio:
    """CPU time per turn of a worker that writes facts, over one that writes none."""
    ratios, found = [], {"with": [], "without": []}
    with ScriptedServer(script=script()) as server:
        for run in range(runs):
            mine, base = _windows(here, server.base_url, f"run-{run}-")
            ratios.append(sum(mine) / sum(base))
            found["with"] += mine
            found["without"] += base
    ours, baseline = (statistics.median(each) for each in found.values())
    note = (
        f"{len(found['with']):,} windows of {TURNS} turns each; "
        f"{min(ratios):.4f} to {max(ratios):.4f} in a run, mean {statistics.mean(ratios):.4f}"
    )
    ratio = statistics.median(ratios)
    return Ratio("facts_cost", ours, baseline, "ms/turn", ratio, runs, "at most 1.02", note)


def _windows(here: Installation, base_url: str, name: str) -> tuple[list[float], list[float]]:
    """Ms of CPU time per turn in each window, with facts and without."""
    with ExitStack() as stack:
        both = [
            stack.enter_context(_answering(separate(here, name + kind), base_url, program))
            for kind, program in (("with-", MAIN), ("without-", WITHOUT + MAIN))
        ]
        rows = [[next(each) for each in both] for _ in range(1 + WINDOWS)]
    mine, base = zip(*rows[1:], strict=True)  # the first window warms up
    return list(mine), list(base)


@contextmanager
def _answering(here: Installation, base_url: str, program: str) -> Iterator[Iterator[float]]:
    """A worker that runs this program. Each `next` plays a window and returns its ms per turn."""
    env = here.env() | {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": "bench"}
    with open(here.home / "worker.log", "wb") as errors:
        command = [sys.executable, "-c", program, "worker"]
        process = subprocess.Popen(command, env=env, cwd=here.home, stdout=errors, stderr=errors)
    try:
        until = time.monotonic() + PATIENCE_S
        while not is_ready(here.settings.state_dir / "worker.json"):
            assert time.monotonic() < until, (here.home / "worker.log").read_text()[-2000:]
            time.sleep(POLL_S)
        with LogClient(here.settings, channel="bench") as client:
            yield _played(client, process.pid)
    finally:
        process.terminate()
        process.wait()
        here.log.close()


def _played(client: LogClient, pid: int) -> Iterator[float]:
    session = Session(client, "facts")
    with client.fold("facts") as folded:
        while True:
            began = cpu_s(pid)
            for _ in range(TURNS):
                session.say("hello")
                for _event in events_until(folded, ev.TurnEnded):
                    pass
            yield (cpu_s(pid) - began) * 1000 / TURNS
