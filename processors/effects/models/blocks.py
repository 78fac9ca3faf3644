"""One content block, rebuilt from its deltas as compact JSON.

Text, thinking, signature and tool input are what was streamed; every other field, and every block
of a type that nobody knows, stays the raw value that came (law 12). A tool input is never parsed
and written again: its raw text is spliced in. This file knows no stream and no call.
"""

from typing import NamedTuple

from ....schemas.enums import ChunkKind
from . import json_bytes as js

NO_INPUT = b"{}"
# Arguments are parsed again by folds and tools, deeper in the stack than here: a nesting close to
# the interpreter's recursion limit (1,000) could be read here and freeze the session there.
DEPTH_MAX = 128


class Piece(NamedTuple):
    """A piece of text that a viewer may see now."""

    kind: ChunkKind
    text: str


# delta type -> (field of the delta, field of the block it extends, what a viewer sees of it)
_EXTENDS = {
    "text_delta": ("text", "text", ChunkKind.TEXT),
    "thinking_delta": ("thinking", "thinking", ChunkKind.THINKING),
}
# delta type -> fields of the block it sets; the newest wins, as in the SDK
_SETS = {
    "signature_delta": ("signature",),
    "compaction_delta": ("content", "encrypted_content"),
}
# What a viewer sees of a block that begins with some of it already said.
_SHOWN_AT_START = (("text", ChunkKind.TEXT), ("thinking", ChunkKind.THINKING))
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


class Block:
    """A block that is being received. `raw`: the content_block as it came."""

    def __init__(self, raw: bytes) -> None:
        self._fields = js.fields(raw)
        self._said: dict[str, list[str]] = {}
        self._input: list[str] | None = None
        self._citations: list[bytes] = []
        self.type = js.string(self._fields.get("type"))
        self.closed = False

    @property
    def is_call(self) -> bool:
        """Whether the block has an input that is of no use until it is whole."""
        return self.type in _CALLS or self._input is not None

    def opening(self) -> list[Piece]:
        """What a viewer sees when the block begins."""
        if self.type in _CALLS:
            return [Piece(ChunkKind.TOOL_NAME, self.text("name"))]
        return [Piece(kind, self.text(name)) for name, kind in _SHOWN_AT_START]

    def closing(self) -> list[Piece]:
        """What a viewer sees when the block ends: an input that came whole, without deltas."""
        if self.type not in _CALLS or self._input is not None:
            return []
        raw = self._fields.get("input", NO_INPUT)
        return [] if js.compact(raw) == NO_INPUT else [Piece(ChunkKind.TOOL_INPUT, raw.decode())]

    def extend(self, raw_delta: bytes) -> list[Piece]:
        """Take a delta; an unknown type is passed over. Returns what a viewer sees of it."""
        delta = js.fields(raw_delta)
        kind = js.string(delta.get("type"))
        if kind in _EXTENDS:
            source, field, shown = _EXTENDS[kind]
            text = js.string(delta.get(source))
            self._said.setdefault(field, [self.text(field)]).append(text)
            return [Piece(shown, text)]
        if kind == "input_json_delta":
            text = js.string(delta.get("partial_json"))
            if self._input is None:
                self._input = []
            self._input.append(text)
            return [Piece(ChunkKind.TOOL_INPUT, text)]
        if kind == "citations_delta" and "citation" in delta:
            self._citations.append(js.compact(delta["citation"]))
        for field in _SETS.get(kind, ()):
            if field in delta:
                self._fields[field] = delta[field]
        return []

    def text(self, field: str) -> str:
        """A field of text as it was said in content_block_start; "" if it is no text."""
        return js.string(self._fields.get(field))

    def input(self) -> tuple[bytes, str | None]:
        """The raw text of a call's input, and why it is not a JSON object, or None."""
        # A tool without arguments may stream nothing, or nothing but an empty text.
        text = js.whole_pairs("".join(self._input or ()))
        text = text or self._fields.get("input", NO_INPUT).decode()
        return text.encode("utf-8", "backslashreplace"), why_no_arguments(text)

    def json(self) -> bytes:
        """The block as compact JSON, fields in the order they came."""
        members = {name: js.compact(raw) for name, raw in self._fields.items()}
        for name, parts in self._said.items():
            members[name] = js.quoted("".join(parts))
        if self._citations:
            members["citations"] = js.array([*self._cited_at_start(), *self._citations])
        if self.is_call:
            raw, error = self.input()
            members["input"] = NO_INPUT if error else raw
        return js.obj(members)

    def _cited_at_start(self) -> list[bytes]:
        raw = js.compact(self._fields.get("citations", b"null"))
        inside = raw[1:-1]
        return [inside] if raw.startswith(b"[") and inside else []


def why_no_arguments(text: str) -> str | None:
    """Why a raw text can not be the arguments of a call, or None if it can."""
    try:
        js.strict_fields(text)
        js.parsed(text)  # Python reads no number of 5,000 digits, and every request is read again
    except js.Malformed as error:
        return f"the arguments are not a JSON object: {error}"
    if text.count("{") + text.count("[") > DEPTH_MAX and js.depth(text) > DEPTH_MAX:
        return f"the arguments are nested deeper than {DEPTH_MAX} levels"
    return None
