"""The partial answer of an attempt, from its chunks."""

from collections.abc import Iterable

from ...schemas.canonical import compact
from ...schemas.events import GenChunk

Chain = tuple[tuple[int, int], ...]
"""(attempt, the last seq that is kept of it) of the attempts that an attempt goes on from."""


def chunks_of(
    chunks: Iterable[GenChunk], place: tuple[int, int, int], chain: Chain
) -> list[GenChunk]:
    """The chunks that make up what an attempt has said, with what it goes on from, in order and
    up to the first that is missing. place: (turn, step, attempt)."""
    turn, step, attempt = place
    there = list(chunks)
    found: list[GenChunk] = []
    for number, upto in (*chain, (attempt, None)):
        for chunk in there:
            is_next = (chunk.turn, chunk.step, chunk.attempt) == (turn, step, number)
            is_next = is_next and chunk.seq == len(found) and (upto is None or chunk.seq <= upto)
            if is_next:
                found.append(chunk)
    return found


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
    return compact(blocks).encode()
