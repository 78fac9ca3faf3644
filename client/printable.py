"""Turns content into printable values: resolved bodies, the text of content blocks, JSON.

Content in the blob store is fetched only if `read` is given.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any

from ..log.blobs import BlobError
from ..processors.fold.projections.transcript import Line
from ..processors.fold.rows import Rows
from ..schemas.attachments import label
from ..schemas.codec import ChunkSeen, Entry, Unreadable
from ..schemas.events import BY_CLASS
from ..schemas.events.parts import Body, ReadBlob
from ..schemas.value import field_names
from .visible import is_hidden

DIGESTS = frozenset({"called", "views_sha", "basis_sha"})
"""Names of fields that contain bytes which are not text."""

ENDS = frozenset({"end_turn", "stop_sequence"})
"""The stop reasons of an answer with which the model ends its turn by itself."""
NO_TEXT = "the model ended its turn without any text"

PLACE = ("partition", "offset", "at", "type", "writer", "session_id")
"""The fields that come first in every event's JSON."""


def whole(body: Body | None, read: ReadBlob | None) -> bytes:
    """The full content, or its inline part if the content is in a blob and `read` is None."""
    if body is None:
        return b""
    if body.ref is not None and read is not None:
        return read(body.ref)
    return body.inline or b""


def encodable(value: Any) -> Any:
    """The JSON value with its lone surrogates replaced, because UTF-8 cannot encode them."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def blocks_of(content: bytes) -> list[dict[str, Any]]:
    """The content blocks of a JSON array; [] for anything else, such as a truncated preview."""
    try:
        found = json.loads(content)
        found = encodable(found) if b"\\u" in content else found
    except (ValueError, RecursionError):
        return []
    return [block for block in found if isinstance(block, dict)] if isinstance(found, list) else []


def text_of(content: bytes) -> str:
    """The text of the text blocks; for an attachment, its name in brackets."""
    texts = (
        block.get("text") if block.get("type") == "text" else f"{label(block)} ".lstrip()
        for block in blocks_of(content)
    )
    return "".join(text for text in texts if isinstance(text, str))


def text_of_body(body: Body | None, read: ReadBlob | None) -> str:
    """The text of a message or an answer."""
    return text_of(whole(body, read))


def no_text(line: Line, read: ReadBlob | None) -> str:
    """NO_TEXT if the line is an answer that ended its turn without a text that can be seen, else
    ''. Also '' if the answer cannot be read.
    """
    if line.kind != "answer" or line.name not in ENDS or (line.body and line.body.ref and not read):
        return ""
    try:
        text = text_of_body(line.body, read)
    except BlobError:
        return ""
    return "" if any(not (char.isspace() or is_hidden(char)) for char in text) else NO_TEXT


def shown(data: bytes) -> Any:
    """Bytes as a JSON value: a string, or {"base64": ...} if the bytes are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def plain(value: Any, read: ReadBlob | None = None) -> Any:
    """Any value of a view or an event as a JSON value.

    A Body becomes {"inline": text or null, "ref": reference or null}; with `read`, `inline` is the
    full content.
    """
    match value:
        case Body():
            inline = None if value.inline is None else shown(value.inline)
            if value.ref is None:
                return {"inline": inline}
            if read is not None:
                inline = shown(read(value.ref))
            return {"inline": inline, "ref": plain(value.ref)}
        case bytes():
            return shown(value)
        case Rows() | list():
            return [plain(item, read) for item in value]
        case dict():
            return {str(name): plain(item, read) for name, item in value.items()}
        case tuple() if not hasattr(value, "_fields"):
            return [plain(item, read) for item in value]
    names = field_names(value)
    return dict(_members(value, names, read)) if names else value


def _members(value: Any, names: Iterable[str], read: ReadBlob | None) -> Iterator[tuple[str, Any]]:
    for name in names:
        field = getattr(value, name)
        if name in DIGESTS and isinstance(field, bytes):
            yield name, field.hex()
        else:
            yield name, plain(field, read)


def type_of(entry: Entry) -> str:
    """The type of an event, as in the log; for an unreadable event, the type in the record's
    header.
    """
    match entry.event:
        case ChunkSeen():
            return "GEN_CHUNK"
        case Unreadable():
            return entry.event.type or "unreadable"
    return BY_CLASS[type(entry.event)].name


def event_json(entry: Entry, read: ReadBlob | None = None) -> dict[str, Any]:
    """An event for `--json`: the fields of PLACE, then those of the event.

    A field whose name is in PLACE gets the event's type as a prefix, such as `refused_offset`.
    """
    kind = type_of(entry)
    place = (entry.partition, entry.offset, entry.at, kind, entry.writer, entry.session_id)
    out: dict[str, Any] = dict(zip(PLACE, place, strict=True))
    for name, value in _members(entry.event, field_names(entry.event), read):
        out[f"{kind.lower()}_{name}" if name in out else name] = value
    return out
