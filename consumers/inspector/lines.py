"""What a person had seen at a moment, as JSON for the page: lines, and what was being said.

Lines are those of the gateway's own stream, so that the page draws live and past ones alike.
This file must not know HTTP, nor how a line is drawn.
"""

from typing import Any

from ...log.blobs import BlobError
from ...processors.fold.projections.transcript import Line
from ...schemas.events.parts import ReadBlob
from ...schemas.value import replace
from ..protocols import plain
from ..transcript_stream import Viewer


def line_json(line: Line, read: ReadBlob) -> dict[str, Any]:
    """A line; one whose blob is gone says so in place of its content."""
    try:
        return plain.line_json(line, read)
    except BlobError as error:
        told = plain.line_json(replace(line, body=None), read)
        return {**told, "content": f"[{error}]"}


def open_json(viewer: Viewer) -> dict[str, Any] | None:
    """What the open attempt had said: its tokens, joined by block."""
    if viewer.open is None:
        return None
    parts: dict[tuple[int, str], list[str]] = {}
    for token in viewer.tokens:
        parts.setdefault((token.block, str(token.kind)), []).append(token.text)
    return {
        **viewer.open._asdict(),
        "parts": [
            {"block": block, "kind": kind, "text": "".join(texts)}
            for (block, kind), texts in parts.items()
        ],
    }
