"""Images and PDFs in a message: detection of the type, token estimate, expansion of references.

The log has a reference (sha256, media type, size, tokens), the blob store has the file's bytes, and
a request has them as base64. `expand` turns a reference into base64. It is a pure function of the
block and the blob, so any past request can be rebuilt. Pure: standard library only, no file access.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .canonical import compact
from .events.parts import BlobRef

SOURCE = "foldlog_blob"  # the `type` of a source that is a reference
IMAGE_BYTES_MAX = 5 * 1024 * 1024 * 3 // 4  # the API accepts 5 MiB of base64 per image
PDF_BYTES_MAX = 20 * 1024 * 1024  # the API accepts 32 MB per request; this is 27 MB as base64
MESSAGE_BYTES_MAX = 20 * 1024 * 1024  # all attachments of one message, for the same reason
FILES_MAX = 20  # per message; with more than 20 images the API accepts only smaller ones
PIXELS_MAX = 8_000  # per side; the API rejects more
PAGES_MAX = 600  # of a PDF
TITLE_CHARS_MAX = 200
# Tokens: an image costs its pixels / 750; the newest models scale it down to about 4,800 at most.
# A PDF page costs its text plus its image.
PIXELS_PER_TOKEN, IMAGE_TOKENS_MAX = 750, 4_800
PAGE_TOKENS = 3_000
PAGE_BYTES = 60_000  # bytes per page, assumed if the pages cannot be counted without decompression
PDF = "application/pdf"
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", PDF),
)
MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", PDF)
_SHA = re.compile(r"[0-9a-f]{64}")
_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})  # JPEG: markers of the image size


class Attachment(NamedTuple):
    """The type of an attachment. `tokens`: an estimate, too high rather than too low."""

    media_type: str
    tokens: int


def inspect(data: bytes) -> Attachment:
    """Detect the type of an attachment. Raises ValueError with the reason it cannot be attached."""
    media_type = media_type_of(data)
    if media_type is None:
        raise ValueError("it is neither PNG, JPEG, GIF, WebP nor PDF")
    limit = PDF_BYTES_MAX if media_type == PDF else IMAGE_BYTES_MAX
    if len(data) > limit:
        raise ValueError(f"it has {len(data)} bytes, at most {limit} are allowed for {media_type}")
    if media_type == PDF:
        return Attachment(media_type, _pdf_tokens(data))
    size = _size(data, media_type)
    if size is None or min(size) < 1:
        raise ValueError(f"it is cut or damaged: {media_type} without a size")
    if max(size) > PIXELS_MAX:
        raise ValueError(
            f"it is {size[0]}x{size[1]} pixels, at most {PIXELS_MAX} a side are allowed"
        )
    return Attachment(media_type, min(IMAGE_TOKENS_MAX, size[0] * size[1] // PIXELS_PER_TOKEN + 1))


def media_type_of(data: bytes) -> str | None:
    """Detects the media type by the first bytes, regardless of the file's name."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((media for magic, media in _MAGIC if data.startswith(magic)), None)


def reference(ref: BlobRef, tokens: int, title: str = "") -> dict[str, Any]:
    """The content block that refers to a stored attachment."""
    source = {
        "type": SOURCE,
        "sha256": ref.sha256,
        "media_type": ref.media_type,
        "bytes": ref.bytes,
        "tokens": tokens,
    }
    if ref.media_type != PDF:
        return {"type": "image", "source": source}
    named = {"title": title[:TITLE_CHARS_MAX]} if title.strip() else {}
    return {"type": "document", "source": source, **named}


def reference_of(block: Mapping[str, Any]) -> BlobRef | None:
    """The attachment that a block refers to, or None. Raises ValueError for a bad reference."""
    source = block.get("source")
    if not isinstance(source, Mapping) or source.get("type") != SOURCE:
        return None
    sha, media, size = source.get("sha256"), source.get("media_type"), source.get("bytes")
    if not isinstance(sha, str) or not _SHA.fullmatch(sha) or media not in MEDIA_TYPES:
        raise ValueError("it names no blob")
    if block.get("type") != ("document" if media == PDF else "image"):
        raise ValueError(f"{media} is no {str(block.get('type'))[:40]}")
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError("it says no size")
    return BlobRef(sha256=sha, bytes=size, media_type=media)


def tokens_of(block: Mapping[str, Any]) -> int:
    """Estimated tokens of an attachment; 0 for any other block."""
    source = block.get("source")
    if not isinstance(source, Mapping) or source.get("type") != SOURCE:
        return 0
    tokens = source.get("tokens")
    return tokens if isinstance(tokens, int) and tokens > 0 else IMAGE_TOKENS_MAX


def expand(text: str, read_blob: Callable[[BlobRef], bytes]) -> str:
    """Replaces a reference in a user's content block with base64; other blocks stay unchanged.

    A reference to anything but an image or a PDF becomes a note, because blobs are shared between
    sessions and a block may expose only attachments. If `read_blob` raises, so does this function.
    This function never puts a note in place of a lost blob: the log does not record the loss, and
    the request must depend on the log alone.
    """
    if f'"{SOURCE}"' not in text:
        return text
    block = json.loads(text)
    try:
        ref = reference_of(block)
        if ref is None:
            return text
        data = read_blob(ref)
        found = inspect(data)
        if found.media_type != ref.media_type or len(data) != ref.bytes:
            raise ValueError("it is not what it is said to be")
    except ValueError as error:
        return compact({"type": "text", "text": f"[An attachment that can't be shown: {error}]"})
    encoded = b64encode(data).decode()
    source = {"type": "base64", "media_type": ref.media_type, "data": encoded}
    return compact({**block, "source": source})


def label(block: Mapping[str, Any]) -> str:
    """An attachment as shown to people: `[image/png, 1234 bytes]`; '' for any other block."""
    source = block.get("source")
    if not isinstance(source, Mapping) or source.get("type") != SOURCE:
        return ""
    title = f"{block['title']}, " if isinstance(block.get("title"), str) else ""
    return f"[{title}{source.get('media_type')}, {source.get('bytes')} bytes]"


def _pdf_tokens(data: bytes) -> int:
    if b"/Encrypt" in data:
        raise ValueError("it is encrypted, so the model could not read it")
    pages = len(_PAGE.findall(data)) or -(-len(data) // PAGE_BYTES)
    if pages > PAGES_MAX:
        raise ValueError(f"it has {pages} pages, at most {PAGES_MAX} are allowed")
    return pages * PAGE_TOKENS


def _size(data: bytes, media_type: str) -> tuple[int, int] | None:
    """Width and height in pixels, or None if the bytes do not contain them."""
    if media_type == "image/png":
        return _pair(data[16:24], 4, "big") if data[12:16] == b"IHDR" else None
    if media_type == "image/gif":
        return _pair(data[6:10], 2, "little")
    if media_type == "image/webp":
        return _webp_size(data)
    place = 2
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker, length = data[place + 1], int.from_bytes(data[place + 2 : place + 4], "big")
        if marker in _FRAMES:
            return _pair(data[place + 5 : place + 9], 2, "big")
        if marker == 0xFF:
            place += 1  # padding
        elif length < 2:
            return None
        else:
            place += 2 + length
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        found = _pair(data[26:30], 2, "little")
        return None if found is None else (found[0] & 0x3FFF, found[1] & 0x3FFF)
    if kind == b"VP8L" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        found = _pair(data[24:30], 3, "little")
        return None if found is None else (found[0] + 1, found[1] + 1)
    return None


def _pair(data: bytes, size: int, order: Any) -> tuple[int, int] | None:
    if len(data) < 2 * size:
        return None
    return int.from_bytes(data[:size], order), int.from_bytes(data[size:], order)
