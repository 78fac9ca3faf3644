"""append_context and context_flatness: one message more, and the bytes of the next request.

Ours is what the worker does when a message comes back from the log: decode it, fold it, write views
and cursor to RocksDB in one batch; then, once the step is decided, fold that and build the request.
Not timed: WAKE, the decision and the claim between the two, for which a session store of another
framework has no counterpart; the note gives the whole round with them, and with the log's own hop.
The peer is `SQLiteSession` of the OpenAI Agents SDK (MIT) on a file: add_items of the same message
and get_items, which gives its runner the items, not yet a request. The answer between two questions
is timed on neither side: theirs adds it, ours folds and renders it when its turn is over. A chat
without tools: a question of 90 and an answer of 300 characters in turn.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from foldlog.bench.job import Turn, agent, turn
from foldlog.bench.measure import Installation, Ratio
from foldlog.bench.peers import peer
from foldlog.bench.played import Played, Took, canned
from foldlog.processors.store.store import RocksBackend
from foldlog.processors.worker.loop import rest_gc
from foldlog.schemas.record import Record
from foldlog.schemas.topics import SESSION_EVENTS

MESSAGES = 1_000
SIZES = (100, 1_000, 4_000)
# Messages are timed in blocks that take turns, so that a slow minute hits all; a single one would
# find the processor's caches cold, and the disk busy with the other's fsync.
BLOCK, BLOCKS = 10, 4
PACKAGE = "openai-agents 0.24.0"


class Chat:
    """A session of ours that grows by a question and an answer."""

    def __init__(self, directory: Path) -> None:
        self.played = Played(agent(), RocksBackend(directory), canned)
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
    """One message more at 1,000 messages: theirs and ours in turns, some samples at a time."""
    rest_gc()  # as a worker's process has it
    blocks = max(runs, BLOCKS)
    ours: list[Took] = []
    theirs: list[float] = []
    with peer("peer_agents.py", PACKAGE) as agents, chat() as mine:
        told = mine.grow(messages - blocks * BLOCK)
        agents.ask({"fill": [item for turn in told for item in items_of(turn)]})
        for _ in range(blocks):
            turns = [mine.next() for _ in range(BLOCK)]
            for turn in turns:
                question, answer = items_of(turn)
                theirs.append(agents.ask({"append": question})["ms"])
                said = agents.ask({"fill": [answer]})
            ours += [mine.played.timed(turn) for turn in turns]
            assert said["items"] == mine.played.messages, "the same chat"
        hop = log_hop_ms(here, len(ours), mine.played.records[-1])
    base = statistics.median(theirs)
    append, context, whole = (statistics.median(part) for part in zip(*ours, strict=True))
    note = (
        f"append {append:.3f} + request {context:.3f} ms; the worker's whole round {whole:.3f}"
        f" ({base / whole:.1f} times), with the log's hop of {hop:.3f} before it"
        f" {base / (whole + hop):.1f} times"
    )
    took = append + context
    aim = "times faster: aim 20"
    return Ratio("append_context", took, base, "ms", base / took, len(ours), aim, note)


def log_hop_ms(here: Installation, runs: int, record: Record) -> float:
    """Ms from producing a record to reading it back from a broker of this machine."""
    producer = here.log.producer()
    reader = here.log.reader(SESSION_EVENTS, here.log.end_offsets(SESSION_EVENTS))
    took = []
    try:
        for _ in range(runs):
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
    """The longest over the shortest of the medians, of a session of each size, in turns."""
    rest_gc()
    blocks = max(runs, BLOCKS)
    with ExitStack() as stack:
        chats = {size: stack.enter_context(chat()) for size in sizes}
        took: dict[int, list[float]] = {size: [] for size in sizes}
        for size, mine in chats.items():
            mine.grow(size - blocks * BLOCK)
        for _ in range(blocks):
            for size, mine in chats.items():
                rows = [mine.played.timed(mine.next()) for _ in range(BLOCK)]
                took[size] += [row.append_ms + row.context_ms for row in rows]
    at = {size: statistics.median(times) for size, times in took.items()}
    worst, best = max(at.values()), min(at.values())
    note = ", ".join(f"{ms:.3f} ms at {size:,} messages" for size, ms in at.items())
    runs = blocks * BLOCK
    return Ratio("context_flatness", worst, best, "ms", worst / best, runs, "at most 1.3", note)
