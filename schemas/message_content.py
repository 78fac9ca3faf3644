"""Validates the content of a user message: a JSON array of text blocks and attachments.

Every later request contains the same bytes, so content that the Messages API rejects, or a reader
cannot parse, would break the session permanently. An attachment is a reference, which a request
replaces by the file itself (attachments.py).
"""

from typing import Annotated, Literal

import msgspec

from .attachments import TITLE_CHARS_MAX


class TextBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """{"type": "text", "text": "..."}; if a key occurs twice, both values must be valid."""

    type: Literal["text"]
    text: str


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reference to an attachment in the blob store."""

    type: Literal["foldlog_blob"]  # attachments.SOURCE
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    media_type: Literal["image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"]
    bytes: Annotated[int, msgspec.Meta(ge=1)]
    tokens: Annotated[int, msgspec.Meta(ge=1)]


class AttachmentBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """{"type": "image", "source": ...}, or "document" with an optional title."""

    type: Literal["image", "document"]
    source: Source
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=TITLE_CHARS_MAX)] | None = None


_TEXTS = msgspec.json.Decoder(list[TextBlock])
_RAW = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT, _ATTACHMENT = msgspec.json.Decoder(TextBlock), msgspec.json.Decoder(AttachmentBlock)


def texts_of(content: bytes) -> list[str]:
    """The text of each block of a message; for an attachment, its media type.

    Raises ValueError for anything but an array of text blocks and attachments, also for lone
    surrogates and for nesting that is too deep for a parser's stack.
    """
    try:
        if b'"source"' not in content:
            return [block.text for block in _TEXTS.decode(content)]
        return [_text_of(bytes(raw)) for raw in _RAW.decode(content)]
    except RecursionError as deep:
        raise ValueError(str(deep)) from deep


def _text_of(raw: bytes) -> str:
    try:
        return _TEXT.decode(raw).text
    except msgspec.ValidationError:
        block = _ATTACHMENT.decode(raw)
    is_image = block.source.media_type.startswith("image/")
    if is_image != (block.type == "image") or (is_image and block.title is not None):
        raise ValueError(f"{block.source.media_type} is no {block.type}")
    return block.source.media_type
