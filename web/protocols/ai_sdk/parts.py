"""Converts content of the log for the Vercel AI SDK 7: parts of messages, inputs, outputs,
approvals.

The resulting values are ones that the SDK's client accepts.
"""

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import quote

from ....client.printable import whole
from ....processors.fold.projections.transcript import Line
from ....schemas import events as ev
from ....schemas.attachments import label, reference_of
from ....schemas.enums import ChunkKind
from ....schemas.events.parts import ReadBlob
from .. import exact
from ..exact import blocks_of

FORBIDDEN = ("__proto__", "constructor")
"""Keys that make the client refuse a whole stream, so JSON with such a key is sent as text."""

CALLS_ARE_MADE = "tool_use"
"""The stop_reason of an answer whose calls are complete; with any other reason they were cut off.
"""

FILES = "/api/chat/{session}/files/{sha256}"
"""The gateway's address of an attachment."""


class Part(NamedTuple):
    """A part of a final answer.

    kind: text, thinking or tool.
    more: extra fields of the end chunk.
    """

    number: int
    kind: str
    text: str = ""
    name: str = ""
    input: Any = None
    more: dict[str, Any] = {}


def final_parts(line: Line, read: ReadBlob) -> Iterator[Part]:
    """The parts of a settled answer, in order. Skips blocks without text, such as redacted thinking
    and blocks of the provider's own tools.
    """
    for number, block in enumerate(blocks_of(whole(line.body, read))):
        match block:
            case {"type": "text", "text": str(text)} if text:
                yield Part(number, str(ChunkKind.TEXT), text)
            case {"type": "thinking", "thinking": str(text)} if text:
                signed = {"anthropic": {"signature": block.get("signature", "")}}
                yield Part(
                    number, str(ChunkKind.THINKING), text, more={"providerMetadata": signed}
                )
            case {"type": "tool_use", "name": str(name)} if line.name == CALLS_ARE_MADE:
                yield Part(number, "tool", name=name, input=_safe(block.get("input")))


def approval_id(call: str, args: ev.Body | None) -> str:
    """The id of an approval request: the call, and the SHA-256 of its arguments."""
    if args is not None and args.ref is not None:
        return f"{call}:{args.ref.sha256}"
    return f"{call}:{sha256(whole(args, None)).hexdigest()}"


def value_of(data: bytes) -> Any:
    """An output as JSON, or as text if it is not JSON or the client would refuse it."""
    try:
        return _safe(exact.value_of(data))
    except ValueError:
        return text_of(data)


def text_of(data: bytes) -> str:
    """Bytes as text; invalid UTF-8 is replaced."""
    return data.decode(errors="replace")


def _safe(value: Any) -> Any:
    """The value, or its JSON as a string if the client would refuse it."""
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(value)
    return text if any(f'"{key}"' in text for key in FORBIDDEN) else value


def user_parts(session_id: str, body: ev.Body | None, read: ReadBlob) -> list[dict[str, Any]]:
    """The parts of a user's message: texts, and the addresses of attachments."""
    return [_user_part(session_id, block) for block in blocks_of(whole(body, read))]


def _user_part(session_id: str, block: dict[str, Any]) -> dict[str, Any]:
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    try:
        ref = reference_of(block)
    except ValueError:
        ref = None
    if ref is not None:
        url = FILES.format(session=quote(session_id, safe=""), sha256=ref.sha256)
        title = block.get("title")
        name = {"filename": title} if isinstance(title, str) else {}
        return {"type": "file", "mediaType": ref.media_type, "url": url, **name}
    match block.get("source"):
        case {"type": "base64", "media_type": str(media), "data": str(data)}:
            return {"type": "file", "mediaType": media, "url": f"data:{media};base64,{data}"}
    return {"type": "text", "text": label(block) or f"[{block.get('type')}]"}
