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
# A burst (a tool's input, cached text) is split at this size, so that a chunk stays a small record.
FLUSH_CHARS = 256
# One delta may be huge. 16 Ki characters are at most 64 KiB of UTF-8, far below a record's limit.
CHUNK_CHARS_MAX = 16_384


class Timer(Protocol):
    def cancel(self) -> None: ...


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
        if self._seq == self._first or self._chars >= FLUSH_CHARS:
            self._send(keep_half_pair=True)
        elif self._timer is None:
            self._timer = self._later(FLUSH_AFTER_S, self._on_time)

    def flush(self) -> None:
        """Send the remaining text, before another block or the outcome."""
        self._send(keep_half_pair=False)

    def _on_time(self) -> None:
        self._timer = None
        self._send(keep_half_pair=True)

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
