"""Computes what fills a request: the bytes of the system prompt, of the tools, and of the messages
of people, the model and tools. The log has no token counts for these parts; the shares of bytes are
exact, so the page shows shares.
"""

import json
from typing import Any

PARTS = ("system", "tools", "results", "model", "people")
"""The parts of a request, in the order in which they are drawn."""


def fill_of(body: bytes) -> dict[str, int]:
    """The bytes of each of PARTS in a request."""
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
