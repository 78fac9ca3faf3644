"""Finds blocks that are in the wrong place: content that the model asks for by a tool in most
turns, and instructions marked as critical in the middle of a long system prompt.

What most turns need belongs in the prompt, because each call costs a step. Models follow the
beginning and the end of a prompt best, and the middle least. Pure; no decision depends on it.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...schemas.events.parts import Body
from ...schemas.tokens import estimate
from ..fold.projections.transcript import Line
from ..fold.views import SessionViews
from ..request.frames import unframed
from ..request.prefix import Prefix
from .block_usage import NOT_JUDGED, TURNS_MIN

MOST_SHARE = 0.5
"""Content that more than this share of turns asked for belongs in the prompt."""
RESULT_TOKENS_MIN = 20
"""A shorter result is an acknowledgement, not content."""
EDGE_SHARE = 0.2
"""The first and the last fifth of a system prompt are its edges."""
LONG_TOKENS = 2_000
"""A shorter system prompt has no middle."""
SHOWN_CHARS = 80
BYTES_PER_TOKEN = 4  # of content in the blob store, whose size is known without reading it

_CALLS = ("call", "asks")
_MARK = re.compile(
    r"^[\s>#*_\[(-]*(?:(?:CRITICAL|IMPORTANT)\b|(?i:critical|important)[*_]*[:!\])]).*$",
    re.MULTILINE,
)


class Asked(NamedTuple):
    """Content that a model asked for in most turns.

    turns: the finished turns of the agent.
    asked: how many of them got this content by this call.
    tokens: the estimated size of the content.
    """

    tool: str
    args: str
    turns: int
    asked: int
    tokens: int


class InTheMiddle(NamedTuple):
    """A line that is marked as critical. place: how far from the beginning, from 0 to 1."""

    line: str
    place: float
    tokens: int


def asked_in_most_turns(sessions: Iterable[SessionViews]) -> tuple[Asked, ...]:
    """The equal results of equal calls that most turns of these sessions of one agent contain, the
    most frequent first.
    """
    turns, counts = 0, Counter[tuple[str, bytes, Body]]()
    for views in sessions:
        for contents in _contents_of_turns(views):
            turns += 1
            counts.update(contents)
    if turns < TURNS_MIN:
        return ()
    return tuple(
        Asked(tool, args.decode("utf-8", "replace"), turns, asked, _tokens(body))
        for (tool, args, body), asked in counts.most_common()
        if asked > MOST_SHARE * turns and _tokens(body) >= RESULT_TOKENS_MIN
    )


def _contents_of_turns(views: SessionViews) -> Iterator[set[tuple[str, bytes, Body]]]:
    """What the calls of each finished turn returned: the tool, its arguments and the result."""
    calls: dict[int, dict[str, Line]] = {}
    found: dict[int, set[tuple[str, bytes, Body]]] = {}
    for line in views.transcript.lines:
        if line.kind in _CALLS:
            calls.setdefault(line.turn, {}).setdefault(line.call, line)
        elif line.kind == "result" and line.body is not None:
            call = calls.get(line.turn, {}).get(line.call)
            if call is not None and call.body is not None and line.name not in NOT_JUDGED:
                args = call.body.inline or b""
                found.setdefault(line.turn, set()).add((line.name, args, line.body))
        elif line.kind == "ended":
            yield found.get(line.turn, set())


def _tokens(body: Body) -> int:
    if body.ref is not None:
        return body.ref.bytes // BYTES_PER_TOKEN
    return estimate((body.inline or b"").decode("utf-8", "replace"))


def critical_in_the_middle(prefix: Prefix) -> tuple[InTheMiddle, ...]:
    """The lines of a long system prompt that are marked as critical (`IMPORTANT: ...`) and stand in
    its middle. Memory is data, so its marks do not count.
    """
    texts = [str(block.get("text", "")) for block in json.loads(prefix.system)]
    whole = sum(map(len, texts))
    tokens = sum(map(estimate, texts))
    if tokens < LONG_TOKENS:
        return ()
    found, before = [], 0
    for text in texts:
        frame = unframed(text)
        if frame is None or frame.tag == "instruction_file":
            for mark in _MARK.finditer(text):
                place = (before + mark.start()) / whole
                if EDGE_SHARE < place < 1 - EDGE_SHARE:
                    found.append(InTheMiddle(mark[0].strip()[:SHOWN_CHARS], place, tokens))
        before += len(text)
    return tuple(found)
