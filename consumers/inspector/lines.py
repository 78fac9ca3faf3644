"""A line of the transcript as JSON for the page: what was said, as texts and nothing else.

This file must not know HTTP, nor how a line is drawn.
"""

import json
from typing import Any

from ...processors.projections.transcript import Line
from ...producers.blobs import BlobError
from ...schemas.attachments import label
from ...schemas.parts import Body
from ..contents import ReadBlob, blocks_of, whole
from ..transcript_stream import Viewer

TEXT_CHARS = 40_000
"""Of one text: a page of the inspector is for looking; `foldlog show --resolve` has all."""

SAID = ("message", "answer", "partial")


def line_json(line: Line, read: ReadBlob | None) -> dict[str, Any]:
    """The line; `parts`: {type: text, thinking, attachment, json or error, text} each."""
    return {
        "kind": line.kind,
        "turn": line.turn,
        "step": line.step,
        "offset": line.offset,
        "at": line.at,
        "name": line.name,
        "call": line.call,
        "note": line.text[:TEXT_CHARS],
        "parts": _parts(line, read),
    }


def open_json(viewer: Viewer) -> dict[str, Any] | None:
    """What the open attempt had said: its tokens, joined by block."""
    if viewer.open is None:
        return None
    parts: dict[tuple[int, str], list[str]] = {}
    for token in viewer.tokens:
        parts.setdefault((token.block, token.kind), []).append(token.text)
    return {
        **viewer.open._asdict(),
        "parts": [
            {"block": block, "type": kind, "text": "".join(texts)}
            for (block, kind), texts in parts.items()
        ],
    }


def _parts(line: Line, read: ReadBlob | None) -> list[dict[str, Any]]:
    if line.body is None:
        return []
    try:
        data = whole(line.body, read)
    except BlobError as error:
        return [*_of(line.kind, whole(line.body, None)), _part("error", str(error))]
    return _of(line.kind, data)


def _of(kind: str, data: bytes) -> list[dict[str, Any]]:
    blocks = blocks_of(data) if kind in SAID or kind == "result" else []
    if blocks:
        return [part for part in map(_block, blocks) if part["text"]]
    if kind in SAID and data.strip() == b"[]":
        return []
    kind_of = "json" if kind in ("call", "asks") else "text"
    return [_part(kind_of, data.decode("utf-8", "replace"))] if data else []


def _block(block: dict[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    match kind:
        case "text" | "thinking" if isinstance(block.get(kind), str):
            return _part(kind, block[kind])
        case "tool_use":  # its call has a line of its own
            return _part("tool_use", "")
        case "image" | "document":
            return _part("attachment", label(block))
    return _part("json", json.dumps(block, ensure_ascii=False))


def _part(kind: str, text: str) -> dict[str, Any]:
    if len(text) <= TEXT_CHARS:
        return {"type": kind, "text": text}
    return {"type": kind, "text": text[:TEXT_CHARS], "chars": len(text)}


def body_text(body: Body) -> str:
    """The inline text of a body: arguments of a call."""
    return (body.inline or b"").decode("utf-8", "replace")[:TEXT_CHARS]
