"""chunk_latency, idle_viewers_rss, stop_latency: measure a real gateway with a real broker.

Viewers are plain sockets that read server-sent events, so the gateway is measured, not a client.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from foldlog.bench.history import Session
from foldlog.bench.live import LONG, STORY
from foldlog.bench.measure import Installation, Ratio, p99, spread_of
from foldlog.local.messages_api import ScriptedServer
from foldlog.log.door import Producer
from foldlog.log.partition import partition_for
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode, headers_for
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.topics import SESSION_EVENTS

CHUNKS = 200  # in each run
PACE_S = 0.01  # between two chunks: like a fast model's coalesced chunks
VIEWERS = 1_000
WATCHED = 50  # sessions that the idle viewers watch
IDLE_MB_MAX = 100
STOPS = 10  # in each run
PATIENCE_S = 20


class Gateway:
    """A gateway process of an installation."""

    def __init__(self, process: subprocess.Popen, port: int) -> None:
        self.process, self.port = process, port

    def watch(self, session: str, since: str = "now") -> socket.socket:
        """Open a viewer of a session. Returns its socket, which has received the headers of the
        stream."""
        viewer = socket.create_connection(("127.0.0.1", self.port))
        path = f"/v1/sessions/{session}/stream?since={since}"
        viewer.sendall(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            more = viewer.recv(4096)
            assert more, "the gateway closed the connection"
            head += more
        assert head.startswith(b"HTTP/1.1 200"), head[:200]
        return viewer

    def post(self, path: str, **body) -> float:
        """Send a POST and wait for the response.

        Returns the Unix time in seconds when it was sent.
        """
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            sent = time.time()
            connection.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
            answer = connection.recv(4096)
        assert answer.startswith(b"HTTP/1.1 2"), answer[:300]
        return sent

    def await_ready(self) -> None:
        """Wait until the gateway has read the log."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if self._status("nobody") == 404:
                return
        raise AssertionError("the gateway did not reach the end of the log")

    def knows(self, session: str) -> bool:
        """Whether the gateway has read the session from the log."""
        return self._status(session) == 200

    def _status(self, session: str) -> int:
        head = f"GET /v1/sessions/{session} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(head.encode())
            return int(connection.recv(4096).split()[1])

    def rss_mb(self) -> float:
        """The resident memory of the process, in MB."""
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def gateway(here: Installation) -> Iterator[Gateway]:
    """Run a gateway of this installation until the block ends."""
    env = here.env()
    env.pop("FOLDLOG_GATEWAY_SECRET", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "foldlog.cli", "gateway", "--port", "0"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert "serves http://" in line, f"the gateway did not start: {line}"
        running = Gateway(process, int(line.rstrip("/\n ").rpartition(":")[2]))
        running.await_ready()
        yield running
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def chunk_latency(here: Installation, runs: int) -> Ratio:
    """The time from producing a chunk until a viewer has its text, divided by that of a bare Kafka
    reader.
    """
    producer = here.log.producer()
    try:
        _streaming(here, producer, "chunks")
        with gateway(here) as running:
            viewer = running.watch("chunks")
            pairs = [_hops(here, producer, viewer, run) for run in range(runs + 1)][1:]
            viewer.close()
    finally:
        producer.close()
    ours = statistics.median(median for median, _, _ in pairs)
    base = statistics.median(raw for _, _, raw in pairs)
    worst = statistics.median(late for _, late, _ in pairs)
    ratios = [median / raw for median, _, raw in pairs]
    note = f"p50 of {CHUNKS} chunks per run, one every {PACE_S * 1000:.0f} ms; p99 {worst:.1f} ms"
    ratio, spread = statistics.median(ratios), spread_of(ratios)
    aim = "at most 4, aim 2"
    return Ratio("chunk_latency", ours, base, "ms", ratio, runs, aim, note, spread=spread)


def _streaming(here: Installation, producer: Producer, name: str) -> None:
    """Write a session whose model call has just started to stream."""
    session = Session(name, count())
    for writer, event in session.opened():
        producer.append(SESSION_EVENTS, name, encode(event), headers_for(event, writer))
    for writer, event in session.turn():
        producer.append(SESSION_EVENTS, name, encode(event), headers_for(event, writer))
        if isinstance(event, ev.GenStart):
            break
    assert producer.flush(PATIENCE_S) == 0


def _hops(here: Installation, producer: Producer, viewer, run: int) -> tuple[float, float, float]:
    """The milliseconds that the same chunks take to reach the viewer (p50, p99) and a bare reader
    (p50)."""
    sent: list[float] = []
    viewed: list[float] = []
    read: list[float] = []
    reader = here.log.reader(SESSION_EVENTS, here.log.end_offsets(SESSION_EVENTS))
    reader.poll(0.1)

    def view() -> None:
        while len(viewed) < CHUNKS:
            data = viewer.recv(65536)
            now = time.perf_counter()
            viewed.extend([now] * data.count(b"event: token"))

    def bare() -> None:
        while len(read) < CHUNKS:
            records = reader.poll(1.0)
            read.extend([time.perf_counter()] * len(records))

    threads = [threading.Thread(target=read_all) for read_all in (view, bare)]
    for thread in threads:
        thread.start()
    for number in range(CHUNKS):
        seq = run * CHUNKS + number
        event = ev.GenChunk(turn=1, step=1, attempt=1, seq=seq, block=0, kind="text", delta="word ")
        sent.append(time.perf_counter())
        producer.append(SESSION_EVENTS, "chunks", encode(event), headers_for(event, "models"))
        time.sleep(PACE_S)
    for thread in threads:
        thread.join(PATIENCE_S)
    reader.close()
    ours = [(b - a) * 1000 for a, b in zip(sent, viewed, strict=True)]
    raw = [(b - a) * 1000 for a, b in zip(sent, read, strict=True)]
    return statistics.median(ours), p99(ours), statistics.median(raw)


def idle_viewers_rss(here: Installation, runs: int) -> Ratio:
    """The MB of memory that 1,000 viewers of quiet sessions add to a gateway. The baseline is 100
    MB."""
    producer = here.log.producer()
    offsets = [count() for _ in range(here.settings.partitions)]
    names = [f"idle-{n}" for n in range(WATCHED)]
    for name in names:
        session = Session(name, offsets[partition_for(name, here.settings.partitions)])
        for writer, event in (*session.opened(), *session.turn()):
            key = PARTITION_KEY if isinstance(event, ev.PartitionTaken) else name
            producer.append(SESSION_EVENTS, key, encode(event), headers_for(event, writer))
    assert producer.flush(PATIENCE_S) == 0
    producer.close()
    added_mb = []
    for _ in range(runs):
        with gateway(here) as running:
            running.watch(names[0]).close()
            empty = running.rss_mb()
            viewers = [running.watch(names[n % WATCHED]) for n in range(VIEWERS)]
            full = running.rss_mb()
            for viewer in viewers:
                viewer.close()
        added_mb.append(full - empty)
    ours = statistics.median(added_mb)
    note = f"{VIEWERS:,} viewers of {WATCHED} sessions; the whole process {full:.0f} MB"
    return Ratio(
        "idle_viewers_rss", ours, IDLE_MB_MAX, "MB", ours / IDLE_MB_MAX, runs, "at most 1", note,
        spread=spread_of(mb / IDLE_MB_MAX for mb in added_mb),
    )


def stop_latency(here: Installation, server: ScriptedServer, runs: int) -> Ratio:
    """Seconds (p99) from a stop at the gateway until the model's socket is closed. The baseline is
    1 s. The spread is that of the p99 of each run."""
    times_s = []
    with gateway(here) as running:
        for number in range(runs * STOPS):
            name = f"stop-{time.monotonic_ns()}-{number}"
            running.post(f"/v1/sessions/{name}/messages", text=STORY)
            viewer = running.watch(name, "turn")
            received = b""
            while received.count(b"event: token") < 3:
                received += viewer.recv(65536)
            closed_before = len(server.journal.entries("client_gone"))
            sent = running.post(f"/v1/sessions/{name}/cancel")
            closed = server.wait_count("client_gone", closed_before + 1)[-1]
            times_s.append(closed["at_ms"] / 1000 - sent)
            viewer.close()
    ours, each = p99(times_s), [p99(times_s[run::runs]) for run in range(runs)]
    p50_ms = statistics.median(times_s) * 1000
    note = f"p50 {p50_ms:.0f} ms of {len(times_s)} answers of {len(LONG)} characters"
    return Ratio(
        "stop_latency", ours, 1.0, "s", ours, runs, "at most 1", note, spread=spread_of(each)
    )
