"""step_turnaround and durable_step: the time that one step of a turn takes, with a tool that does
nothing.

Both are measured at the model server: from the last byte of an answer that calls the tool to the
arrival of the next request. This contains everything that foldlog does between two model calls:
store the answer, decide, claim and run the tool, store its result, decide and claim the next model
call, build the request.

The baseline of step_turnaround is one hop through the log (`hop_ms`). That of durable_step is the
fastest peer: a tool round of pi-durable on SQLite, which has the same span; a step of DBOS on
Postgres and a superstep of LangGraph with SqliteSaver or PostgresSaver at 10 and 500 messages,
which call no model and so do less. Each peer script states what it times.
"""

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from foldlog.bench import live
from foldlog.bench.measure import Installation, Plot, Ratio, hop_ms
from foldlog.bench.peers import peer
from foldlog.client.log_client import LogClient
from foldlog.client.session import Session
from foldlog.local.messages_api import Reply, Request, Rule, Script, ScriptedServer, text, tool_use
from foldlog.processors.agent import Agent
from foldlog.processors.tools.tool import tool
from foldlog.schemas import events as ev
from foldlog.schemas.topics import USER_SESSIONS

STEPS = 20  # tool calls of a turn, one after the other
TURNS = 3  # of a run; the first turn of a session is not counted
MESSAGES = (10, 500)  # of a LangGraph thread: its checkpoints grow with the messages


@tool(effect="idempotent", approval="none")
def look() -> str:
    """Do nothing."""
    return "ok"


AGENT = Agent(name="bench", model="claude-sonnet-5", tools=[look])


class PeerSteps(NamedTuple):
    """A peer script, the package it needs, and its question, by the name in the report."""

    script: str
    package: str
    question: dict


PEERS = {
    "DBOS on Postgres": PeerSteps("peer_steps_dbos.py", "dbos 3.4.0", {}),
    "pi-durable on SQLite": PeerSteps("peer_steps_pi.py", "pi-durable-python 1.4.0", {}),
    **{
        f"LangGraph {saver}, {messages} messages": PeerSteps(
            "peer_steps_langgraph.py",
            f"langgraph-checkpoint-{package}",
            {"saver": saver, "messages": messages},
        )
        for saver, package in (
            ("SqliteSaver", "sqlite 3.1.2"),
            ("PostgresSaver", "postgres 3.2.0"),
        )
        for messages in MESSAGES
    },
}


def _answer(request: Request) -> Reply:
    if len(request.turn_results) < STEPS:
        return Reply([tool_use("look")], chunk="whole")
    return Reply([text("done")], chunk="whole")


@contextmanager
def _tool_worker(here: Installation) -> Iterator[ScriptedServer]:
    """A worker with the agent of this bench, and its model server."""
    with ScriptedServer(script=Script([Rule(reply=_answer)])) as server:
        with live.worker(here, server.base_url, "--agent", "foldlog.bench.steps:AGENT"):
            yield server


def _play(here: Installation, server: ScriptedServer) -> list[float]:
    """Play the turns of a run. Returns the ms of each step."""
    seen = len(server.journal.entries())
    name = f"steps-{time.monotonic_ns()}"
    with LogClient(here.settings, channel="bench") as client, client.fold(name) as folded:
        session = Session(client, name, AGENT.name)
        for _ in range(TURNS + 1):
            session.say("go")
            for _event in live.events_until(folded, ev.TurnEnded):
                pass
    return _turnarounds(server.journal.entries()[seen:])


def step_turnaround(here: Installation, runs: int) -> Ratio:
    """Ms from the end of an answer to the next request, divided by the time of one log hop."""
    hops, waits = [], []
    with _tool_worker(here) as server:
        for _ in range(runs):
            hops.append(hop_ms(here, USER_SESSIONS, "bench", b"x" * 200))
            waits += _play(here, server)
    ours, base = statistics.median(waits), statistics.median(hops)
    note = (
        f"{len(waits)} steps, p90 {statistics.quantiles(waits, n=10)[-1]:.1f} ms; hop "
        f"{min(hops):.2f} to {max(hops):.2f} ms"
    )
    aim = "at most 12, aim 8"
    return Ratio("step_turnaround", ours, base, "ms", ours / base, runs, aim, note)


def _turnarounds(entries: list[dict]) -> list[float]:
    """From each answer's end to the next request of its turn, ms. The last answer of a turn has
    none, and the first turn is left out."""
    accepted = [entry["at_ms"] for entry in entries if entry["kind"] == "accepted"]
    answered = [entry["at_ms"] for entry in entries if entry["kind"] == "answered"]
    calls = STEPS + 1
    pairs = list(zip(answered, accepted[1:], strict=False))
    return [
        float(begun - ended)
        for n, (ended, begun) in enumerate(pairs)
        if n >= calls and n % calls != STEPS
    ]


def durable_step(here: Installation, runs: int) -> Ratio:
    """Ms of a step, divided by the ms of a step of the fastest peer."""
    ours: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in PEERS}
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(peer(row.script, row.package)) for name, row in PEERS.items()
        }
        server = stack.enter_context(_tool_worker(here))
        for _ in range(runs):
            for name, process in processes.items():
                theirs[name] += process.ask({"steps": STEPS * TURNS, **PEERS[name].question})
            ours += _play(here, server)
    medians = {name: statistics.median(times) for name, times in theirs.items()}
    best = min(medians, key=medians.__getitem__)
    note = ", ".join(
        f"{name} {medians[name]:.1f} ({statistics.quantiles(times, n=10)[-1]:.1f})"
        for name, times in theirs.items()
    )
    mine = statistics.median(ours)
    return Ratio(
        "durable_step",
        mine,
        medians[best],
        "ms",
        mine / medians[best],
        runs,
        "at most 0.6",
        f"ours p90 {statistics.quantiles(ours, n=10)[-1]:.1f} ms; peers p50 (p90): {note}",
        Plot(
            "share of the steps, %",
            "ms of a step, at most",
            {"foldlog": _quantiles(ours)} | {name: _quantiles(ms) for name, ms in theirs.items()},
        ),
    )


def _quantiles(times_ms: list[float]) -> list[tuple[float, float]]:
    cuts = statistics.quantiles(times_ms, n=20)
    return [(5.0 * n, ms) for n, ms in enumerate(cuts, 1)]
