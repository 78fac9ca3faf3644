"""Reads content for exports: bodies from the blob store, and content blocks with their bytes.

This file handles unusual content: missing blobs, content that is not an array, lone surrogates.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from ...log.blobs import BlobError
from ...schemas.attachments import reference_of
from ...schemas.events.parts import BlobRef, Body, ReadBlob

_PARSER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\n\r]*")
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY = msgspec.json.Decoder()
_ENCODER = msgspec.json.Encoder(enc_hook=str)
_NO_JSON = (msgspec.DecodeError, ValueError, RecursionError)


class Contents:
    """Reads bodies. `missing`: references whose bytes are unavailable, by SHA-256."""

    def __init__(self, read: ReadBlob) -> None:
        self._read = read
        self.missing: dict[str, BlobRef] = {}

    def read(self, ref: BlobRef) -> bytes:
        """The bytes of a blob. If they are missing, records this and raises BlobError."""
        try:
            return self._read(ref)
        except BlobError:
            self.missing[ref.sha256] = ref
            raise

    def blob(self, ref: BlobRef) -> bytes | None:
        """The bytes of a blob, or None if the store does not have them or has corrupt bytes."""
        try:
            return self.read(ref)
        except BlobError:
            return None

    def whole(self, body: Body | None) -> bytes | None:
        """The full content, or None if it is missing."""
        if body is None:
            return b""
        return body.inline or b"" if body.ref is None else self.blob(body.ref)

    def preview(self, body: Body | None) -> bytes | None:
        """The part of a result that a model gets, which is the preview if there is one."""
        if body is not None and body.inline is not None:
            return body.inline
        return self.whole(body)


class Block(NamedTuple):
    """A content block: its original bytes as text, and its fields."""

    raw: str
    fields: dict[str, Any]

    @property
    def kind(self) -> str:
        """The type of the block, or `unknown`."""
        kind = self.fields.get("type")
        return kind if isinstance(kind, str) and kind else "unknown"

    def text(self, name: str) -> str | None:
        """The field with this name if it is a string, else None."""
        found = self.fields.get(name)
        return found if isinstance(found, str) else None

    def json(self, name: str) -> msgspec.Raw | None:
        """The original bytes of the field with this name."""
        try:
            return strict_json(bytes(_FIELDS.decode(self.raw.encode()).get(name, b"")))
        except _NO_JSON:
            return None

    def attachment(self) -> BlobRef | None:
        """The blob that an image or document refers to."""
        try:
            return reference_of(self.fields)
        except ValueError:
            return None


def blocks(content: bytes) -> list[Block]:
    """The blocks of a content array. Other content is one block of unknown type."""
    text = content.decode("utf-8", "replace")
    try:
        found = list(_items(text))
    except (ValueError, IndexError, RecursionError):
        found = None
    if found is None or not all(isinstance(block.fields, dict) for block in found):
        return [Block(text, {"text": text})] if text else []
    return found


def _items(text: str) -> Iterator[Block]:
    """The blocks in a JSON array, each with its original text."""
    at = _skip_blank(text, 0)
    if text[at] != "[":
        raise ValueError("not an array")
    at = _skip_blank(text, at + 1)
    while text[at] != "]":
        fields, end = _PARSER.raw_decode(text, at)
        yield Block(text[at:end], fields)
        at = _skip_blank(text, end)
        if text[at] == ",":
            at = _skip_blank(text, at + 1)
        elif text[at] != "]":
            raise ValueError("not an array")


def _skip_blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    assert match is not None, "it matches the empty string"
    return match.end()


def strict_json(data: bytes) -> msgspec.Raw | None:
    """The original bytes of JSON, or None if some JSON readers would refuse it."""
    try:
        _ANY.decode(data)
    except _NO_JSON:
        return None
    return msgspec.Raw(data)


def text_of(data: bytes | None) -> str | None:
    """The bytes as text; None for None."""
    return None if data is None else data.decode("utf-8", "replace")


def json_bytes(value: Any) -> bytes:
    """A value as compact JSON."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ENCODER.encode(clean(value))


def clean(value: Any) -> Any:
    """The value without lone surrogates, which cannot be written to a file."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            return {clean(name): clean(item) for name, item in value.items()}
        case list() | tuple():
            return [clean(item) for item in value]
    return value


def time(at_ms: int | None) -> str | None:
    """A time in Unix ms as UTC text with milliseconds; None for None."""
    if at_ms is None:
        return None
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # e.g. the deadline in a forged record
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
