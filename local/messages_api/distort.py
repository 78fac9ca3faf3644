"""Applies faults that change the content: the shape of a reply, and noise in its events.

Faults of the connection are in `delivery.py`. The reply of the script is never changed, only
copied.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .answer import Answer, Event
from .faults import Fault, Stage
from .request import Request
from .script import Block, Reply, server_tool_use, text as text_block
from .seal import make_id, seal


def shaped(reply: Reply, request: Request) -> Reply:
    """The reply, changed by its fault if the fault has the stage SHAPE."""
    fault = reply.made_fault
    if fault is None or fault.stage is not Stage.SHAPE:
        return reply
    return _SHAPES[fault.name](reply, fault, request)


def _calls(reply: Reply) -> list[Block]:
    return [block for block in reply.blocks if block["type"] == "tool_use"]


def _swapped(reply: Reply, old: Block, new: Block) -> tuple[Block, ...]:
    return tuple(new if block is old else block for block in reply.blocks)


def _invalid_tool_json(reply: Reply, fault: Fault, request: Request) -> Reply:
    call = _need_call(reply, fault)
    return replace(reply, blocks=_swapped(reply, call, {**call, "raw_input": fault["raw"]}))


def _repeated_tool_ids(reply: Reply, fault: Fault, request: Request) -> Reply:
    first = _need_call(reply, fault)
    # The id depends only on the session: a provider that repeats ids does so across responses.
    id = first["id"] or make_id("toolu", request.canary, "repeated")
    blocks = [{**b, "id": id} if b["type"] == "tool_use" else b for b in reply.blocks]
    return replace(reply, blocks=blocks)


def _max_tokens_in_tool_use(reply: Reply, fault: Fault, request: Request) -> Reply:
    call = _calls(reply)[-1] if _calls(reply) else _need_call(reply, fault)
    raw = call["raw_input"]
    before = reply.blocks[: reply.blocks.index(call)]
    cut = {**call, "raw_input": raw[: max(1, len(raw) // 2)]}
    return replace(reply, blocks=(*before, cut), stop_reason="max_tokens")


def _max_tokens(reply: Reply, fault: Fault, request: Request) -> Reply:
    texts = [block for block in reply.blocks if block["type"] == "text"]
    if not texts:
        raise ValueError("fault 'max_tokens' needs a text block to cut")
    content = texts[-1]["text"]
    cut = text_block(content[: max(1, len(content) // 2)])
    return replace(reply, blocks=_swapped(reply, texts[-1], cut), stop_reason="max_tokens")


def _refusal(reply: Reply, fault: Fault, request: Request) -> Reply:
    details = {
        "type": "refusal",
        "category": fault["category"],
        "explanation": fault["explanation"],
    }
    return replace(reply, stop_reason="refusal", stop_details=details)


def _pause_turn(reply: Reply, fault: Fault, request: Request) -> Reply:
    search = server_tool_use("web_search", {"query": "what the user asked"})
    return replace(reply, blocks=(*reply.blocks, search), stop_reason="pause_turn")


def _context_window_exceeded(reply: Reply, fault: Fault, request: Request) -> Reply:
    return replace(reply, stop_reason="model_context_window_exceeded")


def _empty_content(reply: Reply, fault: Fault, request: Request) -> Reply:
    return replace(reply, blocks=(), stop_reason="end_turn")


def _thinking_only(reply: Reply, fault: Fault, request: Request) -> Reply:
    thoughts = [b for b in reply.blocks if b["type"] in ("thinking", "redacted_thinking")]
    return replace(reply, blocks=thoughts, stop_reason="end_turn")


def _compaction_null(reply: Reply, fault: Fault, request: Request) -> Reply:
    blocks = ({"type": "compaction", "content": None},)
    return replace(reply, blocks=blocks, stop_reason="compaction")


def _parallel_tool_calls(reply: Reply, fault: Fault, request: Request) -> Reply:
    call = _need_call(reply, fault)
    others = [block for block in reply.blocks if block["type"] != "tool_use"]
    copies = [{**call, "id": ""} for _ in range(fault["count"])]
    return replace(reply, blocks=(*others, *copies))


def _need_call(reply: Reply, fault: Fault) -> Block:
    calls = _calls(reply)
    if not calls:
        raise ValueError(f"fault {fault.name!r} needs a tool_use block in the reply")
    return calls[0]


_SHAPES = {
    "invalid_tool_json": _invalid_tool_json,
    "repeated_tool_ids": _repeated_tool_ids,
    "max_tokens_in_tool_use": _max_tokens_in_tool_use,
    "max_tokens": _max_tokens,
    "refusal": _refusal,
    "pause_turn": _pause_turn,
    "context_window_exceeded": _context_window_exceeded,
    "empty_content": _empty_content,
    "thinking_only": _thinking_only,
    "compaction_null": _compaction_null,
    "parallel_tool_calls": _parallel_tool_calls,
}


def noisy(answer: Answer, fault: Fault | None) -> None:
    """Rewrite the answer's events for a fault of stage NOISE."""
    if fault is not None and fault.stage is Stage.NOISE:
        answer.events = _NOISES[fault.name](answer, fault)


def middle(events: list[Event], k: int | None) -> int:
    """The index of the event before which a fault occurs; `faults.py` explains k."""
    end = next(i for i, event in enumerate(events) if event["type"] == "message_delta")
    if k is not None:
        return min(k, end)
    deltas = [i for i, event in enumerate(events) if event["type"] == "content_block_delta"]
    return deltas[len(deltas) // 2] if deltas else end


def _duplicate_message_stop(answer: Answer, fault: Fault) -> list[Event]:
    return [*answer.events, answer.events[-1]]


def _duplicate_message_delta(answer: Answer, fault: Fault) -> list[Event]:
    *before, delta, stop = answer.events
    return [*before, delta, delta, stop]


def _events_after_message_stop(answer: Answer, fault: Fault) -> list[Event]:
    late = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": "said after the end"},
    }
    return [*answer.events, {"type": "ping"}, late]


def _unknown_event(answer: Answer, fault: Fault) -> list[Event]:
    at = middle(answer.events, None)
    event = {"type": "future_event", "note": {"kept": True}}
    return [*answer.events[:at], event, *answer.events[at:]]


def _unknown_delta(answer: Answer, fault: Fault) -> list[Event]:
    for at, event in enumerate(answer.events):
        if event["type"] == "content_block_stop":
            delta = {"type": "future_delta", "future": "x"}
            new = {"type": "content_block_delta", "index": event["index"], "delta": delta}
            return [*answer.events[:at], new, *answer.events[at:]]
    return answer.events


def _unknown_block(answer: Answer, fault: Fault) -> list[Event]:
    block: dict[str, Any] = {"type": "future_block", "payload": {"n": 1, "s": "é"}, "empty": None}
    block["seal"] = seal(block)
    answer.blocks.append(block)
    index = len(answer.blocks) - 1
    new = [
        {"type": "content_block_start", "index": index, "content_block": block},
        {"type": "content_block_stop", "index": index},
    ]
    return [*answer.events[:-2], *new, *answer.events[-2:]]


def _unknown_fields(answer: Answer, fault: Fault) -> list[Event]:
    changed = []
    for event in answer.events:
        event = {**event, "future_field": {"a": [1, None]}}
        if event["type"] == "content_block_start":
            block = {**event["content_block"], "future_field": "kept"}
            event["content_block"] = block
        changed.append(event)
    return changed


def _bad_event_json(answer: Answer, fault: Fault) -> list[Event]:
    at = middle(answer.events, fault["k"])
    bad = {"type": "content_block_delta", "_raw": '{"type":"content_block_delta","index":'}
    return [*answer.events[:at], bad, *answer.events[at:]]


def _many_pings(answer: Answer, fault: Fault) -> list[Event]:
    return [each for event in answer.events for each in (event, {"type": "ping"})]


_NOISES = {
    "duplicate_message_stop": _duplicate_message_stop,
    "duplicate_message_delta": _duplicate_message_delta,
    "events_after_message_stop": _events_after_message_stop,
    "unknown_event": _unknown_event,
    "unknown_delta": _unknown_delta,
    "unknown_block": _unknown_block,
    "unknown_fields": _unknown_fields,
    "bad_event_json": _bad_event_json,
    "many_pings": _many_pings,
}
