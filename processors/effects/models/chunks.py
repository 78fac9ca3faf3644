"""Joins streamed deltas into chunks: fewer records, without a visible delay for viewers.

A provider sends up to a few hundred deltas a second; a record for each would have more overhead
than text. The first token is sent at once, because people wait for it; after that, chunks are sent
by time or size.
"""

from collections.abc import Callable
from typing import Protocol

from ....schemas.enums import ChunkKind
from .json_bytes import encodable, whole_pairs

# 25 updates a second look like a continuous stream; a chunk then holds about 2-10 tokens.
FLUSH_AFTER_S = 0.040
# With more streams than this, each is read only every FLUSH_AFTER_S, together with the others:
# waking up for every delta costs several times more than the delta itself.
STREAMS_READ_AT_ONCE = 16
# With more streams than this, the pause is longer, and a chunk holds more tokens.
STREAMS_READ_OFTEN = 64
READ_AFTER_S = 0.120
# A burst (a tool's input, cached text) is split at this size, so that a chunk stays a small record.
FLUSH_CHARS = 256
# One delta may be huge. 16 Ki characters are at most 64 KiB of UTF-8, far below a record's limit.
CHUNK_CHARS_MAX = 16_384


class Timer(Protocol):
    def cancel(self) -> None: ...


def read_gap_s(streams: int) -> float:
    """The pause between two reads of a stream, while this number of streams runs in the process."""
    if streams <= STREAMS_READ_AT_ONCE:
        return 0.0
    return FLUSH_AFTER_S if streams <= STREAMS_READ_OFTEN else READ_AFTER_S


def until_next(now_s: float, gap_s: float) -> float:
    """Seconds until the next multiple of `gap_s`, at which every stream with this gap wakes up, so
    that one request to the broker carries the chunks of many sessions."""
    return gap_s - now_s % gap_s


Emit = Callable[[int, int, ChunkKind, str], None]
Later = Callable[[float, Callable[[], None]], Timer]


class Chunks:
    """Joins deltas into chunks.

    emit(seq, block, kind, text): sends a chunk; seq counts from `first`, without a gap.
    later(seconds, call): runs a call in this thread after a delay, as `loop.call_later` does.
    """

    def __init__(self, emit: Emit, later: Later, first: int = 0) -> None:
        self._emit = emit
        self._later = later
        self._seq = self._first = first
        self._place: tuple[int, ChunkKind] | None = None
        self._parts: list[str] = []
        self._chars = 0
        self._timer: Timer | None = None

    def add(self, block: int, kind: ChunkKind, text: str) -> None:
        """Add a delta of a block; an empty delta is ignored."""
        if not text:
            return
        if self._place != (block, kind):
            self.flush()
            self._place = (block, kind)
        self._parts.append(text)
        self._chars += len(text)
        if not self.has_begun or self._chars >= FLUSH_CHARS:
            self.send()
        elif self._timer is None:
            self._timer = self._later(FLUSH_AFTER_S, self._on_time)

    @property
    def has_begun(self) -> bool:
        """Whether the first chunk was sent."""
        return self._seq > self._first

    def send(self) -> None:
        """Send the text so far; the block continues."""
        self._send(keep_half_pair=True)

    def flush(self) -> None:
        """Send the remaining text, before another block or the outcome."""
        self._send(keep_half_pair=False)

    def _on_time(self) -> None:
        self._timer = None
        self.send()

    def _send(self, *, keep_half_pair: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text = whole_pairs("".join(self._parts))
        # A provider may split a surrogate pair: the first half then waits for the second.
        kept = text[-1:] if keep_half_pair and "\ud800" <= text[-1:] <= "\udbff" else ""
        self._parts = [kept] if kept else []
        self._chars = len(kept)
        text = encodable(text[: len(text) - len(kept)])
        if not text:
            return
        assert self._place is not None
        block, kind = self._place
        for start in range(0, len(text), CHUNK_CHARS_MAX):
            self._emit(self._seq, block, kind, text[start : start + CHUNK_CHARS_MAX])
            self._seq += 1
