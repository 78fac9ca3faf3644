"""What the Messages API demands of a request, written down a second time.

An independent checker: it knows nothing of our builder and takes the bytes alone. Rules from the
API's documentation, as reference material of the project gives them; each finding is a sentence.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

CACHE_MARKS_MAX = 4
TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")
OPAQUE = {"thinking": "signature", "redacted_thinking": "data"}
USER_BLOCKS = ("text", "tool_result", "image", "document")


def findings(request: bytes) -> list[str]:
    """What is illegal about a request; nothing, if it may be sent."""
    try:
        body = json.loads(request.decode())
        json.dumps(body, ensure_ascii=False).encode()
    except ValueError as error:
        return [f"not UTF-8 JSON: {error}"]
    messages = body.get("messages")
    if not messages:
        return ["no messages"]
    return [
        *_frame(body),
        *(found for n, message in enumerate(messages) for found in _message(n, message)),
        *_pairs(messages),
        *_server_pairs(messages),
    ]


def blocks_of(request: bytes) -> list[tuple[str, str]]:
    """(role, block) of every content block in order, without cache marks: what a prefix is of."""
    body = json.loads(request)
    flat = []
    for message in body["messages"]:
        for block in message["content"]:
            bare = {name: value for name, value in block.items() if name != "cache_control"}
            flat.append((message["role"], json.dumps(bare, sort_keys=True)))
    return flat


def static_part(request: bytes) -> dict[str, Any]:
    """Everything but the messages."""
    return {name: value for name, value in json.loads(request).items() if name != "messages"}


def _frame(body: dict) -> Iterator[str]:
    messages = body["messages"]
    if not body.get("model") or not isinstance(body.get("max_tokens"), int):
        yield "no model or no max_tokens"
    summarized = messages[0]["content"][0]["type"] == "compaction"
    if messages[0]["role"] != "user" and not summarized:
        yield "the first message is not a user's"
    roles = [message["role"] for message in messages]
    if any(one == other for one, other in zip(roles, roles[1:], strict=False)):
        yield f"the roles do not alternate: {roles}"
    if roles[-1] != "user" and not _of(messages[-1], "server_tool_use"):
        yield "the last message is an assistant's (prefill)"
    if json.dumps(body).count('"cache_control":') > CACHE_MARKS_MAX:
        yield "too many cache marks"
    for block in body.get("system", []):
        if block.get("type") != "text" or not block.get("text"):
            yield "a system block that is no text"


def _of(message: dict, kind: str) -> list[dict]:
    return [block for block in message["content"] if block["type"] == kind]


def _message(n: int, message: dict) -> Iterator[str]:
    if set(message) != {"role", "content"} or not message["content"]:
        yield f"messages.{n}: empty or with other fields"
    for place, block in enumerate(message["content"]):
        at = f"messages.{n}.content.{place}"
        kind = block["type"]
        if kind == "text" and not block["text"].strip():
            yield f"{at}: a text without a visible character"
        if message["role"] == "user" and kind not in USER_BLOCKS:
            yield f"{at}: {kind} in a user's message"
        if message["role"] == "assistant" and kind == "tool_result":
            yield f"{at}: a tool_result of the assistant"
        last = place == len(message["content"]) - 1
        if kind in OPAQUE and last and message["role"] == "assistant":
            yield f"{at}: the final block of an assistant's message is {kind}"
        if kind in OPAQUE and (not block.get(OPAQUE[kind]) or "cache_control" in block):
            yield f"{at}: {kind} without its {OPAQUE[kind]}, or marked"
        if kind == "compaction" and (n, place, message["role"]) != (0, 0, "assistant"):
            yield f"{at}: a compaction that is not the first block of the conversation"
        if kind == "tool_use" and not (
            TOOL_ID.fullmatch(block["id"]) and isinstance(block["input"], dict)
        ):
            yield f"{at}: a tool_use with a wrong id or input"
        if kind == "tool_result" and block.get("is_error") and not block.get("content"):
            yield f"{at}: an error without content"


def _pairs(messages: list[dict]) -> Iterator[str]:
    seen: set[str] = set()
    waiting: list[str] = []
    for n, message in enumerate(messages):
        kinds = [block["type"] for block in message["content"]]
        results = [block["tool_use_id"] for block in _of(message, "tool_result")]
        if sorted(results) != sorted(waiting):
            yield f"messages.{n}: results {results} for the calls {waiting}"
        if kinds[: len(results)] != ["tool_result"] * len(results):
            yield f"messages.{n}: text before a tool_result"
        waiting = [block["id"] for block in _of(message, "tool_use")]
        for id in waiting:
            if id in seen:
                yield f"messages.{n}: the tool_use id {id} is used twice"
            seen.add(id)
    if waiting:
        yield f"calls {waiting} at the end have no results"


def _server_pairs(messages: list[dict]) -> Iterator[str]:
    for n, message in enumerate(messages):
        begun = [block["id"] for block in _of(message, "server_tool_use")]
        ended = [
            block["tool_use_id"]
            for block in message["content"]
            if block["type"].endswith("_tool_result")
        ]
        if set(ended) - set(begun):
            yield f"messages.{n}: a result of a server's tool without its call"
        if n < len(messages) - 1 and set(begun) - set(ended):
            yield f"messages.{n}: a server's tool call without its result"
