"""The answer of an attempt that resumes a lost one: the kept text, then the new text.

The first new text continues the last kept block; later blocks follow it. Thinking of a resumed
attempt is neither shown nor kept: it was signed for a request that no later request begins with.
"""

from ....schemas.enums import ChunkKind
from ...request.continuation import Kept, joined
from . import json_bytes as js
from .answer import Answer, Shown
from .blocks import Block

THOUGHT = ("thinking", "redacted_thinking")


class ResumedAnswer(Answer):
    """An answer whose beginning is known."""

    def __init__(self, kept: Kept) -> None:
        super().__init__()
        self._kept = kept
        self._places: dict[int, int] = {}  # block of the stream -> block of the answer
        self._goes_on: int | None = None  # the stream block that continues the last kept block
        self._came, self._shown = "", 0

    def feed(self, name: str, data: str) -> list[Shown]:
        """Like Answer.feed; pieces are numbered after the kept blocks."""
        return [
            placed
            for shown in super().feed(name, data)
            if (placed := self._placed(shown)) is not None
        ]

    def _placed(self, shown: Shown) -> Shown | None:
        if self._blocks[shown.block].type in THOUGHT or shown.kind == ChunkKind.THINKING:
            return None
        if shown.block not in self._places:
            first = not self._places
            goes_on = first and self._blocks[shown.block].type == "text"
            self._goes_on = shown.block if goes_on else self._goes_on
            last = max(self._places.values(), default=self._kept.block)
            self._places[shown.block] = last if goes_on else last + 1
        place, text = self._places[shown.block], shown.text
        if shown.block == self._goes_on:
            self._came += text
            whole = joined(self._kept.texts[-1], self._came)
            text, self._shown = whole[self._shown :], len(whole)
        return Shown(place, shown.kind, text)

    def content(self) -> bytes:
        """The kept and the new content, as a compact JSON array."""
        return js.array(self._all([block for _, block in sorted(self._blocks.items())]))

    def content_so_far(self) -> bytes:
        """Like `content`, without calls whose input may be cut."""
        blocks = [b for _, b in sorted(self._blocks.items()) if b.closed or not b.is_call]
        return js.array(self._all(blocks))

    def _all(self, blocks: list[Block]) -> list[bytes]:
        goes_on = self._blocks.get(self._goes_on) if self._goes_on is not None else None
        *before, last = self._kept.texts
        members = js.fields(goes_on.json()) if goes_on is not None else {"type": b'"text"'}
        members["text"] = js.quoted(last + joined(last, self._came))
        others = [b for b in blocks if b is not goes_on and b.type not in THOUGHT]
        return [
            *(js.obj({"type": b'"text"', "text": js.quoted(text)}) for text in before),
            js.obj(members),
            *(block.json() for block in others),
        ]
