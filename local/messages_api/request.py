"""One request as a script sees it: body, identity, and position in the conversation.

The session is identified by a canary `session:<id>` in the system prompt or in a user's text,
otherwise by `metadata.user_id`, otherwise by the header `x-foldlog-attempt`
(`<session> <turn>.<step>.<attempt>`). The canary in the content has precedence over the header,
because a journal that trusted the header could not detect a leak between sessions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

ATTEMPT_HEADER = "x-foldlog-attempt"
# An id ends in a letter or digit, so that a sentence's full stop is not part of the id.
_CANARY = re.compile(r"session:([A-Za-z0-9](?:[A-Za-z0-9._:@-]{0,126}[A-Za-z0-9])?)")
_ATTEMPT = re.compile(r"(?P<session>\S+) (?P<turn>\d+)\.(?P<step>\d+)\.(?P<attempt>\d+)")
NO_SESSION = "-"


def blocks_of(content: Any) -> list[dict[str, Any]]:
    """A message's content as blocks; a string is shorthand for one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content or () if isinstance(block, dict)]


def text_of(content: Any) -> str:
    """All text in a message's content, including that of tool results, joined by newlines."""
    parts = []
    for block in blocks_of(content):
        if block.get("type") == "text":
            parts.append(block.get("text") or "")
        elif block.get("type") == "tool_result":
            parts.append(text_of(block.get("content")))
    return "\n".join(parts)


def canaries_of(body: Mapping[str, Any]) -> list[str]:
    """Every session named in the system prompt and in the users' own texts, in order."""
    found: dict[str, None] = {}
    for text in _own_texts(body):
        found.update(dict.fromkeys(_CANARY.findall(text)))
    return list(found)


def _own_texts(body: Mapping[str, Any]) -> Iterator[str]:
    messages = [message for message in body.get("messages") or () if isinstance(message, dict)]
    users = [m.get("content") for m in messages if m.get("role") != "assistant"]
    # Tool results do not count, because a file that mentions a session is not a leak.
    for source in (body.get("system"), *users):
        for block in blocks_of(source):
            if block.get("type") == "text" and isinstance(block.get("text"), str):
                yield block["text"]


def canary_of(body: Mapping[str, Any], attempt_header: str | None) -> str:
    """The session of a request, `-` if it has none."""
    canaries = canaries_of(body)
    if canaries:
        return canaries[0]
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if isinstance(user, str) and user:
        return user.removeprefix("session:")
    match = _ATTEMPT.fullmatch(attempt_header or "")
    return match["session"] if match else NO_SESSION


@dataclass(frozen=True)
class Request:
    """A valid request.

    n: number of the request on this server, from 1.
    ordinal: number within its session, from 1.
    attempt_header: as sent, or None.
    betas: values of `anthropic-beta`.
    arrived_s: the value of time.perf_counter() when its headers had arrived.
    """

    n: int
    body: Mapping[str, Any]
    canary: str
    ordinal: int
    sha256: str
    attempt_header: str | None = None
    betas: frozenset[str] = frozenset()
    arrived_s: float = 0.0

    @property
    def model(self) -> str:
        return self.body["model"]

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        return self.body["messages"]

    @cached_property
    def generation(self) -> str | None:
        """`turn.step` of the attempt header."""
        match = _ATTEMPT.fullmatch(self.attempt_header or "")
        return f"{match['turn']}.{match['step']}" if match else None

    @cached_property
    def attempt(self) -> int | None:
        """The attempt number of the attempt header."""
        match = _ATTEMPT.fullmatch(self.attempt_header or "")
        return int(match["attempt"]) if match else None

    @cached_property
    def turn_start(self) -> int:
        """The index of the last user message without a tool_result, which started this turn."""
        for index in range(len(self.messages) - 1, -1, -1):
            message = self.messages[index]
            kinds = {block.get("type") for block in blocks_of(message["content"])}
            if message["role"] == "user" and "tool_result" not in kinds:
                return index
        return 0

    @cached_property
    def last_user_text(self) -> str:
        """The newest text of a user.

        A steering text next to tool results counts, but tool results do not.
        """
        for message in reversed(self.messages):
            if message["role"] == "user":
                texts = [b["text"] for b in blocks_of(message["content"]) if b["type"] == "text"]
                if texts:
                    return "\n".join(texts)
        return ""

    def _of_turn(self, kind: str) -> list[dict[str, Any]]:
        return [
            block
            for message in self.messages[self.turn_start :]
            for block in blocks_of(message["content"])
            if block.get("type") == kind
        ]

    @cached_property
    def turn_results(self) -> list[dict[str, Any]]:
        """The tool_result blocks of this turn, oldest first."""
        return self._of_turn("tool_result")

    @cached_property
    def last_results(self) -> list[dict[str, Any]]:
        """The tool_result blocks of the last message."""
        last = blocks_of(self.messages[-1]["content"])
        return [block for block in last if block.get("type") == "tool_result"]

    @cached_property
    def turn_calls(self) -> list[dict[str, Any]]:
        """The tool_use blocks of this turn, oldest first."""
        return self._of_turn("tool_use")

    @cached_property
    def tool_names(self) -> list[str]:
        """The names of the declared tools."""
        return [tool["name"] for tool in self.body.get("tools") or () if "name" in tool]

    def result_of(self, name: str) -> str | None:
        """The text of the newest result of a tool in this turn; None if the tool was not called."""
        ids = {call["id"] for call in self.turn_calls if call["name"] == name}
        for block in reversed(self.turn_results):
            if block["tool_use_id"] in ids:
                return text_of(block.get("content"))
        return None
