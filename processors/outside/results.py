"""Converts a server's response into the value that a tool returns: text, and notes on other
content.

If the model gets less than the whole response, the blob store keeps the whole response. Pure, and
independent of the `mcp` package: the response is a JSON object.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from ...schemas.canonical import compact
from ..tools.tool import Shortened
from .definitions import printable

LABEL_CHARS_MAX = 300  # of a URI, a name or a media type in a note


def value_of(answer: Mapping[str, Any]) -> Any:
    """The value that a tool returns for a response to `tools/call`.

    A single binary block becomes bytes; texts are joined; other content is replaced by a note, and
    the whole response is kept. Structured content is used if there is no text.
    """
    blocks = [block for block in answer.get("content") or () if isinstance(block, Mapping)]
    structured = answer.get("structuredContent")
    if not blocks:
        return structured if structured is not None else ""
    if len(blocks) == 1:
        alone = _binary(blocks[0])
        if alone is not None:
            return alone
    shown = [_shown(block) for block in blocks]
    text = "\n".join(text for text, _ in shown)
    if structured is not None and not text.strip():
        return structured
    if all(is_whole for _, is_whole in shown):
        return text
    return Shortened(text, compact(answer))


def text_of(answer: Mapping[str, Any]) -> str:
    """The text for the model if the response is marked as an error."""
    value = value_of(answer)
    if isinstance(value, Shortened):
        return value.shown
    if isinstance(value, bytes):
        return f"[an error of {len(value)} bytes that are no text]"
    if isinstance(value, str):
        return value or "the server says that it failed, and not why"
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _shown(block: Mapping[str, Any]) -> tuple[str, bool]:
    """A block as text, and whether the text is the whole block."""
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", "")), True
    if kind in ("image", "audio"):
        size = _size(block.get("data"))
        return f"[{kind}, {_label(block.get('mimeType'))}, {size} bytes, not shown]", False
    if kind == "resource_link":
        name = _label(block.get("title") or block.get("name"))
        return f"[resource {_label(block.get('uri'))}: {name}]", True
    resource = block.get("resource")
    if kind == "resource" and isinstance(resource, Mapping):
        uri = _label(resource.get("uri"))
        if isinstance(resource.get("text"), str):
            return f"[resource {uri}]\n{resource['text']}", True
        media, size = _label(resource.get("mimeType")), _size(resource.get("blob"))
        return f"[resource {uri}, {media}, {size} bytes, not shown]", False
    return f"[content of the unknown kind {_label(kind)}, not shown]", False


def _binary(block: Mapping[str, Any]) -> bytes | None:
    """The bytes of a purely binary block, or None."""
    resource = block.get("resource")
    data = resource.get("blob") if isinstance(resource, Mapping) else None
    if block.get("type") in ("image", "audio"):
        data = block.get("data")
    if not isinstance(data, str):
        return None
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def _size(data: Any) -> int:
    """The approximate number of bytes that a base64 text encodes."""
    return len(data) * 3 // 4 if isinstance(data, str) else 0


def _label(text: Any) -> str:
    return printable(text if text is not None else "unknown")[:LABEL_CHARS_MAX]
