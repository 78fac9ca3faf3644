"""append_context and context_flatness: one message more, and the bytes of the next request.

Ours is what the worker does when a message comes back from the log: decode it, fold it, write views
and cursor to RocksDB in one batch; then, once the step is decided, fold that and build the request.
Not timed: WAKE, the decision and the claim between the two, for which a session store of another
framework has no counterpart; the note gives the whole round with them, and with the log's own hop.
The peer is `SQLiteSession` of the OpenAI Agents SDK (MIT) on a file: add_items of the same message
and get_items, which gives its runner the items, not yet a request. A chat without tools: a
question of 90 and an answer of 300 characters in turn.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foldlog.bench.job import Turn, agent, turn
from foldlog.bench.measure import Installation, Ratio
from foldlog.bench.peers import peer
from foldlog.bench.played import Played, Took, canned
from foldlog.processors.runtime.loop import rest_gc
from foldlog.processors.runtime.store import RocksBackend
from foldlog.schemas.record import Record
from foldlog.schemas.topics import SESSION_EVENTS

MESSAGES = 1_000
SIZES = (100, 1_000, 4_000)
SAMPLES = 40  # messages timed at each size, at least: one takes a fraction of a millisecond
PACKAGE = "openai-agents 0.24.0"


class Chat:
    """A session of ours that grows by a question and an answer."""

    def __init__(self, directory: Path) -> None:
        self.played = Played(agent(unbounded=True), RocksBackend(directory), canned)
        self._number = 0

    def next(self) -> Turn:
        """The next turn of the chat."""
        self._number += 1
        return turn(self._number, result_chars=0)

    def grow(self, messages: int) -> list[Turn]:
        """Play until it has so many messages; the turns played."""
        turns = []
        while self.played.messages < messages:
            turns.append(self.next())
            self.played.play(turns[-1])
        return turns


@contextmanager
def chat() -> Iterator[Chat]:
    """A new chat in a store of its own."""
    with tempfile.TemporaryDirectory(prefix="foldlog-bench-") as directory:
        made = Chat(Path(directory) / "store")
        try:
            yield made
        finally:
            made.played.worker.close()


def items_of(turn: Turn) -> tuple[dict, dict]:
    """A turn of the chat as items of the Agents SDK."""
    return (
        {"role": "user", "content": turn.question},
        {"role": "assistant", "content": turn.answer},
    )


def append_context(here: Installation, runs: int, messages: int = MESSAGES) -> Ratio:
    """One message more at 1,000 messages: theirs and ours in turns, one sample each at a time."""
    runs = max(runs, SAMPLES)
    rest_gc()  # as a worker's process has it
    ours: list[Took] = []
    theirs: list[float] = []
    with peer("peer_agents.py", PACKAGE) as agents, chat() as mine:
        played = mine.grow(messages - runs)
        agents.ask({"fill": [item for turn in played for item in items_of(turn)]})
        for _ in range(runs):
            turn = mine.next()
            question, answer = items_of(turn)
            said = agents.ask({"append": question})
            theirs.append(said["ms"])
            ours.append(mine.played.timed(turn))
            agents.ask({"fill": [answer]})
            assert said["items"] == mine.played.messages - 1, "the same chat"
        hop = log_hop_ms(here, runs, mine.played.records[-1])
    base = statistics.median(theirs)
    mean = [statistics.median(part) for part in zip(*ours, strict=True)]
    took = mean[0] + mean[1]
    note = (
        f"append {mean[0]:.3f} + request {mean[1]:.3f} ms; the worker's whole round {mean[2]:.3f}"
        f" ({base / mean[2]:.1f} times), after the log's hop of {hop:.3f}"
        f" ({base / (mean[2] + hop):.1f} times)"
    )
    aim = "times faster: aim 20"
    return Ratio("append_context", took, base, "ms", base / took, runs, aim, note)


def log_hop_ms(here: Installation, runs: int, record: Record) -> float:
    """Ms from producing a record to reading it back from a broker of this machine."""
    producer = here.log.producer()
    reader = here.log.reader(SESSION_EVENTS, here.log.end_offsets(SESSION_EVENTS))
    took = []
    try:
        for _ in range(max(runs, 3)):
            began = time.perf_counter()
            producer.append(record.topic, record.key, record.value, record.headers)
            while not reader.poll(1.0):
                pass
            took.append((time.perf_counter() - began) * 1000)
    finally:
        producer.close()
        reader.close()
    return statistics.median(took)


def context_flatness(runs: int, sizes: tuple[int, ...] = SIZES) -> Ratio:
    """The longest over the shortest of the medians at each size, of one session that grows."""
    runs = max(runs, SAMPLES)
    rest_gc()
    at: dict[int, float] = {}
    with chat() as mine:
        for size in sizes:
            mine.grow(size - runs)
            took = [mine.played.timed(mine.next()) for _ in range(runs)]
            at[size] = statistics.median(row.append_ms + row.context_ms for row in took)
    worst, best = max(at.values()), min(at.values())
    note = ", ".join(f"{ms:.3f} ms at {size:,}" for size, ms in at.items())
    return Ratio(
        "context_flatness", worst, best, "ms", worst / best, runs, "at most 1.3", note
    )
