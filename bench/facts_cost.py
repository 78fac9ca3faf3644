"""facts_cost: what deriving, storing and sending facts costs a worker that answers turns.

One worker process answers the same turns in short windows. Every other window writes no facts: a
switch in the worker, which the name of a session sets, turns off all that is done for them. Two
processes of the same program, or two minutes of one process, differ by more than facts cost; two
windows side by side do not.

A turn is a message, CALLS answers that each call a tool which does nothing, and a streamed answer
without pauses. A turn has two facts however long it is, so the note has the figure of the shortest
turn with a tool, too: of one call. The measured figure is the CPU time of the whole worker process,
not of the broker, the model server or the client. A window includes the pause after it, in which
its last facts are sent and deleted.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from foldlog.bench.live import events_until
from foldlog.bench.measure import Installation, Ratio, cpu_s, separate, spread_of
from foldlog.bench.steps import AGENT
from foldlog.cli.worker_info import is_ready
from foldlog.client.log_client import LogClient
from foldlog.client.session import Session
from foldlog.local.messages_api import Reply, Rule, Script, ScriptedServer, text, tool_use
from foldlog.schemas import events as ev
from foldlog.schemas.topics import SESSION_FACTS

TURNS = 5  # of a window, which is one session
PAIRS = 40  # of windows with and without facts, of each kind of turn in a run
CALLS, CALLS_MIN = 4, 1  # of a turn
WORDS = 60  # in the streamed answer
PAUSE_S = 0.4  # longer than facts are held together (FactSender)
PATIENCE_S = 60.0
POLL_S = 0.05
WITH, WITHOUT = "with", "without"  # facts; the name of a session begins so
MAIN = f"""
import sys
from foldlog.cli.__main__ import main
from foldlog.processors.worker import assemble

is_on = False

class Rows(assemble.FactRows):
    def __call__(self, event):
        global is_on
        is_on = event.entry.session_id.startswith("{WITH}-")
        return super().__call__(event) if is_on else None

class Sender(assemble.FactSender):
    def begins_round(self):
        return is_on and super().begins_round()

    def next_due_ms(self):
        return super().next_due_ms() if is_on else None

assemble.FactRows, assemble.FactSender = Rows, Sender
sys.exit(main())
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
    """CPU time per turn of a worker while it writes facts, over the time while it writes none."""
    found: dict[int, list[Pair]] = {CALLS: [], CALLS_MIN: []}
    with ScriptedServer(script=Script(ANSWERS)) as server:
        for run in range(runs):
            with _worker(separate(here, f"run-{run}-"), server.base_url) as play:
                for calls in (CALLS, CALLS_MIN):
                    play(calls)  # warms up
                    found[calls] += [play(calls) for _ in range(PAIRS)]
    ours, baseline = (statistics.median(times) for times in zip(*found[CALLS], strict=True))
    ratio, error = _mean(found[CALLS])
    short, short_error = _mean(found[CALLS_MIN])
    note = (
        f"{len(found[CALLS]):,} pairs of windows of {TURNS} turns; the mean ratio is within "
        f"{error:.4f} of the true one at 95 %; with {CALLS_MIN} call a turn {short:.4f}, within "
        f"{short_error:.4f}"
    )
    of_runs = (_mean(found[CALLS][n * PAIRS :][:PAIRS])[0] for n in range(runs))
    return Ratio(
        "facts_cost", ours, baseline, "ms/turn", ratio, runs, "at most 1.02", note,
        spread=spread_of(of_runs),
    )


Pair = tuple[float, float]
"""Ms of CPU time per turn, with facts and without, in two windows side by side."""


def _mean(pairs: list[Pair]) -> tuple[float, float]:
    """The mean of the pairs' ratios, and two standard errors of it (0 of a single pair)."""
    ratios = [ours / baseline for ours, baseline in pairs]
    spread = statistics.stdev(ratios) if len(ratios) > 1 else 0.0
    return statistics.mean(ratios), 2 * spread / len(ratios) ** 0.5


@contextmanager
def _worker(here: Installation, base_url: str) -> Iterator[Callable[[int], Pair]]:
    """A worker, and a function that plays two windows of turns with so many calls."""
    env = here.env() | {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": "bench"}
    command = [sys.executable, "-c", MAIN, "worker", "--agent", "foldlog.bench.steps:AGENT"]
    with open(here.home / "worker.log", "wb") as errors:
        process = subprocess.Popen(command, env=env, cwd=here.home, stdout=errors, stderr=errors)
    numbers = count(1)
    try:
        until = time.monotonic() + PATIENCE_S
        while not is_ready(here.settings.state_dir):
            assert time.monotonic() < until, (here.home / "worker.log").read_text()[-2000:]
            time.sleep(POLL_S)
        with LogClient(here.settings, channel="bench") as client:

            def play(calls: int) -> Pair:
                number = next(numbers)
                order = (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH)
                times = {
                    kind: _window(client, process.pid, f"{kind}-{number}", calls) for kind in order
                }
                return times[WITH], times[WITHOUT]

            yield play
        _check_facts(here, next(numbers) - 1)
    finally:
        process.terminate()
        process.wait()
        here.log.close()


def _window(client: LogClient, pid: int, name: str, calls: int) -> float:
    """Play a session. Returns the worker's ms of CPU time per turn."""
    began = cpu_s(pid)
    session = Session(client, name, AGENT.name)
    with client.fold(name) as folded:
        for _ in range(TURNS):
            session.say(f"look {calls} times")
            for _event in events_until(folded, ev.TurnEnded):
                pass
    time.sleep(PAUSE_S)
    return (cpu_s(pid) - began) * 1000 / TURNS


def _check_facts(here: Installation, pairs: int) -> None:
    """Check that the switch works: half of the sessions have facts, two of each turn and some of
    the session, and the others have none."""
    written = sum(here.log.end_offsets(SESSION_FACTS).values())
    least = pairs * TURNS * 2
    assert least <= written <= least + 3 * pairs, f"{written} facts of {pairs} pairs of sessions"
