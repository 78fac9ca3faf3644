"""What a person may say: a JSON array of text blocks and of attachments, and nothing else in them.

It goes into every later request as the bytes that came, so whatever the Messages API would refuse
there, or a reader could not parse, would end its session for good. An attachment is a reference,
which a request expands (attachments.py).
"""

from typing import Annotated, Literal

import msgspec

from .attachments import TITLE_CHARS_MAX


class TextBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """{"type": "text", "text": "..."}; of a key that comes twice, both must do."""

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
    """{"type": "image", "source": ...}, or "document", which may have a title."""

    type: Literal["image", "document"]
    source: Source
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=TITLE_CHARS_MAX)] | None = None


_TEXTS = msgspec.json.Decoder(list[TextBlock])
_RAW = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT, _ATTACHMENT = msgspec.json.Decoder(TextBlock), msgspec.json.Decoder(AttachmentBlock)


def texts_of(content: bytes) -> list[str]:
    """The texts of a message's blocks, of an attachment its media type.

    Raises ValueError for whatever is no array of text blocks and attachments. Half of a surrogate
    pair and nesting that no parser's stack bears are refused like the rest.
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
