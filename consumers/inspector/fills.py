"""What fills a request: the bytes of its system prompt, its tools, and what people, the model and
tools said. Tokens of parts are not in the log; shares of bytes are exact, and shown as shares."""

import json
from typing import Any

PARTS = ("system", "tools", "results", "model", "people")
"""In the order in which they are drawn."""


def fill_of(body: bytes) -> dict[str, int]:
    """Bytes of each of PARTS in a request."""
    found = dict.fromkeys(PARTS, 0)
    try:
        request = json.loads(body)
    except ValueError:
        return found
    if not isinstance(request, dict):
        return found
    found["system"] = _bytes(request.get("system") or "")
    found["tools"] = _bytes(request.get("tools") or "")
    for message in request.get("messages") or []:
        content = message.get("content")
        blocks = content if isinstance(content, list) else [content]
        is_model = message.get("role") == "assistant"
        for block in blocks:
            is_result = isinstance(block, dict) and block.get("type") == "tool_result"
            found["model" if is_model else "results" if is_result else "people"] += _bytes(block)
    return found


def _bytes(value: Any) -> int:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return len(text.encode("utf-8", "replace")) if value else 0
