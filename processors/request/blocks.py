"""Content blocks as JSON texts: the parts of an answer, result or message that go into a request.

Blocks are copied as text, byte for byte as received. This file has the rules for one fragment,
build.py the rules for windows, and cache_marks.py the rules for cache marks.
"""

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from ...schemas.attachments import SOURCE, expand, label
from ...schemas.canonical import compact
from ...schemas.events import Body
from ...schemas.events.parts import ReadBlob
from ...schemas.ids import call_key
from ...schemas.value import Value
from ..fold.projections.compaction import CompactionView, in_force
from ..fold.projections.context_view import Fragment, Request

SIGNED = {"thinking": "signature", "redacted_thinking": "data"}
SERVERS_CALLS = ("server_tool_use", "mcp_tool_use")
PARSED_MAX = 256  # bodies with cached blocks; an inline body has at most 64 KiB

_DECODER = json.JSONDecoder()

Names = dict[tuple[int, int, int], str]


class Message(Value):
    """One message of a request: its blocks as JSON texts."""

    role: str
    blocks: tuple[str, ...]


def answer_blocks(
    fragment: Fragment,
    read_blob: ReadBlob,
    names: Names,
    taken: set[str],
    *,
    bound: bool,
) -> tuple[str, ...]:
    """The blocks of an answer that may be sent again; tool calls get unique ids.

    `bound`: the answer's thinking was signed for the prefix of this request; otherwise it is left
    out. If another block is left out or renamed, the thinking after it is left out too, because its
    signature covers that block.
    """
    assert fragment.body is not None
    has_calls = fragment.stop_reason == "tool_use"
    is_whole = fragment.kind == "assistant"
    included, index = [], 0
    for block, text in raw_blocks(whole_of(fragment.body, read_blob)):
        kind = block.get("type")
        if kind in SIGNED and not (bound and block.get(SIGNED[kind])):
            continue
        if kind == "text" and not block.get("text", "").strip():
            bound = False
            continue
        if kind == "tool_use":
            if not has_calls:
                bound = False
                continue
            place = (fragment.turn, fragment.step, index)
            index += 1
            names[place] = name = _unique(block["id"], place, taken)
            if name != block["id"]:
                bound, text = False, compact({**block, "id": name})
        included.append((kind, text))
    if not is_whole and not any(kind == "text" for kind, _ in included):
        return ()  # thinking alone is not an answer
    return tuple(text for _, text in included)


def _unique(call_id: str, place: tuple[int, int, int], taken: set[str]) -> str:
    """The provider's id of a call, or an id derived from it if another call has the same id."""
    name, tail = call_id, "-".join(map(str, place))
    while name in taken:
        name, tail = f"{call_id[:96]}-{tail}", f"{tail}-x"
    taken.add(name)
    return name


def user_blocks(
    fragments: list[Fragment],
    read_blob: ReadBlob,
    names: Names,
    compaction: CompactionView,
    request: Request,
) -> tuple[str, ...]:
    """The blocks between two answers:
    results in the order of calls, then messages and reminders."""
    results = [f for f in fragments if f.kind == "result"]
    results.sort(key=lambda f: (f.turn, f.step, f.index))
    blocks = []
    for fragment in results:
        place = (fragment.turn, fragment.step, fragment.index)
        short = in_force(compaction, call_key(*place), request.compacted_upto)
        body = fragment.body if short is None else short.body
        blocks.append(_result(fragment, body, names[place]))
    for fragment in fragments:
        if fragment.kind == "user":
            assert fragment.body is not None
            has_files = fragment.offset > request.files_after
            for _, text in raw_blocks(whole_of(fragment.body, read_blob)):
                blocks.append(expand(text, read_blob) if has_files else _without_file(text))
        elif fragment.kind == "reminder":
            blocks.append(compact({"type": "text", "text": f"Reminder: {fragment.text}"}))
    return tuple(blocks)


def _without_file(text: str) -> str:
    """A block of a message, with a note in place of its file."""
    file = label(json.loads(text)) if SOURCE in text else ""
    return compact({"type": "text", "text": f"[No longer shown: {file}]"}) if file else text


def _result(fragment: Fragment, body: Body | None, name: str) -> str:
    shown = body.inline or b"" if body is not None else b""
    return _result_text(name, shown, fragment.text, fragment.error)


@lru_cache(PARSED_MAX)
def _result_text(name: str, shown: bytes, tail: str, error: bool) -> str:
    text = shown.decode("utf-8", "replace") + tail
    block = {"type": "tool_result", "tool_use_id": name, "content": text or "(empty)"}
    return compact({**block, "is_error": True} if error else block)


@lru_cache(PARSED_MAX)
def settled(blocks: tuple[str, ...]) -> tuple[str, ...]:
    """The part of an answer that the API accepts before a user message. It leaves out thinking at
    the end, and calls of the provider's own tools that have no result because the provider paused
    the answer."""
    if any(_may_be(SERVERS_CALLS, text) for text in blocks):
        parsed = [json.loads(text) for text in blocks]
        answered = {block.get("tool_use_id") for block in parsed}
        accepted, bound = [], True
        for block, text in zip(parsed, blocks, strict=True):
            if block.get("type") in SERVERS_CALLS and block.get("id") not in answered:
                bound = False  # thinking after it is left out, too
            elif bound or block.get("type") not in SIGNED:
                accepted.append(text)
        blocks = tuple(accepted)
    while blocks and _may_be(SIGNED, blocks[-1]) and json.loads(blocks[-1]).get("type") in SIGNED:
        blocks = blocks[:-1]
    return blocks


def _may_be(kinds: Iterable[str], text: str) -> bool:
    return any(kind in text for kind in kinds)


@lru_cache(PARSED_MAX)
def raw_blocks(content: bytes) -> tuple[tuple[dict[str, Any], str], ...]:
    """The blocks of a JSON array, each as a parsed object and as its original text."""
    text = content.decode()
    place = text.index("[") + 1
    blocks: list[tuple[dict[str, Any], str]] = []
    while True:
        while text[place] in " \t\r\n,":
            place += 1
        if text[place] == "]":
            return tuple(blocks)
        block, end = _DECODER.raw_decode(text, place)
        blocks.append((block, text[place:end]))
        place = end


def whole_of(body: Body, read_blob: ReadBlob) -> bytes:
    """The bytes of a body, which may be inline or a blob."""
    return read_blob(body.ref) if body.ref is not None else body.inline or b"[]"
