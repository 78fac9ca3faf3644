"""Content blocks as JSON texts: the parts of an answer, result or message that go into a request.

Blocks are copied as text, byte for byte as received, unless the API would refuse them (legal.py).
This file has the rules for one fragment, build.py the rules for windows, and cache_marks.py the
rules for cache marks.
"""

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, TypedDict

from ...schemas.attachments import SOURCE, expand, label
from ...schemas.canonical import compact
from ...schemas.events import Body
from ...schemas.events.parts import ReadBlob
from ...schemas.ids import call_key
from ...schemas.value import Value
from ..fold.cut_points import is_fixed
from ..fold.projections.compaction import CompactionView, in_force
from ..fold.projections.context_view import Fragment, Request
from .frames import framed
from .left_out import LEFT_OUT, WITHOUT_FILES, is_left_out, thinking_from
from .legal import (
    SERVERS_CALLS,
    SIGNED,
    cites_legally,
    fits,
    legal_call,
    legal_name,
    plain_text,
    visible,
)

PARSED_MAX = 256  # bodies with cached blocks; an inline body has at most 64 KiB

AS_TEXT = ""  # the name of a call that is sent as text, and its result with it


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)

Names = dict[tuple[int, int, int], str]
"""The id that each call has in the request, by turn, step and index."""


class Message(Value):
    """One message of a request: its blocks as JSON texts."""

    role: str
    blocks: tuple[str, ...]


class Sending(TypedDict):
    """How a request sends an answer; see `answer_blocks`."""

    bound: bool
    fixed: bool
    as_text: bool


def sending(place: int, request: Request) -> Sending:
    """How a request sends the answer at `place`."""
    return {
        "bound": place >= thinking_from(request),
        "fixed": is_fixed(request.params),
        "as_text": is_left_out(place, request),
    }


def answer_blocks(
    fragment: Fragment,
    read_blob: ReadBlob,
    names: Names,
    taken: set[str],
    *,
    bound: bool,
    fixed: bool = False,
    as_text: bool = False,
) -> tuple[str, ...]:
    """The blocks of an answer that may be sent again; tool calls get legal, unique ids.

    `bound`: the answer's thinking was signed for the prefix of this request; otherwise it is left
        out. If another block is left out or changed, the thinking after it is left out too, because
        its signature covers that block.
    `fixed`: the thinking budget is fixed, so the API refuses calls without all of their thinking.
        If some of it is left out, the calls are sent as text.
    `as_text`: only the text of the answer is sent.
    """
    assert fragment.body is not None
    has_calls = fragment.stop_reason == "tool_use"
    is_whole = fragment.kind == "assistant"
    blocks = raw_blocks(whole_of(fragment.body, read_blob))
    if as_text:
        return _as_text(fragment, blocks, names)
    included, index, is_same = [], 0, True
    for block, text in blocks:
        kind = str(block.get("type"))
        if kind in SIGNED and fits(block, taken):
            if bound and is_same:
                included.append((kind, text))
            elif bound and fixed and has_calls:
                return _as_text(fragment, blocks, names)
            continue
        if kind == "tool_use" and has_calls:
            place = (fragment.turn, fragment.step, index)
            index += 1
            legal = legal_call(block, place, taken)
            names[place] = legal["id"]
            if legal != block:
                is_same, text = False, _encodable(legal)
        elif kind == "tool_use" or not fits(block, taken):
            is_same = is_same and kind in SIGNED  # thinking does not cover other thinking
            continue
        elif kind == "text" and not cites_legally(block):
            is_same, text = False, _encodable(plain_text(block))
        included.append((kind, text))
    if not is_whole and not any(kind == "text" for kind, _ in included):
        return ()  # thinking alone is not an answer
    return tuple(text for _, text in included)


def _as_text(
    fragment: Fragment, blocks: tuple[tuple[dict[str, Any], str], ...], names: Names
) -> tuple[str, ...]:
    """The text of an answer, with a note in place of each call. The results of the calls are then
    text, too."""
    included, index = [], 0
    for block, _ in blocks:
        if block.get("type") == "tool_use" and fragment.stop_reason == "tool_use":
            names[fragment.turn, fragment.step, index] = AS_TEXT
            index += 1
            note = f"[Called {legal_name(block.get('name'))}.]"
            included.append(compact({"type": "text", "text": note}))
        elif visible(block):
            included.append(_encodable(plain_text(block)))
    return tuple(included)


def _encodable(block: dict[str, Any]) -> str:
    """The block as JSON. Half of a surrogate pair, which an old log may have, is replaced."""
    return compact(block).encode("utf-8", "replace").decode()


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
        blocks.append(_result(fragment, body, names.get(place, AS_TEXT)))
    for fragment in fragments:
        if fragment.kind in ("user", WITHOUT_FILES):
            blocks += _message_blocks(fragment, read_blob, request)
        elif fragment.kind == "reminder":
            blocks.append(compact({"type": "text", "text": f"Reminder: {fragment.text}"}))
        elif fragment.kind == LEFT_OUT:
            note = compact({"type": "text", "text": fragment.text})
            blocks += [note] if blocks[-1:] != [note] else []
    return tuple(blocks)


def _message_blocks(fragment: Fragment, read_blob: ReadBlob, request: Request) -> list[str]:
    """The blocks of a message. Producers check messages, so only a damaged log has others."""
    assert fragment.body is not None
    has_files = fragment.kind == "user" and fragment.offset > request.files_after
    texts = [
        text
        for block, text in raw_blocks(whole_of(fragment.body, read_blob))
        if block.get("type") != "text" or visible(block)
    ]
    if not texts:
        return [_UNREADABLE]
    return [expand(text, read_blob) if has_files else _without_file(text) for text in texts]


_UNREADABLE = compact({"type": "text", "text": "[A message that cannot be read.]"})


def _without_file(text: str) -> str:
    """A block of a message, with a note in place of its file."""
    file = label(json.loads(text)) if SOURCE in text else ""
    return compact({"type": "text", "text": f"[No longer shown: {file}]"}) if file else text


def _result(fragment: Fragment, body: Body | None, name: str) -> str:
    shown = body.inline or b"" if body is not None else b""
    return _result_text(name, shown, fragment.text, fragment.error)


@lru_cache(PARSED_MAX)
def _result_text(name: str, shown: bytes, tail: str, error: bool) -> str:
    text = (shown.decode("utf-8", "replace") + tail) or "(empty)"
    if name == AS_TEXT:
        return compact({"type": "text", "text": framed("call_result", text)})
    block = {"type": "tool_result", "tool_use_id": name, "content": text}
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
    """The blocks of a JSON array, each as a parsed object and as its original text. Members that
    are not objects are left out, and anything but a JSON array has no blocks: a log may have them,
    and the session must continue."""
    try:
        return tuple(_raw_blocks(content.decode()))
    except (ValueError, IndexError, RecursionError):
        return ()


def _raw_blocks(text: str) -> Iterator[tuple[dict[str, Any], str]]:
    if not text.lstrip().startswith("["):
        raise ValueError("not a JSON array")
    place = text.index("[") + 1
    while True:
        while text[place] in " \t\r\n,":
            place += 1
        if text[place] == "]":
            return
        block, end = _DECODER.raw_decode(text, place)
        if isinstance(block, dict):
            yield block, text[place:end]
        place = end


def whole_of(body: Body, read_blob: ReadBlob) -> bytes:
    """The bytes of a body, which may be inline or a blob."""
    return read_blob(body.ref) if body.ref is not None else body.inline or b"[]"
