"""Tracks the messages of an AG-UI client by the client's own rules, and builds an answer's
messages.

`Messages` applies events as the client's reducer does, so that the encoder always knows what the
client shows. `answer` returns the messages that must exist when an answer is final.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

Event = dict[str, Any]
Message = dict[str, Any]


def event(kind: str, **fields: Any) -> Event:
    """An event of the protocol."""
    return {"type": kind, **fields}


class Messages:
    """The messages of a client that received every event so far, in the client's order."""

    def __init__(self) -> None:
        self.all: list[Message] = []
        self._by_id: dict[str, Message] = {}
        self._owner: dict[str, Message] = {}  # tool call id -> its message

    def get(self, message_id: str) -> Message | None:
        """The message with this id, if there is one."""
        return self._by_id.get(message_id)

    def call(self, call_id: str) -> dict[str, Any] | None:
        """The tool call with this id, if there is one."""
        owner = self._owner.get(call_id)
        return owner and next(call for call in owner["toolCalls"] if call["id"] == call_id)

    def apply(self, event: Event) -> None:
        """Apply an event as the client does; events that concern no message are ignored."""
        match event["type"]:
            case "TEXT_MESSAGE_START":
                self._start(event["messageId"], event["role"], content="")
            case "REASONING_MESSAGE_START":
                self._start(event["messageId"], "reasoning", content="")
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                message = self._by_id[event["messageId"]]
                message["content"] = message.get("content", "") + event["delta"]
            case "REASONING_ENCRYPTED_VALUE":
                self._by_id[event["entityId"]]["encryptedValue"] = event["encryptedValue"]
            case "TOOL_CALL_START":
                owner = self._start(event["parentMessageId"], "assistant")
                call = tool_call(event["toolCallId"], event["toolCallName"], "")
                owner.setdefault("toolCalls", []).append(call)
                self._owner[event["toolCallId"]] = owner
            case "TOOL_CALL_ARGS":
                begun = self.call(event["toolCallId"])
                assert begun is not None, event
                begun["function"]["arguments"] += event["delta"]
            case "TOOL_CALL_RESULT":
                self._result(event)
            case "MESSAGES_SNAPSHOT":
                self._replace(event["messages"])

    def _start(self, message_id: str, role: str, **fields: Any) -> Message:
        message = self._by_id.get(message_id)
        if message is None:
            message = {"id": message_id, "role": role, **fields}
            self._by_id[message_id] = message
            self.all.append(message)
        return message

    def _result(self, event: Event) -> None:
        """Insert a result after the message with its call, and after the other results of this
        message.
        """
        message = {"id": event["messageId"], "role": "tool", "toolCallId": event["toolCallId"]}
        message |= {"content": event["content"], "metadata": event["metadata"]}
        self._by_id[event["messageId"]] = message
        owner = self._owner.get(event["toolCallId"])
        if owner is None:
            self.all.append(message)
            return
        at = next(n for n in range(len(self.all) - 1, -1, -1) if self.all[n] is owner) + 1
        while at < len(self.all) and self.all[at]["role"] == "tool":
            at += 1
        self.all.insert(at, message)

    def _replace(self, messages: Iterable[Message]) -> None:
        """Apply a snapshot: remove messages that it lacks, replace messages in place, append new
        messages.

        Reasoning is removed only if the snapshot contains any reasoning: see `replacing`.
        """
        new = {message["id"]: copied(message) for message in messages}
        has_reasoning = any(message["role"] == "reasoning" for message in new.values())
        remaining = [
            new.get(old["id"], old)
            for old in self.all
            if old["id"] in new or (old["role"] == "reasoning" and not has_reasoning)
        ]
        known = {message["id"] for message in remaining}
        self.all = [*remaining, *(m for m in new.values() if m["id"] not in known)]
        self._by_id = {message["id"]: message for message in self.all}
        self._owner = {c["id"]: m for m in self.all for c in m.get("toolCalls", ())}


def snapshots(have: list[Message], want: list[Message]) -> Iterator[Event]:
    """The MESSAGES_SNAPSHOT events that change a client's messages from `have` to `want`."""
    for messages in replacing(have, want):
        yield event("MESSAGES_SNAPSHOT", messages=[copied(message) for message in messages])


def replacing(have: list[Message], want: list[Message]) -> Iterator[list[Message]]:
    """The snapshots that change a client's messages from `have` to `want`, order included.

    A client keeps the order of the messages that it has, and keeps its reasoning if a snapshot has
    no reasoning. So a message that must move is removed first and then added again. If all
    reasoning must be removed, it is first turned into an ordinary message.
    """
    if have == want:
        return
    wanted = {message["id"] for message in want}
    if not any(m["role"] == "reasoning" for m in want):
        gone = {m["id"] for m in have if m["role"] == "reasoning" and m["id"] not in wanted}
        if gone:
            empty = {"role": "assistant", "content": ""}
            have = [{"id": m["id"], **empty} if m["id"] in gone else m for m in have]
            yield have
    have = [message for message in have if message["id"] in wanted]
    ahead = [message["id"] for message in want[: len(have)]]
    if [message["id"] for message in have] != ahead:
        pairs = zip(have, want, strict=False)
        moved = (n for n, (one, other) in enumerate(pairs) if one["id"] != other["id"])
        yield from replacing(have, want[: next(moved, len(want))])
    yield want


def copied(message: Message) -> Message:
    """An independent copy of a message."""
    calls = message.get("toolCalls")
    if calls is None:
        return dict(message)
    calls = [{**call, "function": dict(call["function"])} for call in calls]
    return {**message, "toolCalls": calls}


def tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """A tool call as part of a message."""
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


# -- a final answer --------------------------------------------------------------------------------


def answer_id(thread: str, turn: int, step: int) -> str:
    """The id of the model's message in a step.

    It contains a slash, and ids that people choose never contain one.
    """
    return f"{thread}/{turn}.{step}"


def thought_id(thread: str, turn: int, step: int, number: int) -> str:
    """The id of a step's n-th thought."""
    return f"{answer_id(thread, turn, step)}/thought{number}"


def answer(thread: str, turn: int, step: int, content: bytes, *, calls: bool) -> list[Message]:
    """The messages of a final answer: first the thoughts, then the text and the calls.

    calls: whether the tool_use blocks are calls. They are calls only if the model stopped in order
    to call these tools.
    """
    thoughts: list[Message] = []
    reply: Message = {"id": answer_id(thread, turn, step), "role": "assistant"}
    tool_calls: list[dict[str, Any]] = []
    for block in _blocks(content):
        match _text(block, "type"):
            case "thinking":
                name = thought_id(thread, turn, step, len(thoughts))
                thought = {"id": name, "role": "reasoning", "content": _text(block, "thinking")}
                if signature := _text(block, "signature"):
                    thought["encryptedValue"] = signature
                thoughts.append(thought)
            case "redacted_thinking":
                name = thought_id(thread, turn, step, len(thoughts))
                hidden = {"content": "", "encryptedValue": _text(block, "data")}
                thoughts.append({"id": name, "role": "reasoning", **hidden})
            case "text":
                reply["content"] = reply.get("content", "") + _text(block, "text")
            case "tool_use" if calls:
                raw = bytes(block.get("input", b"{}")).decode()
                key = f"{turn}.{step}.{len(tool_calls)}"
                tool_calls.append(tool_call(key, _text(block, "name"), raw))
    if tool_calls:
        reply["toolCalls"] = tool_calls
    return [*thoughts, *([reply] if len(reply) > 2 else [])]


def _blocks(content: bytes) -> list[dict[str, msgspec.Raw]]:
    """Content blocks with their fields as the original bytes; [] for other JSON."""
    try:
        return msgspec.json.decode(content, type=list[dict[str, msgspec.Raw]])
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return []


def _text(block: dict[str, msgspec.Raw], field: str) -> str:
    raw = block.get(field)
    value = None if raw is None else msgspec.json.decode(raw)
    return value if isinstance(value, str) else ""
