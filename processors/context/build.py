"""The request of a step, as bytes: a pure function of the context view (design law 11).

Whoever claims the step, rebuilds it after a crash or asks for it a year later gets the same bytes;
GEN_START carries their sha256 and BUILDER. Content blocks go in as they came, spliced as text:
nothing that was received is written anew. The rules below keep every request legal by construction.
"""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from ...schemas.events import BlobRef, Body
from ..projections.context import ContextView, Fragment

BUILDER = "full-3"  # a new value whenever the same view would give other bytes
STRATEGIES = ("full",)
SIGNED = {"thinking": "signature", "redacted_thinking": "data"}
SERVERS_CALLS = ("server_tool_use", "mcp_tool_use")
CACHE = ',"cache_control":{"type":"ephemeral"}}'  # 5 minutes; every step refreshes it

ReadBlob = Callable[[BlobRef], bytes]


class Message(NamedTuple):
    """One message of a request: its blocks as JSON texts."""

    role: str
    blocks: tuple[str, ...]


def request_bytes(view: ContextView, read_blob: ReadBlob) -> bytes:
    """The newest request of the view, compact UTF-8 JSON with its cache marks.

    Raises AssertionError if no step was decided, and whatever `read_blob` raises.
    """
    request = view.request
    assert request is not None, "a request exists once a step was decided"
    assert request.strategy in STRATEGIES, request.strategy
    prefix = view.prefixes[request.prefixes - 1]
    system = raw_blocks(_whole(prefix.system, read_blob))
    tools = _whole(prefix.tools, read_blob).decode()
    messages = messages_of(view.fragments.upto(request.fragments), read_blob)
    parts = [f'"model":{json.dumps(request.model)}']
    params = request.params.decode().strip()[1:-1]
    if params:
        parts.append(params)
    if system:
        parts.append(f'"system":[{",".join(_marked([text for _, text in system]))}]')
    if tools != "[]":
        parts.append(f'"tools":{tools}')
    # A paused answer may come last, and not every block of one takes a mark.
    last = max(n for n, message in enumerate(messages) if message.role == "user")
    texts = [_message(message, marked=n == last) for n, message in enumerate(messages)]
    parts.append(f'"messages":[{",".join(texts)}]')
    return ("{" + ",".join(parts) + "}").encode()


def request_sha256(request: bytes) -> str:
    """What GEN_START carries as request_sha256."""
    return sha256(request).hexdigest()


def messages_of(fragments, read_blob: ReadBlob) -> list[Message]:
    """The conversation, strictly alternating, tool results first in the message that has them."""
    messages: list[Message] = []
    names: dict[tuple[int, int, int], str] = {}
    taken: set[str] = set()
    said: list[Fragment] = []
    for fragment in fragments:
        if fragment.kind not in ("assistant", "partial"):
            said.append(fragment)
            continue
        blocks = _answer(fragment, read_blob, names, taken)
        if blocks:
            _add(messages, "user", _said(said, read_blob, names))
            said = []
            _add(messages, "assistant", blocks)
    _add(messages, "user", _said(said, read_blob, names))
    return messages


def _add(messages: list[Message], role: str, blocks: tuple[str, ...]) -> None:
    if not blocks:
        return
    if role == "user" and messages and messages[-1].role == "assistant":
        settled = _settled(messages.pop().blocks)
        if settled:
            messages.append(Message("assistant", settled))
    if messages and messages[-1].role == role:
        messages[-1] = Message(role, messages[-1].blocks + blocks)
    else:
        messages.append(Message(role, blocks))


def _settled(blocks: tuple[str, ...]) -> tuple[str, ...]:
    """What may stay of an answer once a user speaks after it, for the API refuses the rest for
    ever: no call of a server's tool that a pause left without result, no thinking at the end."""
    if any(kind in text for text in blocks for kind in SERVERS_CALLS):
        parsed = [json.loads(text) for text in blocks]
        done = {block.get("tool_use_id") for block in parsed}
        blocks = tuple(
            text
            for block, text in zip(parsed, blocks, strict=True)
            if block.get("type") not in SERVERS_CALLS or block.get("id") in done
        )
    while blocks and json.loads(blocks[-1]).get("type") in SIGNED:
        blocks = blocks[:-1]
    return blocks


def _answer(
    fragment: Fragment,
    read_blob: ReadBlob,
    names: dict[tuple[int, int, int], str],
    taken: set[str],
) -> tuple[str, ...]:
    """The blocks of an answer that may be said again; tool calls get names that are unique."""
    assert fragment.body is not None
    calls_count = fragment.stop_reason == "tool_use"
    whole = fragment.kind == "assistant"
    kept, index = [], 0
    for block, text in raw_blocks(_whole(fragment.body, read_blob)):
        kind = block.get("type")
        if kind in SIGNED and not block.get(SIGNED[kind]):
            continue
        if kind == "text" and not block.get("text", "").strip():
            continue
        if kind == "tool_use":
            if not calls_count:
                continue
            place = (fragment.turn, fragment.step, index)
            index += 1
            names[place] = name = _unique(block["id"], place, taken)
            text = text if name == block["id"] else compact({**block, "id": name})
        kept.append((kind, text))
    if not whole and not any(kind == "text" for kind, _ in kept):
        return ()  # thinking alone answers nothing
    return tuple(text for _, text in kept)


def _unique(call_id: str, place: tuple[int, int, int], taken: set[str]) -> str:
    """The provider's id, or one made of it where providers repeat themselves."""
    name, tail = call_id, "-".join(map(str, place))
    while name in taken:
        name, tail = f"{call_id[:96]}-{tail}", f"{tail}-x"
    taken.add(name)
    return name


def _said(
    fragments: list[Fragment],
    read_blob: ReadBlob,
    names: dict[tuple[int, int, int], str],
) -> tuple[str, ...]:
    results = [f for f in fragments if f.kind == "result"]
    results.sort(key=lambda f: (f.turn, f.step, f.index))
    blocks = [_result(f, names[f.turn, f.step, f.index]) for f in results]
    for fragment in fragments:
        if fragment.kind == "user":
            assert fragment.body is not None
            blocks.extend(text for _, text in raw_blocks(_whole(fragment.body, read_blob)))
        elif fragment.kind == "reminder":
            blocks.append(compact({"type": "text", "text": f"Reminder: {fragment.text}"}))
    return tuple(blocks)


def _result(fragment: Fragment, name: str) -> str:
    shown = fragment.body.inline or b"" if fragment.body is not None else b""
    text = shown.decode("utf-8", "replace") + fragment.text
    block = {"type": "tool_result", "tool_use_id": name, "content": text or "(empty)"}
    return compact({**block, "is_error": True} if fragment.error else block)


def raw_blocks(content: bytes) -> list[tuple[dict, str]]:
    """The blocks of a JSON array, each parsed and as the very text it came in."""
    text = content.decode()
    decoder = json.JSONDecoder()
    place = text.index("[") + 1
    blocks = []
    while True:
        while text[place] in " \t\r\n,":
            place += 1
        if text[place] == "]":
            return blocks
        block, end = decoder.raw_decode(text, place)
        blocks.append((block, text[place:end]))
        place = end


def _message(message: Message, *, marked: bool) -> str:
    blocks = _marked(list(message.blocks)) if marked else message.blocks
    return f'{{"role":"{message.role}","content":[{",".join(blocks)}]}}'


def _marked(blocks: list[str]) -> list[str]:
    """The blocks with a cache mark on the last one."""
    return [*blocks[:-1], blocks[-1].rstrip()[:-1] + CACHE]


def _whole(body: Body, read_blob: ReadBlob) -> bytes:
    return read_blob(body.ref) if body.ref is not None else body.inline or b"[]"


def compact(value: dict) -> str:
    """JSON as a request carries it: no spaces, characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
