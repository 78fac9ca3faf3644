"""facts_cost: what deriving, storing and sending facts costs a worker that answers turns.

Two worker processes on one broker, each with a log of its own, answer the same turns in alternating
windows: one writes facts, one does not. A turn is a message, CALLS answers that each call a tool
which does nothing, and a streamed answer without pauses. A turn has two facts however long it is,
so the note has the figure of the shortest turn with a tool, too: of one call.
The measured figure is the CPU time of the whole worker process, not of the broker, the model server
or the client. Each run starts new processes, because two processes of the same program differ by
about as much as the facts cost.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count

from foldlog.bench.live import events_until
from foldlog.bench.measure import Installation, Ratio, cpu_s, separate
from foldlog.bench.refold import is_ready
from foldlog.bench.steps import AGENT
from foldlog.client.log_client import LogClient
from foldlog.client.session import Session
from foldlog.local.messages_api import Reply, Rule, Script, ScriptedServer, text, tool_use
from foldlog.schemas import events as ev
from foldlog.schemas.topics import SESSION_FACTS

SESSIONS, TURNS = 4, 10  # new sessions of a window, and the turns of each
WINDOWS = 8  # of each worker in a run
CALLS, CALLS_MIN = 4, 1  # of a turn
WORDS = 60  # in the streamed answer
PATIENCE_S = 60.0
POLL_S = 0.05
MAIN = "import sys; from foldlog.cli.__main__ import main; sys.exit(main())"
WITHOUT = """
from foldlog.processors.worker import assemble
assemble.FactRows = assemble.Parts._fact_sender = lambda *_: None
"""
LOOKS = Reply([text("I look."), tool_use("look")])
ANSWERS = [
    *(
        Rule(reply=LOOKS, contains=f"look {calls} times", tool_results=done)
        for calls in (CALLS, CALLS_MIN) for done in range(calls)
    ),
    Rule(reply=Reply([text(" ".join(f"word{n:03}" for n in range(WORDS)))], chunk="word")),
]


def facts_cost(here: Installation, runs: int) -> Ratio:
    """CPU time per turn of a worker that writes facts, over one that writes none."""
    ratios, shorts, found = [], [], {"with": [], "without": []}
    with ScriptedServer(script=Script(ANSWERS)) as server:
        for run in range(runs):
            (mine, short), (base, short_base) = _windows(here, server.base_url, f"run-{run}-")
            ratios.append(sum(mine) / sum(base))
            shorts.append(sum(short) / sum(short_base))
            found["with"] += mine
            found["without"] += base
    ours, baseline = (statistics.median(each) for each in found.values())
    note = (
        f"{len(found['with']):,} windows of {SESSIONS * TURNS} turns each; "
        f"{min(ratios):.4f} to {max(ratios):.4f} in a run, mean {statistics.mean(ratios):.4f}; "
        f"with {CALLS_MIN} call a turn {min(shorts):.4f} to {max(shorts):.4f}"
    )
    ratio = statistics.median(ratios)
    return Ratio("facts_cost", ours, baseline, "ms/turn", ratio, runs, "at most 1.02", note)


Costs = tuple[tuple[float, ...], ...]
"""Ms of CPU time per turn in each window: of turns with CALLS, of turns with CALLS_MIN."""


def _windows(here: Installation, base_url: str, name: str) -> tuple[Costs, Costs]:
    """The costs with facts, and without."""
    with ExitStack() as stack:
        mine, base = (
            stack.enter_context(_answering(separate(here, name + kind), base_url, has_facts))
            for kind, has_facts in (("with-", True), ("without-", False))
        )
        rows = [(next(mine), next(base))]  # warms up
        for number in range(WINDOWS):
            if number % 2:
                rows.append((next(mine), next(base)))
            else:
                rows.append((next(base), next(mine))[::-1])
    with_facts, without = zip(*rows[1:], strict=True)
    return tuple(zip(*with_facts, strict=True)), tuple(zip(*without, strict=True))


@contextmanager
def _answering(
    here: Installation, base_url: str, has_facts: bool
) -> Iterator[Iterator[list[float]]]:
    """A worker. Each `next` plays a window of both kinds of turns and returns its ms per turn."""
    env = here.env() | {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": "bench"}
    program = MAIN if has_facts else WITHOUT + MAIN
    command = [sys.executable, "-c", program, "worker", "--agent", "foldlog.bench.steps:AGENT"]
    with open(here.home / "worker.log", "wb") as errors:
        process = subprocess.Popen(command, env=env, cwd=here.home, stdout=errors, stderr=errors)
    try:
        until = time.monotonic() + PATIENCE_S
        while not is_ready(here.settings.state_dir / "worker.json"):
            assert time.monotonic() < until, (here.home / "worker.log").read_text()[-2000:]
            time.sleep(POLL_S)
        with LogClient(here.settings, channel="bench") as client:
            yield _played(client, process.pid)
        written = sum(here.log.end_offsets(SESSION_FACTS).values())
        assert bool(written) is has_facts, f"{written} facts"
    finally:
        process.terminate()
        process.wait()
        here.log.close()


def _played(client: LogClient, pid: int) -> Iterator[list[float]]:
    numbers = count(1)
    while True:
        costs = []
        for calls in (CALLS, CALLS_MIN):
            began = cpu_s(pid)
            for _ in range(SESSIONS):
                _talk(client, f"facts-{next(numbers)}", f"look {calls} times")
            costs.append((cpu_s(pid) - began) * 1000 / (SESSIONS * TURNS))
        yield costs


def _talk(client: LogClient, name: str, message: str) -> None:
    session = Session(client, name, AGENT.name)
    with client.fold(name) as folded:
        for _ in range(TURNS):
            session.say(message)
            for _event in events_until(folded, ev.TurnEnded):
                pass
