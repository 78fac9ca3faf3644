"""The answer of an attempt that resumes a lost attempt: the kept text, then the new text.

The first new text continues the last kept block; later blocks follow. Thinking of a resumed attempt
is neither shown nor kept, because it was signed for this attempt's request and later requests do
not begin with that request.
"""

from ....schemas.enums import ChunkKind
from ...request.continuation import Kept, joined
from . import json_bytes as js
from .answer import Answer, Shown
from .blocks import Block

THINKING_TYPES = ("thinking", "redacted_thinking")


class ResumedAnswer(Answer):
    """An answer that begins with the kept text of a lost attempt."""

    def __init__(self, kept: Kept) -> None:
        super().__init__()
        self._kept = kept
        self._places: dict[int, int] = {}  # block of the stream -> block of the answer
        self._continued: int | None = None  # the stream block that continues the last kept block
        self._new_text, self._shown = "", 0

    def feed(self, name: str, data: str) -> list[Shown]:
        """Like Answer.feed. The numbers of the new blocks continue those of the kept blocks."""
        return [
            placed
            for shown in super().feed(name, data)
            if (placed := self._renumbered(shown)) is not None
        ]

    def _renumbered(self, shown: Shown) -> Shown | None:
        if self._blocks[shown.block].type in THINKING_TYPES or shown.kind == ChunkKind.THINKING:
            return None
        if shown.block not in self._places:
            first = not self._places
            continued = first and self._blocks[shown.block].type == "text"
            self._continued = shown.block if continued else self._continued
            last = max(self._places.values(), default=self._kept.block)
            self._places[shown.block] = last if continued else last + 1
        place, text = self._places[shown.block], shown.text
        if shown.block == self._continued:
            self._new_text += text
            whole = joined(self._kept.texts[-1], self._new_text)
            text, self._shown = whole[self._shown :], len(whole)
        return Shown(place, shown.kind, text)

    def _rendered(self, blocks: list[Block]) -> list[bytes]:
        """The kept blocks, with the continuation appended to the last, then the new blocks."""
        continued = self._blocks.get(self._continued) if self._continued is not None else None
        *before, last = self._kept.texts
        members = js.fields(continued.json()) if continued is not None else {"type": b'"text"'}
        members["text"] = js.quoted(last + joined(last, self._new_text))
        others = [b for b in blocks if b is not continued and b.type not in THINKING_TYPES]
        return [
            *(js.obj({"type": b'"text"', "text": js.quoted(text)}) for text in before),
            js.obj(members),
            *(block.json() for block in others),
        ]
