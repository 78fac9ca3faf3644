"""The conversation at a moment, as JSON for the page: lines, and the output being streamed.

The lines have the format of the gateway's own stream, so the page draws live and past lines alike.
"""

from typing import Any

from ...client.transcript_stream import Viewer
from ...log.blobs import BlobError
from ...processors.fold.projections.transcript import Line
from ...schemas.events.parts import ReadBlob
from ...schemas.value import replace
from ..protocols import plain


def line_json(line: Line, read: ReadBlob) -> dict[str, Any]:
    """A line as JSON. If its blob is missing, the content says so."""
    try:
        return plain.line_json(line, read)
    except BlobError as error:
        without_body = plain.line_json(replace(line, body=None), read)
        return {**without_body, "content": f"[{error}]"}


def open_json(viewer: Viewer) -> dict[str, Any] | None:
    """The output of the open attempt: its tokens, joined by block."""
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
