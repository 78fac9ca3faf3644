"""What an attempt had said, from its chunks: pure, for whoever has them at hand."""

import json
from collections.abc import Iterable

from ..schemas.events import GenChunk


def said_so_far(chunks: Iterable[GenChunk]) -> bytes:
    """The text that chunks carried, as a JSON array of text blocks; the rest was not finished."""
    texts: dict[int, str] = {}
    seen = -1
    for chunk in chunks:
        if chunk.seq <= seen:
            continue  # a repetition
        seen = chunk.seq
        if chunk.kind == "text":
            texts[chunk.block] = texts.get(chunk.block, "") + chunk.delta
    blocks = [{"type": "text", "text": text} for _, text in sorted(texts.items()) if text]
    return json.dumps(blocks, ensure_ascii=False, separators=(",", ":")).encode()
