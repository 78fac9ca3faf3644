"""Turns a Reply into a message and its SSE events: ids, signatures, usage, deltas.

`distort.py` changes the result for a fault; `delivery.py` sends it.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...schemas.canonical import compact
from .binding import THINKING, last_prefix, sign_compaction, sign_thinking
from .cache import CacheUse, estimate
from .models import facts_of
from .request import Request
from .script import Block, Reply, compaction
from .seal import make_id

# A delta of the real API is a few tokens long.
DELTA_CHARS_MAX = 24

Event = dict[str, Any]


@dataclass(slots=True)
class Answer:
    """A reply that is ready to send. `events` may be rewritten before delivery."""

    message_id: str
    model: str
    blocks: list[Block]
    stop_reason: str
    stop_sequence: str | None
    stop_details: Mapping[str, Any] | None
    usage: dict[str, Any]
    extra: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def message(self) -> dict[str, Any]:
        """The whole message, as in a response that is not streamed."""
        content = [dict(block) for block in self.blocks]
        for block in content:
            raw = block.pop("raw_input", None)
            if raw is not None:
                block["input"] = _parsed(raw)
        return {
            **self._head(),
            "content": content,
            "stop_reason": self.stop_reason,
            "stop_sequence": self.stop_sequence,
            "stop_details": self.stop_details,
            "usage": self.usage,
            **self.extra,
        }

    def _head(self) -> dict[str, Any]:
        return {"id": self.message_id, "type": "message", "role": "assistant", "model": self.model}

    def opening(self) -> Event:
        """`message_start`, whose usage has the input tokens and one output token."""
        usage = {**self.usage, "output_tokens": 1}
        usage.pop("output_tokens_details", None)
        message = {
            **self._head(),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "stop_details": None,
            "usage": usage,
            **self.extra,
        }
        return {"type": "message_start", "message": message}

    def closing(self) -> list[Event]:
        """`message_delta` with cumulative usage, and `message_stop`."""
        usage = {
            key: self.usage[key]
            for key in (
                "input_tokens",
                "cache_creation_input_tokens",
                "cache_read_input_tokens",
                "output_tokens",
                "output_tokens_details",
            )
            if key in self.usage
        }
        delta: Event = {"stop_reason": self.stop_reason, "stop_sequence": self.stop_sequence}
        if self.stop_details is not None:
            delta["stop_details"] = dict(self.stop_details)
        return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def _parsed(raw: str) -> Any:
    # The API does not document the input of a call whose JSON is invalid; the client package
    # returns {} for such a stream.
    try:
        value = json.loads(raw)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def make_answer(request: Request, reply: Reply, use: CacheUse) -> Answer:
    """The answer to a request: blocks with ids and signatures, usage, events."""
    blocks = _finished_blocks(request, reply)
    answer = Answer(
        message_id=make_id("msg", request.n, request.sha256),
        model=request.model,
        blocks=blocks,
        stop_reason=reply.stop_reason or _stop_reason(blocks),
        stop_sequence=reply.stop_sequence,
        stop_details=reply.stop_details,
        usage=_usage(request, blocks, use, reply),
    )
    cuts = random.Random(request.sha256)
    answer.events = [answer.opening(), {"type": "ping"}]
    for index, block in enumerate(blocks):
        answer.events += block_events(index, block, reply.chunk, cuts)
    answer.events += answer.closing()
    return answer


def _stop_reason(blocks: list[Block]) -> str:
    kinds = [block["type"] for block in blocks]
    if kinds == ["compaction"]:
        return "compaction"
    return "tool_use" if "tool_use" in kinds else "end_turn"


def _finished_blocks(request: Request, reply: Reply) -> list[Block]:
    scripted = list(reply.blocks)
    if request.body.get("compaction"):
        scripted = [b for b in scripted if b["type"] == "compaction"] or [
            compaction(f"Summary of {len(request.messages)} messages.")
        ]
    prefix = last_prefix(request.body)
    blocks: list[Block] = []
    for index, raw_block in enumerate(scripted):
        block = _finished(request, index, raw_block)
        if block is None:
            continue
        if block["type"] in THINKING:
            block = sign_thinking(block, prefix, request.model)
        elif block["type"] == "compaction":
            block = sign_compaction(block, prefix)
        blocks.append(block)
        prefix = prefix.after("assistant", _as_sent_back(block))
    return blocks


def _as_sent_back(block: Block) -> Block:
    sent = {key: value for key, value in block.items() if key != "raw_input"}
    if "raw_input" in block:
        sent["input"] = _parsed(block["raw_input"])
    return sent


def _finished(request: Request, index: int, block: Block) -> Block | None:
    """The block with its id; None for thinking if the request disabled it."""
    kind = block["type"]
    if kind in THINKING:
        config = request.body.get("thinking")
        if config is not None and config["type"] == "disabled":
            return None
        if kind == "thinking" and config is not None and not _shows(config, request.model):
            return {**block, "thinking": ""}
    if kind in ("tool_use", "server_tool_use") and not block.get("id"):
        prefix = "toolu" if kind == "tool_use" else "srvtoolu"
        return {**block, "id": make_id(prefix, request.n, request.sha256, index)}
    return block


def _shows(config: Mapping[str, Any], model: str) -> bool:
    display = config.get("display")
    return display != "omitted" if display else not facts_of(model).omits_thinking


def _usage(request: Request, blocks: list[Block], use: CacheUse, reply: Reply) -> dict[str, Any]:
    chars_per_token = facts_of(request.model).chars_per_token
    # Thinking is billed in full even if it is not shown.
    thinking_tokens = sum(
        estimate(b.get("thinking") or b.get("data", ""), chars_per_token)
        for b in reply.blocks
        if b["type"] in THINKING
    )
    text_tokens = sum(
        estimate(b.get("text") or b.get("raw_input") or b.get("content") or "", chars_per_token)
        for b in blocks
        if b["type"] not in THINKING
    )
    return {
        **use.usage(),
        "output_tokens": thinking_tokens + text_tokens + 1,
        "output_tokens_details": {"thinking_tokens": thinking_tokens},
        "service_tier": "standard",
        **reply.usage,
    }


def block_events(
    index: int, block: Block, chunk: int | str | None, cuts: random.Random
) -> Iterator[Event]:
    """The events of one block. A block of a type without deltas is complete in its start event."""
    kind = block["type"]
    deltas: list[dict[str, Any]] = []
    start = dict(block)
    if kind == "text":
        start["text"] = ""
        deltas = [{"type": "text_delta", "text": p} for p in pieces(block["text"], chunk, cuts)]
    elif kind == "thinking":
        start |= {"thinking": "", "signature": ""}
        shown = pieces(block["thinking"], chunk, cuts)
        deltas = [{"type": "thinking_delta", "thinking": p} for p in shown]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif kind in ("tool_use", "server_tool_use"):
        raw = start.pop("raw_input")
        start["input"] = {}
        # The first delta of the API is empty.
        parts = ["", *pieces(raw, chunk, cuts)]
        deltas = [{"type": "input_json_delta", "partial_json": p} for p in parts]
    elif kind == "compaction":
        start["content"] = None
        deltas = [{"type": "compaction_delta", "content": block["content"]}]
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def pieces(content: str, chunk: int | str | None, cuts: random.Random) -> list[str]:
    """Split a text into the pieces of its deltas."""
    if not content:
        return []
    if chunk == "whole":
        return [content]
    if chunk == "word":
        return re.findall(r"\s*\S+\s*$|\s*\S+|\s+", content)
    parts, at = [], 0
    while at < len(content):
        size = chunk if isinstance(chunk, int) else cuts.randint(1, DELTA_CHARS_MAX)
        parts.append(content[at : at + size])
        at += size
    return parts


def wire(event: Event) -> bytes:
    """One event as SSE bytes, in UTF-8 without escapes, so that a write may end inside a character.
    """
    data = event.get("_raw") or compact(event)
    return f"event: {event['type']}\ndata: {data}\n\n".encode()
