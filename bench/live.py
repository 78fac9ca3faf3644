"""message_to_request, recovery and journaled_stream: a real worker, broker and model server."""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from foldlog.bench.measure import Installation, Ratio
from foldlog.consumers.client import Client
from foldlog.consumers.transcript_stream import Token
from foldlog.local.messages_api import Reply, Rule, Script, ScriptedServer, text
from foldlog.schemas import events as ev
from foldlog.schemas.topics import USER_SESSIONS

WORDS = 600  # of the streamed answer
PACE_S = 0.005  # between two words: 200 a second, faster than a person reads
LONG = " ".join(f"word{n:03}" for n in range(WORDS))


@contextmanager
def worker(here: Installation, base_url: str) -> Iterator[subprocess.Popen]:
    """A supervised worker of this installation."""
    env = {
        **os.environ,
        "FOLDLOG_HOME": str(here.home),
        "FOLDLOG_PARTITIONS": str(here.settings.partitions),
        "KAFKA_BOOTSTRAP_SERVERS": here.settings.bootstrap_servers or "",
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": "bench",
        "FOLDLOG_USER": "bench",
    }
    with open(here.home / "worker.log", "wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "foldlog.cli", "worker", "--supervise"],
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
    """From producing a message to the model server's request, over one produce-to-consume."""
    hops = [_hop(here) for _ in range(runs)]
    waits = []
    with Client(here.settings) as client:
        client.ask("warm", "hello")
        for _ in range(runs):
            asked_at = _now_ms()
            before = server.journal.count("accepted")
            client.sessions.say("warm", "hello again", channel="bench")
            server.wait_count("accepted", before + 1)
            waits.append(server.journal.last("accepted")["at_ms"] - asked_at)
    ours, base = statistics.median(waits), statistics.median(hops)
    return Ratio("message_to_request", ours, base, "ms", ours / base, runs, "at most 8, aim 4")


def _now_ms() -> float:
    return time.time_ns() / 1e6


def _hop(here: Installation) -> float:
    """Ms from one raw produce to its consumption, both clients warm."""
    producer = here.log.producer()
    reader = here.log.reader(USER_SESSIONS, here.log.end_offsets(USER_SESSIONS))
    try:
        for warm in (True, False):
            began = time.perf_counter()
            producer.append(USER_SESSIONS, "bench", b"x" * 200)
            while not reader.poll(1.0):
                pass
            if not warm:
                return (time.perf_counter() - began) * 1000
    finally:
        producer.close()
        reader.close()
    raise AssertionError("unreachable")


def recovery(here: Installation, server: ScriptedServer, runs: int) -> Ratio:
    """Seconds from kill -9 in a streaming answer to GEN_RESUMED in the log; baseline 1 s."""
    took = []
    for n in range(runs):
        with Client(here.settings) as client, client.fold(f"killed-{n}", chunks=True) as folded:
            client.say_on(folded, "tell me the long story")
            _await(folded, lambda e: isinstance(e, ev.GenChunk) and e.seq >= 3)
            pid = json.loads((here.settings.state_dir / "worker.json").read_text())["pid"]
            killed = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            _await(folded, lambda e: isinstance(e, ev.GenResumed))
            took.append(time.perf_counter() - killed)
            _await(folded, lambda e: isinstance(e, ev.TurnEnded))
            time.sleep(3)  # let the next spare warm up, as it would between two real crashes
    ours = statistics.median(took)
    return Ratio("recovery", ours, 1.0, "s", ours, runs, "at most 5, aim 1")


def _await(folded, wanted) -> None:
    while True:
        for seen in folded.poll():
            if seen.ruling.accepted and wanted(seen.entry.event):
                return


def journaled_stream(here: Installation, server: ScriptedServer, runs: int) -> Ratio:
    """Characters per second that reach a viewer, over the rate at which the server sends them."""
    ours, base = [], []
    for n in range(runs):
        with Client(here.settings) as client:
            name = f"stream-{n}"
            client.say(name, "tell me the long story")
            first = last = 0.0
            seen = 0
            for _, shown in client.watch(name, stop=lambda: False):
                if isinstance(shown, Token) and shown.kind == "text":
                    last = time.perf_counter()
                    first = first or last
                    seen += len(shown.text)
                    if seen >= len(LONG):
                        break
            ours.append(seen / (last - first))
            base.append(1 / PACE_S * len(LONG) / WORDS)
    mine, rate = statistics.median(ours), statistics.median(base)
    aim = "at least 0.95"
    return Ratio("journaled_stream", mine, rate, "characters/s", mine / rate, runs, aim)


def script() -> Script:
    """A long story for who asks for it, a short answer for the rest."""
    story = Reply([text(LONG)], chunk="word", pace_s=PACE_S)
    return Script([Rule(story, contains="long story"), Rule(Reply([text("yes")]))])
