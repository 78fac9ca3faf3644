"""message_to_request, recovery and journaled_stream: measure a real worker, broker and model
server.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from foldlog.bench.measure import Installation, Ratio, hop_ms, spread_of
from foldlog.client.log_client import LogClient
from foldlog.client.session import Session
from foldlog.client.session_fold import SessionFold
from foldlog.client.transcript_stream import INITIAL, Token, see
from foldlog.local.messages_api import Reply, Request, Rule, Script, ScriptedServer, text
from foldlog.schemas import events as ev
from foldlog.schemas.topics import USER_SESSIONS

WORDS = 600  # in the streamed answer
MESSAGES = 20  # of message_to_request, in each run
PACE_S = 0.005  # between two words: 200 a second, faster than a person reads
SILENCE_S = 60.0  # without an event: something is wrong
WARM_S = 5.0  # for the next spare worker, as between two real crashes
STORY = "tell me the long story"
LONG = " ".join(f"word{n:03}" for n in range(WORDS))


@contextmanager
def worker(
    here: Installation, base_url: str, *options: str, **env: str
) -> Iterator[subprocess.Popen]:
    """A supervised worker of this installation, started with these options and variables."""
    env = here.env() | {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": "bench"} | env
    with open(here.home / "worker.log", "wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "foldlog.cli", "worker", "--supervise", *options],
            env=env,
            cwd=here.home,
            stdout=errors,
            stderr=errors,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def message_to_request(here: Installation, server: ScriptedServer, runs: int) -> Ratio:
    """Ms from producing a message to the request at the model server, divided by the time of one
    log hop (`hop_ms`)."""
    arrivals: list[float] = []

    def answer(request: Request) -> Reply:
        arrivals.append(request.arrived_s)
        return Reply([text("yes")])

    server.script.add(Rule(reply=answer, contains="hello"))
    hops, waits = [], []
    with LogClient(here.settings, channel="bench") as client, client.fold("warm") as folded:
        Session(client, "warm").say("hello")
        events = accepted(folded)
        _await(events, lambda event: isinstance(event, ev.TurnEnded))
        for _ in range(runs):
            hops.append(hop_ms(here, USER_SESSIONS, "bench", b"x" * 200))
            for _ in range(MESSAGES):
                began = time.perf_counter()
                client.writer.say("warm", "hello again", channel="bench")
                _await(events, lambda event: isinstance(event, ev.TurnEnded))
                waits.append((arrivals[-1] - began) * 1000)
    ours, base = statistics.median(waits), statistics.median(hops)
    note = (
        f"{len(waits)} messages, p90 {statistics.quantiles(waits, n=10)[-1]:.1f} ms; hop "
        f"{min(hops):.2f} to {max(hops):.2f} ms"
    )
    aim = "at most 4, aim 2.5"
    each = [statistics.median(waits[n * MESSAGES :][:MESSAGES]) for n in range(runs)]
    ratios = [ms / hop for ms, hop in zip(each, hops, strict=True)]
    ratio, spread = statistics.median(ratios), spread_of(ratios)
    return Ratio("message_to_request", ours, base, "ms", ratio, runs, aim, note, spread=spread)


def recovery(here: Installation, server: ScriptedServer, runs: int) -> Ratio:
    """Seconds from the kill -9 of a worker that streams an answer until GEN_RESUMED is in the log.
    The baseline is 1 s."""
    times_s = []
    for n in range(runs):
        with LogClient(here.settings) as client, client.fold(f"killed-{n}", chunks=True) as folded:
            Session(client, folded.session_id).say(STORY)
            events = accepted(folded)
            _await(events, lambda e: isinstance(e, ev.GenChunk) and e.seq >= 3)
            pid = json.loads((here.settings.state_dir / "worker.json").read_text())["pid"]
            killed = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            _await(events, lambda e: isinstance(e, ev.GenResumed))
            times_s.append(time.perf_counter() - killed)
            _await(events, lambda e: isinstance(e, ev.TurnEnded))
            time.sleep(WARM_S)
    ours = statistics.median(times_s)
    aim, spread = "at most 1, aim 0.3", spread_of(times_s)
    return Ratio("recovery", ours, 1.0, "s", ours, runs, aim, spread=spread)


def accepted(folded: SessionFold) -> Iterator[Any]:
    """The accepted events as they arrive. Raises AssertionError if none arrives for SILENCE_S."""
    heard = time.monotonic()
    while time.monotonic() < heard + SILENCE_S:
        for step in folded.poll():
            if step.ruling.accepted:
                yield step.entry.event
                heard = time.monotonic()
    raise AssertionError(f"no event arrived for {SILENCE_S:.0f} s")


def _await(events: Iterator[Any], wanted: Callable[[Any], bool]) -> None:
    """Wait for an event. Those that arrived together with it are kept for the next wait."""
    while not wanted(next(events)):
        pass


def events_until(folded: SessionFold, last: type) -> Iterator[Any]:
    """The accepted events as they arrive, up to and with the first of type `last`."""
    for event in accepted(folded):
        yield event
        if isinstance(event, last):
            return


def journaled_stream(here: Installation, server: ScriptedServer, runs: int) -> Ratio:
    """Characters per second that reach a viewer through the log, divided by those that the provider
    sends.

    Both rates are measured on the same answers, because the server's pace varies with the load.
    """
    rates = []
    for _ in range(runs):
        mine = _rate(_through_the_log(here))
        sent = server.wait_count("answered")[-1]
        (accepted,) = server.journal.entries("accepted", n=sent["n"])
        rates.append((mine, len(LONG) / (sent["at_ms"] - accepted["at_ms"]) * 1000))
    ours, base = (statistics.median(column) for column in zip(*rates, strict=True))
    ratios = [mine / provider for mine, provider in rates]
    return Ratio(
        "journaled_stream", ours, base, "characters/s", statistics.median(ratios), runs,
        "at least 0.95", spread=spread_of(ratios),
    )


def _rate(pieces: Iterator[str]) -> float:
    """Characters per second, from the first piece to the last."""
    began = last = received = 0
    for piece in pieces:
        last = time.perf_counter()
        began = began or last
        received += len(piece)
    assert received == len(LONG), f"{received} of {len(LONG)} characters arrived"
    return received / (last - began)


def _through_the_log(here: Installation) -> Iterator[str]:
    """The pieces of the story as a viewer of the session receives them."""
    name, viewer, has_ended = f"stream-{time.monotonic_ns()}", INITIAL, False
    client = LogClient(here.settings, channel="bench")
    with client, client.fold(name, chunks=True) as folded:
        Session(client, name).say(STORY)
        while not has_ended:
            for step in folded.poll():
                viewer, things = see(viewer, step)
                yield from (thing.text for thing in things if isinstance(thing, Token))
                has_ended = has_ended or isinstance(step.entry.event, ev.TurnEnded)


def script() -> Script:
    """A long story for requests that ask for it, a short answer for all others."""
    story = Reply([text(LONG)], chunk="word", pace_s=PACE_S)
    return Script([Rule(reply=story, contains="long story"), Rule(reply=Reply([text("yes")]))])
