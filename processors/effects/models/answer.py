"""Builds the answer of one attempt from raw stream events: blocks, usage, stop reason, calls.

It tolerates protocol noise (repeats, unknown events, events after the end). An answer is complete
if and only if it has a stop_reason. The file uses no clock, no SDK and no socket.
"""

import logging
from dataclasses import fields, replace
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from ....schemas.enums import ChunkKind
from ....schemas.events import Usage
from . import json_bytes as js
from .blocks import DEPTH_MAX, TEXT_OF, WORD_CHARS_MAX, Block
from .errors import AttemptFailed, Trouble

CALL_ID_CHARS_MAX = 128  # longer labels are cut
REFUSAL = "refusal"  # the stop_reason of an answer that the model refused
UNSPECIFIED = "unspecified"  # the category of a refusal for which the provider gives none
COUNTS = tuple(field.name for field in fields(Usage))[:-1]
WITH_CONTENT = (
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
)
REPORT_CHARS_MAX = 300
_EMPTY = (b"null", b"{}", b"[]")
_log = logging.getLogger("foldlog.models")
# The API accepts bodies of at most 32 MB: a longer answer could never be sent back.
ANSWER_CHARS_MAX = 32 * 1024 * 1024


class _Delta(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    partial_json: str = ""


class _TextEvent(msgspec.Struct):
    """A content_block_delta, as nearly all events of an answer are."""

    type: Literal["content_block_delta"]
    index: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    delta: _Delta


_TEXT_EVENT = msgspec.json.Decoder(_TextEvent)


class Shown(NamedTuple):
    """A piece of a block that a viewer may see now."""

    block: int
    kind: ChunkKind
    text: str


class Call(NamedTuple):
    """One tool_use block.

    args: the raw text of its input.
    error: why the input is not a JSON object, or None if it is one.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a Call
    call_id: str
    name: str
    args: bytes
    error: str | None

    @property
    def args_sha256(self) -> str:
        """Hex sha256 of the raw argument text, to which an approval is bound."""
        return sha256(self.args).hexdigest()


class Refusal(NamedTuple):
    """Why the model refused to answer, as the provider reports it. Both are empty for any other
    answer."""

    category: str
    explanation: str


class Answer:
    """The content that one attempt has received so far."""

    def __init__(self) -> None:
        self.response_id = ""
        self.model = ""
        self.stop_reason: str | None = None
        self.ended = False
        self.progress = 0  # events with content; a ping or an empty delta has none
        self._details: dict[str, bytes] = {}
        self._blocks: dict[int, Block] = {}
        self._usage: dict[str, bytes] = {}
        self._chars = 0

    def feed(self, name: str, data: str) -> list[Shown]:
        """Apply one event of the stream. Returns what a viewer may see now.

        Raises AttemptFailed if the event is an error, Malformed if it cannot be parsed.
        """
        if self.ended:
            return []
        self._chars += len(data)
        if self._chars > ANSWER_CHARS_MAX:
            raise js.Malformed(f"the answer passed {ANSWER_CHARS_MAX} characters")
        text_event = _text_event(data)
        if text_event is not None:
            shown = self._extend_text(text_event)
            self.progress += any(piece.text for piece in shown)
            return shown
        js.demand_shallow(data, DEPTH_MAX)
        event = js.fields(data)
        kind = js.string(event.get("type")) or name
        self.progress += kind in WITH_CONTENT
        match kind:
            case "message_start":
                self._begin(event)
            case "content_block_start":
                return self._open(event)
            case "content_block_delta":
                return self._extend(event)
            case "content_block_stop":
                return self._close(event)
            case "message_delta":
                self._finish(event)
            case "message_stop":
                self.ended = True
            case "error":
                raise AttemptFailed(_trouble_of(event))
        return []

    def _begin(self, event: dict[str, bytes]) -> None:
        if self.response_id:
            return
        message = js.fields(event.get("message", b"{}"))
        self.response_id = _word(message.get("id"))
        self.model = _word(message.get("model"))
        self._count(message.get("usage"))

    def _open(self, event: dict[str, bytes]) -> list[Shown]:
        index = _index(event)
        if index in self._blocks:
            return []
        block = Block(event.get("content_block", b"{}"))
        self._blocks[index] = block
        return [Shown(index, *piece) for piece in block.opening()]

    def _extend(self, event: dict[str, bytes]) -> list[Shown]:
        index = _index(event)
        block = self._blocks.get(index)
        if block is None or block.closed:
            return []
        return [Shown(index, *piece) for piece in block.extend(event.get("delta", b"{}"))]

    def _extend_text(self, event: _TextEvent) -> list[Shown]:
        block, kind = self._blocks.get(event.index), event.delta.type
        if block is None or block.closed:
            return []
        text: str = getattr(event.delta, TEXT_OF[kind])
        return [Shown(event.index, *block.extend_text(kind, text))]

    def _close(self, event: dict[str, bytes]) -> list[Shown]:
        index = _index(event)
        block = self._blocks.get(index)
        if block is None or block.closed:
            return []
        block.closed = True
        return [Shown(index, *piece) for piece in block.closing()]

    def _finish(self, event: dict[str, bytes]) -> None:
        delta = js.fields(event.get("delta", b"{}"))
        self.stop_reason = _word(delta.get("stop_reason")) or self.stop_reason
        details = delta.get("stop_details", b"null")
        if details.startswith(b"{"):  # a later event may lack them
            self._details = js.fields(details)
        self._count(event.get("usage"))

    def _count(self, raw: bytes | None) -> None:
        for name, value in (js.fields(raw) if raw and raw != b"null" else {}).items():
            before, value = self._usage.get(name), js.compact(value)
            if before is not None and before.startswith(b"{") and value.startswith(b"{"):
                old, new = js.fields(before), js.fields(value)
                members = {each: _newer(old.get(each), new[each]) for each in new}
                self._usage[name] = js.obj({**old, **members})
            else:
                self._usage[name] = _newer(before, value)

    def content(self) -> bytes:
        """All blocks, as a compact JSON array."""
        return js.array(self._rendered(self._ordered()))

    def content_so_far(self) -> bytes:
        """Like `content`, but without calls whose input may be cut. Such a call must never run."""
        return js.array(self._rendered([b for b in self._ordered() if b.closed or not b.is_call]))

    def calls(self) -> list[Call]:
        """The tool_use blocks; none if the stop_reason is not `tool_use`."""
        if self.stop_reason != "tool_use":
            return []
        asked = [block for block in self._ordered() if block.type == "tool_use"]
        return [_call(index, block) for index, block in enumerate(asked)]

    @property
    def refusal(self) -> Refusal:
        """Why the model refused to answer; empty if it did not refuse."""
        is_refusal = self.stop_reason == REFUSAL
        return _refusal(self._details) if is_refusal else Refusal("", "")

    def usage(self) -> Usage | None:
        """The tokens of the attempt as far as reported; None if the provider reported none."""
        return _possible(_normalised(self._usage)) if self._usage else None

    def _ordered(self) -> list[Block]:
        return [block for _, block in sorted(self._blocks.items())]

    def _rendered(self, blocks: list[Block]) -> list[bytes]:
        return [block.json() for block in blocks]


def _text_event(data: str) -> _TextEvent | None:
    """The event, decoded at once, if it is an ordinary delta of text. For any other event, None:
    the caller then reads its fields one by one, with the same result and at several times the cost.
    """
    try:
        event = _TEXT_EVENT.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return event if event.delta.type in TEXT_OF else None


def _call(index: int, block: Block) -> Call:
    label = js.encodable(block.text("id")[:CALL_ID_CHARS_MAX])
    name = js.encodable(block.text("name")[:WORD_CHARS_MAX])
    return Call(index, label, name, *block.input())


def _refusal(details: dict[str, bytes]) -> Refusal:
    category = _word(details.get("category")).strip() or UNSPECIFIED
    return Refusal(category, _word(details.get("explanation")).strip())


def _word(raw: bytes | None) -> str:
    return js.encodable(js.string(raw)[:WORD_CHARS_MAX])


def _newer(before: bytes | None, value: bytes) -> bytes:
    """The value of a member of the usage after a later event. Totals are cumulative, so a new value
    replaces the old. But some gateways repeat a total as zero or null. Nothing but a count
    replaces a count, nothing but an object an object, and an empty value replaces nothing."""
    if before is None:
        return value
    is_lost = js.count(before) > 0 and js.count(value) == 0
    is_lost |= before[:1] in (b"{", b"[") and before[:1] != value[:1]
    return before if is_lost or value in _EMPTY else value


def _normalised(usage: dict[str, bytes]) -> Usage:
    """The usage with input counts that do not overlap: `input_tokens` excludes the cache, and cache
    writes are split by lifetime."""
    raw_split = usage.get("cache_creation", b"{}")
    split = js.fields(raw_split) if raw_split.startswith(b"{") else {}
    written = js.count(usage.get("cache_creation_input_tokens"))
    for_5m = js.count(split.get("ephemeral_5m_input_tokens"))
    for_1h = js.count(split.get("ephemeral_1h_input_tokens"))
    read, wrote = _of_compaction(usage.get("iterations", b"[]"))
    return Usage(
        input_tokens=js.count(usage.get("input_tokens")) + read,
        cache_read_tokens=js.count(usage.get("cache_read_input_tokens")),
        # Writes that are not in the split have the default lifetime, five minutes.
        cache_write_5m_tokens=max(for_5m, written - for_1h),
        cache_write_1h_tokens=for_1h,
        output_tokens=js.count(usage.get("output_tokens")) + wrote,
        raw=js.obj(usage),
    )


def _possible(usage: Usage) -> Usage:
    """The usage; all counts are 0 if one of them is impossible."""
    counts: dict[str, Any] = dict(zip(COUNTS, usage.counts, strict=True))
    possible = replace(usage, **counts)
    if possible != usage:
        report = usage.raw.decode("utf-8", "replace")[:REPORT_CHARS_MAX]
        _log.warning("the provider reported impossible usage, no tokens are counted: %s", report)
    return possible


def _of_compaction(raw: bytes) -> tuple[int, int]:
    """The input and output tokens of a provider's summary. The totals of the usage do not include
    them."""
    read = wrote = 0
    for entry in js.members(raw):
        if js.string(entry.get("type")) == "compaction":
            read += js.count(entry.get("input_tokens"))
            wrote += js.count(entry.get("output_tokens"))
    return read, wrote


NO_USAGE = _normalised({})


def _index(event: dict[str, bytes]) -> int:
    index = js.parsed(event.get("index", b"null"))
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < 2**31:
        raise js.Malformed(f"a content block without a usable index: {index!r}")
    return index


def _trouble_of(event: dict[str, bytes]) -> Trouble:
    raw = event.get("error", b"{}")
    error = js.fields(raw) if raw.startswith(b"{") else {}
    raw_details = error.get("details", b"{}")
    details = js.fields(raw_details) if raw_details.startswith(b"{") else {}
    return Trouble(
        source="event",
        message=js.string(error.get("message")) or "an error event without a message",
        status=200,
        type=js.string(error.get("type")) or None,
        code=js.string(details.get("error_code")) or None,
        request_id=js.string(event.get("request_id")) or None,
    )
