"""One content block, rebuilt from its deltas as compact JSON.

Text, thinking, signature and tool input are assembled from deltas. Every other field, and every
block of an unknown type, stays the raw value that was received. A tool input is never parsed and
serialized again: the block contains its raw text.
"""

from typing import NamedTuple

from ....schemas.enums import ChunkKind
from . import json_bytes as js

NO_INPUT = b"{}"
# Folds and tools parse arguments again, with a deeper stack than here. A nesting close to the
# interpreter's recursion limit (1,000) could be parsed here and then freeze the session in a fold.
DEPTH_MAX = 128
WORD_CHARS_MAX = 1_000  # of names and other words of the provider; longer ones are cut as labels


class Piece(NamedTuple):
    """A piece of text that a viewer may see now."""

    kind: ChunkKind
    text: str


# Deltas of text: their type -> their field with the text
TEXT_OF = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
# delta type -> (field of the block that it extends, the kind that a viewer sees)
_EXTENDS = {
    "text_delta": ("text", ChunkKind.TEXT),
    "thinking_delta": ("thinking", ChunkKind.THINKING),
}
# delta type -> fields of the block it sets; the newest wins, as in the SDK
_SETS = {
    "signature_delta": ("signature",),
    "compaction_delta": ("content", "encrypted_content"),
}
# The fields that viewers see if a block begins with a part of its text.
_SHOWN_AT_START = (("text", ChunkKind.TEXT), ("thinking", ChunkKind.THINKING))
_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")
# The fields of blocks that must be strings, if a block has them.
_TEXTS = ("text", "thinking", "signature")


class Block:
    """A block being received. `raw`: the content_block as received."""

    def __init__(self, raw: bytes) -> None:
        self._fields = js.fields(raw)
        for name in _TEXTS:
            if not js.text(self._fields.get(name)) and name in self._fields:
                self._fields[name] = b'""'  # some providers send null
        self._texts: dict[str, list[str]] = {}
        self._input: list[str] | None = None
        self._citations: list[bytes] = []
        self.type = js.text(self._fields.get("type"))
        if not self.type:
            raise js.Malformed(f"a content block without a type: {raw[:60]!r}")
        self.closed = False

    @property
    def is_call(self) -> bool:
        """Whether the block is a call. The input of a call is unusable until all of it was
        received."""
        return self.type in _CALLS or self._input is not None

    def opening(self) -> list[Piece]:
        """The pieces that a viewer sees when the block begins."""
        if self.type in _CALLS:
            return [Piece(ChunkKind.TOOL_NAME, self.text("name")[:WORD_CHARS_MAX])]
        return [Piece(kind, self.text(name)) for name, kind in _SHOWN_AT_START]

    def closing(self) -> list[Piece]:
        """The pieces that a viewer sees when the block ends: the input of a call, if it came whole
        instead of in deltas."""
        if self.type not in _CALLS or self._input is not None:
            return []
        raw = self._fields.get("input", NO_INPUT)
        return [] if js.compact(raw) == NO_INPUT else [Piece(ChunkKind.TOOL_INPUT, raw.decode())]

    def extend(self, raw_delta: bytes) -> list[Piece]:
        """Apply a delta; unknown types are ignored. Returns the pieces that a viewer sees."""
        delta = js.fields(raw_delta)
        kind = js.string(delta.get("type"))
        if kind in TEXT_OF:
            return [self.extend_text(kind, js.text(delta.get(TEXT_OF[kind])))]
        if kind == "citations_delta" and "citation" in delta:
            self._citations.append(js.compact(delta["citation"]))
        for field in _SETS.get(kind, ()):
            if field in delta:
                self._fields[field] = delta[field]
        return []

    def extend_text(self, kind: str, text: str) -> Piece:
        """Apply the text of a delta whose type is `kind`, a key of TEXT_OF."""
        if kind in _EXTENDS:
            field, shown = _EXTENDS[kind]
            if field not in self._texts:
                self._texts[field] = [self.text(field)]
            self._texts[field].append(text)
            return Piece(shown, text)
        if self._input is None:
            self._input = []
        self._input.append(text)
        return Piece(ChunkKind.TOOL_INPUT, text)

    def text(self, field: str) -> str:
        """A text field of content_block_start; "" if the field is not text."""
        return js.string(self._fields.get(field))

    def input(self) -> tuple[bytes, str | None]:
        """The raw text of a call's input, and the reason why this text is not a JSON object (None
        if it is one)."""
        # The provider may stream no delta, or only an empty text, for a tool without arguments.
        text = js.whole_pairs("".join(self._input or ()))
        text = text or self._fields.get("input", NO_INPUT).decode()
        return text.encode("utf-8", "backslashreplace"), why_no_arguments(text)

    def json(self) -> bytes:
        """The block as compact JSON. The fields are in the order in which they were received."""
        members = {name: js.compact(raw) for name, raw in self._fields.items()}
        for name, parts in self._texts.items():
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
    """The reason why a raw text cannot be the arguments of a call; None if it can."""
    try:
        js.strict_fields(text)
        js.parsed(text)  # Python cannot parse a number of 5,000 digits, but requests are parsed
    except js.Malformed as error:
        return f"the arguments are not a JSON object: {error}"
    try:
        js.demand_shallow(text, DEPTH_MAX)
    except js.Malformed:
        return f"the arguments are nested deeper than {DEPTH_MAX} levels"
    return None
