"""What the Messages API demands of a request, written down a second time and independently.

It shares no code with the builder, nor with the scripted server. Rules: reference of the API,
section 5 (pairing, order, alternation, unique ids, nothing empty).
"""

import json
from collections.abc import Iterator
from typing import Any

CACHE_MARKS_MAX = 4


def problems(request: bytes, *, may_end_with_answer: bool = False) -> list[str]:
    """Why the API would refuse this request; empty if it would not.

    may_end_with_answer: the last answer paused, and is sent back as it is.
    """
    body = json.loads(request)
    found = list(_frame(body))
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return [*found, "no messages"]
    for number, message in enumerate(messages):
        want = ("user", "assistant")[number % 2]
        if message.get("role") != want:
            found.append(f"messages.{number} is of {message.get('role')}, not of {want}")
        if not isinstance(message.get("content"), list) or not message["content"]:
            found.append(f"messages.{number} is empty")
            continue
        for place, block in enumerate(message["content"]):
            found += [f"messages.{number}.content.{place}: {why}" for why in _block(want, block)]
    if messages[-1].get("role") != "user" and not may_end_with_answer:
        found.append("the last message is not the user's")
    return [*found, *_pairs(messages)]


def _frame(body: dict) -> Iterator[str]:
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "no model"
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield "no max_tokens"
    if "system" in body:
        if not body["system"]:
            yield "an empty system prompt"
        for block in body["system"]:
            if block.get("type") != "text" or not block.get("text", "").strip():
                yield f"system: {block}"
    names = [tool.get("name") for tool in body.get("tools", ())]
    if len(set(names)) != len(names) or not all(names):
        yield f"tools: {names}"
    marks = json.dumps(body).count('"cache_control"')
    if marks > CACHE_MARKS_MAX:
        yield f"{marks} cache marks"


def _block(role: str, block: dict) -> Iterator[str]:
    match block.get("type"):
        case "text":
            if not block.get("text", "").strip():
                yield "empty text"
        case "thinking":
            if role != "assistant" or not block.get("signature"):
                yield "thinking without a signature, or not of the assistant"
        case "tool_use":
            if role != "assistant" or not block.get("id") or not block.get("name"):
                yield "tool_use without id or name, or not of the assistant"
            if not isinstance(block.get("input"), dict):
                yield "tool_use whose input is no object"
        case "tool_result":
            if role != "user":
                yield "tool_result not of the user"
            if not block.get("content"):
                yield "an empty tool_result"
        case other:
            yield f"unknown block {other}"


def _pairs(messages: list[dict]) -> Iterator[str]:
    taken: set[str] = set()
    for number, message in enumerate(messages):
        blocks = message.get("content") or []
        asked = [b["id"] for b in blocks if b.get("type") == "tool_use"]
        for call_id in asked:
            if call_id in taken:
                yield f"messages.{number}: the id {call_id} comes twice"
            taken.add(call_id)
        follows = messages[number + 1]["content"] if number + 1 < len(messages) else []
        answered = [b["tool_use_id"] for b in follows if b.get("type") == "tool_result"]
        if message.get("role") == "assistant" and sorted(asked) != sorted(answered):
            yield f"messages.{number}: asks {asked}, is answered {answered}"
        kinds = [b.get("type") == "tool_result" for b in blocks]
        if kinds != sorted(kinds, reverse=True):
            yield f"messages.{number}: a tool_result after other blocks"
        if message.get("role") == "user" and number == 0 and any(kinds):
            yield "messages.0 answers nobody"


def flat(request: bytes) -> tuple[Any, list[tuple[str, Any]]]:
    """(system and tools, [(role, block)]) without cache marks: what the prefix law compares."""
    body = json.loads(request)

    def plain(block: dict) -> dict:
        return {key: value for key, value in block.items() if key != "cache_control"}

    blocks = [
        (message["role"], plain(block))
        for message in body["messages"]
        for block in message["content"]
    ]
    return ([plain(block) for block in body.get("system", ())], body.get("tools")), blocks
