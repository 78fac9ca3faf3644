"""The rules of the Messages API for a request, implemented a second time.

This checker is independent: it shares no code with the builder or the scripted server, and reads
only the bytes. The rules come from the API's documentation; each finding is a sentence.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

CACHE_MARKS_MAX = 4
TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,200}")
OPAQUE = {"thinking": "signature", "redacted_thinking": "data"}
USER_BLOCKS = ("text", "tool_result", "image", "document")


def findings(request: bytes, *, may_end_with_answer: bool = False) -> list[str]:
    """The reasons for which the API would reject a request; empty if it would accept the request.

    may_end_with_answer: whether the request may end with an answer that paused or was lost, so that
    the model continues it.
    """
    try:
        body = json.loads(request.decode())
        json.dumps(body, ensure_ascii=False).encode()
    except ValueError as error:
        return [f"not UTF-8 JSON: {error}"]
    messages = body.get("messages")
    if not messages:
        return ["no messages"]
    found = [*_frame(body)]
    for n, message in enumerate(messages):
        continued = may_end_with_answer and n == len(messages) - 1
        found += _message(n, message, continued=continued)
    if messages[-1]["role"] != "user" and not (
        may_end_with_answer or _of(messages[-1], "server_tool_use")
    ):
        found.append("the last message is an assistant's (prefill)")
    return [*found, *_pairs(messages), *_server_pairs(messages)]


def blocks_of(request: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The (role, block) of every content block in order, without cache marks. These are the units
    in which prefixes are compared."""
    return [
        (message["role"], {name: block[name] for name in block if name != "cache_control"})
        for message in json.loads(request)["messages"]
        for block in message["content"]
    ]


def without_thinking(blocks: list[tuple[str, dict]]) -> list[tuple[str, dict]]:
    """The blocks except thinking, whose signature binds it to everything before it."""
    return [(role, block) for role, block in blocks if block["type"] not in OPAQUE]


def static_part(request: bytes) -> dict[str, Any]:
    """The request without its messages."""
    return {name: value for name, value in json.loads(request).items() if name != "messages"}


def _frame(body: dict) -> Iterator[str]:
    messages = body["messages"]
    max_tokens = body.get("max_tokens")
    if not body.get("model") or not isinstance(max_tokens, int) or max_tokens < 1:
        yield "no model or no max_tokens"
    summarized = messages[0]["content"][0]["type"] == "compaction"
    if messages[0]["role"] != "user" and not summarized:
        yield "the first message is not a user's"
    roles = [message["role"] for message in messages]
    if any(one == other for one, other in zip(roles, roles[1:], strict=False)):
        yield f"the roles do not alternate: {roles}"
    names = [tool.get("name") for tool in body.get("tools", ())]
    if len(set(names)) != len(names) or not all(names):
        yield f"tools without a name of their own: {names}"
    if json.dumps(body).count('"cache_control":') > CACHE_MARKS_MAX:
        yield "too many cache marks"
    if body.get("system", True) in ("", []):
        yield "an empty system prompt"
    for block in body.get("system", []):
        if block.get("type") != "text" or not block.get("text", "").strip():
            yield f"a system block that is not a visible text: {block}"


def _of(message: dict, kind: str) -> list[dict]:
    return [block for block in message["content"] if block["type"] == kind]


def _message(n: int, message: dict, *, continued: bool) -> Iterator[str]:
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
        if kind in OPAQUE and last and message["role"] == "assistant" and not continued:
            yield f"{at}: the final block of an assistant's message is {kind}"
        if kind in OPAQUE and (not block.get(OPAQUE[kind]) or "cache_control" in block):
            yield f"{at}: {kind} without its {OPAQUE[kind]}, or marked"
        if kind == "compaction" and (n, place, message["role"]) != (0, 0, "assistant"):
            yield f"{at}: a compaction that is not the first block of the conversation"
        if kind == "tool_use":
            id_is_legal = TOOL_ID.fullmatch(block.get("id", ""))
            name_is_legal = TOOL_NAME.fullmatch(block.get("name", ""))
            if not id_is_legal or not name_is_legal or not isinstance(block["input"], dict):
                yield f"{at}: a tool_use with a wrong id, name or input"
        if kind == "tool_result" and not block.get("content"):
            yield f"{at}: a tool_result without content"


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
            yield f"messages.{n}: the result of a server tool without its call"
        if n < len(messages) - 1 and set(begun) - set(ended):
            yield f"messages.{n}: the call of a server tool without its result"
