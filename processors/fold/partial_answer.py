"""Builds the partial answer of an attempt from its chunks."""

from collections.abc import Iterable

from ...schemas.canonical import compact
from ...schemas.enums import ChunkKind
from ...schemas.events import GenChunk

Chain = tuple[tuple[int, int], ...]
"""The attempts that an attempt continues, oldest first: (attempt, seq of its last kept chunk)."""


def chunks_of(
    chunks: Iterable[GenChunk], place: tuple[int, int, int], chain: Chain
) -> list[GenChunk]:
    """The chunks of an attempt and of the attempts that it continues, in order, up to the first
    missing chunk. `place`: (turn, step, attempt)."""
    turn, step, attempt = place
    candidates = list(chunks)
    found: list[GenChunk] = []
    for number, upto in (*chain, (attempt, None)):
        for chunk in candidates:
            is_next = (chunk.turn, chunk.step, chunk.attempt) == (turn, step, number)
            is_next = is_next and chunk.seq == len(found) and (upto is None or chunk.seq <= upto)
            if is_next:
                found.append(chunk)
    return found


def said_so_far(chunks: Iterable[GenChunk]) -> bytes:
    """The text of the chunks as a JSON array of text blocks. Thinking and tool calls are left
    out."""
    texts: dict[int, str] = {}
    last_seq = -1
    for chunk in chunks:
        if chunk.seq <= last_seq:
            continue  # a duplicate
        last_seq = chunk.seq
        if chunk.kind == ChunkKind.TEXT:
            texts[chunk.block] = texts.get(chunk.block, "") + chunk.delta
    blocks = [{"type": "text", "text": text} for _, text in sorted(texts.items()) if text]
    return compact(blocks).encode()
