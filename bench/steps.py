"""step_turnaround and durable_step: the time that one step of a turn takes, with a tool that does
nothing.

Both are measured at the model server: from the last byte of an answer that calls the tool to the
arrival of the next request. This contains everything that foldlog does between two model calls:
store the answer, decide, claim and run the tool, store its result, decide and claim the next model
call, build the request.

The baseline of step_turnaround is one hop through the log (`hop_ms`). That of the others is the
fastest peer: a tool round of pi-durable on SQLite, which has the same span; a step of DBOS on
Postgres and a superstep of LangGraph with SqliteSaver or PostgresSaver at 10 and 500 messages,
which call no model and so do less. Each peer script states what it times.

durable_step survives a killed process, not a power loss: no commit of a peer waits for the disk,
nor does the broker; foldlog's outbox does. In flushed_step every commit and record of both sides is
on the disk before the next step: Postgres has fsync and synchronous_commit, SQLite
`synchronous=FULL`, and our topics `durability=flushed`.
"""

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import NamedTuple

from foldlog.bench import live
from foldlog.bench.measure import Installation, Plot, Ratio, hop_ms, separate, spread_of
from foldlog.bench.peers import peer
from foldlog.client.log_client import LogClient
from foldlog.client.session import Session
from foldlog.local.messages_api import Reply, Request, Rule, Script, ScriptedServer, text, tool_use
from foldlog.log.settings import FLUSHED
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
    hops, each, waits = [], [], []
    with _tool_worker(here) as server:
        for _ in range(runs):
            hops.append(hop_ms(here, USER_SESSIONS, "bench", b"x" * 200))
            found = _play(here, server)
            waits += found
            each.append(statistics.median(found))
    ours, base = statistics.median(waits), statistics.median(hops)
    note = (
        f"{len(waits)} steps, p90 {statistics.quantiles(waits, n=10)[-1]:.1f} ms; hop "
        f"{min(hops):.2f} to {max(hops):.2f} ms"
    )
    aim = "at most 12, aim 8"
    ratios = [ms / hop for ms, hop in zip(each, hops, strict=True)]
    ratio, spread = statistics.median(ratios), spread_of(ratios)
    return Ratio("step_turnaround", ours, base, "ms", ratio, runs, aim, note, spread=spread)


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
    """Ms of a step, divided by the ms of a step of the fastest peer; only processes may die."""
    return _beside_peers("durable_step", here, runs, flush=False)


def flushed_step(here: Installation, runs: int) -> Ratio:
    """The same, while both sides wait for the disk before they continue."""
    flushed = separate(here, "flushed-", FLUSHED)
    try:
        return _beside_peers("flushed_step", flushed, runs, flush=True)
    finally:
        flushed.log.close()


def _beside_peers(name: str, here: Installation, runs: int, *, flush: bool) -> Ratio:
    ours: list[list[float]] = []
    theirs: dict[str, list[list[float]]] = {peer_name: [] for peer_name in PEERS}
    asked = {"steps": STEPS * TURNS, "flush": flush}
    with ExitStack() as stack:
        processes = {
            peer_name: stack.enter_context(peer(row.script, row.package))
            for peer_name, row in PEERS.items()
        }
        server = stack.enter_context(_tool_worker(here))
        for _ in range(runs):
            for peer_name, process in processes.items():
                theirs[peer_name].append(process.ask({**asked, **PEERS[peer_name].question}))
            ours.append(_play(here, server))
    return ratio_of_steps(name, ours, theirs)


def ratio_of_steps(
    name: str, ours: list[list[float]], theirs: dict[str, list[list[float]]]
) -> Ratio:
    """The ratio to the fastest peer. ours, theirs: the ms of each step, by run."""
    every = {peer_name: list(chain(*each)) for peer_name, each in theirs.items()}
    mine = list(chain(*ours))
    peers = {peer_name: statistics.median(times_ms) for peer_name, times_ms in every.items()}
    best = min(peers, key=peers.__getitem__)
    median, p90 = statistics.median(mine), statistics.quantiles(mine, n=10)[-1]
    ratios = [
        statistics.median(own) / statistics.median(their)
        for own, their in zip(ours, theirs[best], strict=True)
    ]
    lines = {"foldlog": _quantiles(mine)} | {n: _quantiles(ms) for n, ms in every.items()}
    return Ratio(
        name, median, peers[best], "ms", statistics.median(ratios), len(ours), "at most 0.6",
        f"ours p90 {p90:.1f} ms; the fastest peer is {best}",
        Plot("share of the steps, %", "ms of a step, at most", lines), spread_of(ratios),
        peers,
    )


def _quantiles(times_ms: list[float]) -> list[tuple[float, float]]:
    cuts = statistics.quantiles(times_ms, n=20)
    return [(5.0 * n, ms) for n, ms in enumerate(cuts, 1)]
