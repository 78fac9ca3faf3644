"""append_context and context_flatness: append one message and build the next request.

Our side is the worker's work on a message from the log: decode it, fold it, and write views and
cursor to RocksDB in one batch; then, after the decision on the step, fold the decision and build
the request. WAKE, the decision and the claim are not timed, because another framework's session
store has no counterpart. The note gives the time of the whole round, including the hop through the
log. The peer is `SQLiteSession` of the OpenAI Agents SDK (MIT) on a file: add_items with the same
message, then get_items, which returns the items but does not build a request. The answer between
two questions is not timed on either side: the peer adds it, and we fold and render it at the end of
the turn. The chat has no tools and alternates a question of 90 with an answer of 300 characters.
"""

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from foldlog.bench.job import Turn, agent, turn
from foldlog.bench.measure import Installation, Plot, Ratio, hop_ms, spread_of
from foldlog.bench.peers import peer
from foldlog.bench.played import Played, RoundTimes, canned
from foldlog.processors.store.store import RocksBackend
from foldlog.processors.worker.loop import tune_gc

MESSAGES = 1_000
SIZES = (100, 1_000, 4_000)
# Messages are timed in alternating blocks, so that a slow minute affects both sides. Single
# messages would find cold processor caches, and the disk busy with the other side's fsync.
BLOCK, BLOCKS = 10, 4
PACKAGE = "openai-agents 0.24.0"


class Chat:
    """A session of foldlog that grows by a question and an answer per turn."""

    def __init__(self, directory: Path) -> None:
        self.played = Played(agent(), RocksBackend(directory), canned)
        self._number = 0

    def next(self) -> Turn:
        """The next turn of the chat."""
        self._number += 1
        return turn(self._number, result_chars=0)

    def grow(self, messages: int) -> list[Turn]:
        """Play turns until the session has `messages` messages, and return these turns."""
        turns = []
        while self.played.messages < messages:
            turns.append(self.next())
            self.played.play(turns[-1])
        return turns


@contextmanager
def chat() -> Iterator[Chat]:
    """A new chat with its own store."""
    with tempfile.TemporaryDirectory(prefix="foldlog-bench-") as directory:
        new_chat = Chat(Path(directory) / "store")
        try:
            yield new_chat
        finally:
            new_chat.played.worker.close()


def items_of(turn: Turn) -> tuple[dict, dict]:
    """A turn of the chat as two items of the Agents SDK."""
    return (
        {"role": "user", "content": turn.question},
        {"role": "assistant", "content": turn.answer},
    )


def append_context(here: Installation, runs: int) -> Ratio:
    """Time appending a message to a session of 1,000 messages. Blocks of the peer's samples
    alternate with blocks of ours."""
    tune_gc()  # like a worker's process
    blocks = max(runs, BLOCKS)
    ours: list[RoundTimes] = []
    theirs: list[float] = []
    with peer("peer_agents.py", PACKAGE) as agents, chat() as mine:
        first_turns = mine.grow(MESSAGES - blocks * BLOCK)
        agents.ask({"fill": [item for turn in first_turns for item in items_of(turn)]})
        for _ in range(blocks):
            turns = [mine.next() for _ in range(BLOCK)]
            for turn in turns:
                question, answer = items_of(turn)
                theirs.append(agents.ask({"append": question})["ms"])
                response = agents.ask({"fill": [answer]})
            ours += [mine.played.timed(turn) for turn in turns]
            assert response["items"] == mine.played.messages, "the same chat"
        last = mine.played.records[-1]
        record = last.topic, last.key, last.value, last.headers
        hop = statistics.median(hop_ms(here, *record) for _ in range(runs))
    base = statistics.median(theirs)
    append, context, whole = (statistics.median(part) for part in zip(*ours, strict=True))
    note = (
        f"append {append:.3f} + request {context:.3f} ms; the worker's whole round {whole:.3f} ms"
        f" ({base / whole:.1f} times faster), including the log's hop of {hop:.3f} ms"
        f" {base / (whole + hop):.1f} times"
    )
    total_ms = append + context
    aim = "at least 20"
    mine_ms = _block_medians([row.append_ms + row.context_ms for row in ours])
    ratios = [their / own for their, own in zip(_block_medians(theirs), mine_ms, strict=True)]
    return Ratio(
        "append_context", total_ms, base, "ms", statistics.median(ratios), len(ours), aim, note,
        spread=spread_of(ratios), peers={"SQLiteSession": base},
    )


def _block_medians(times_ms: list[float]) -> list[float]:
    return [statistics.median(times_ms[n : n + BLOCK]) for n in range(0, len(times_ms), BLOCK)]


def context_flatness(runs: int) -> Ratio:
    """Take the median time for each size, and divide the largest median by the smallest. The sizes
    are timed in alternating blocks."""
    tune_gc()
    blocks = max(runs, BLOCKS)
    with ExitStack() as stack:
        chats = {size: stack.enter_context(chat()) for size in SIZES}
        times_ms: dict[int, list[float]] = {size: [] for size in SIZES}
        for size, mine in chats.items():
            mine.grow(size - blocks * BLOCK)
        for _ in range(blocks):
            for size, mine in chats.items():
                rows = [mine.played.timed(mine.next()) for _ in range(BLOCK)]
                times_ms[size] += [row.append_ms + row.context_ms for row in rows]
    medians = {size: statistics.median(times) for size, times in times_ms.items()}
    worst, best = max(medians, key=medians.__getitem__), min(medians, key=medians.__getitem__)
    blocks_ms = zip(_block_medians(times_ms[worst]), _block_medians(times_ms[best]), strict=True)
    note = ", ".join(f"{ms:.3f} ms at {size:,} messages" for size, ms in medians.items())
    runs = blocks * BLOCK
    lines = {"foldlog": [(float(size), ms) for size, ms in medians.items()]}
    plot = Plot("messages in the session", "ms to append one and build a request", lines)
    aim = "at most 1.3"
    ours, base = medians[worst], medians[best]
    return Ratio(
        "context_flatness", ours, base, "ms", ours / base, runs, aim, note, plot,
        spread_of(slow / fast for slow, fast in blocks_ms),
    )
