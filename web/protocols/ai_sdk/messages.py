"""Converts a session's history to UIMessages, the format in which the Vercel AI SDK 7 stores chats.

A turn's message is assembled from the turn's stream, so a client shows the same message whether it
loads the turn or streams it. A user's message comes before the answer of the turn that it began. A
message that steered a turn is a part of this turn's answer, and a queued message comes last.
"""

from collections.abc import Iterable
from typing import Any

from ....client.history import history
from ....client.transcript_stream import LineAdded, Settled
from ....processors.fold.views import SessionViews
from ....schemas.events.parts import ReadBlob
from .parts import user_parts
from .stream import Chunk, State, begin, encode, steered_in

UIMessage = dict[str, Any]
LATER = 2**63
"""The sort key of a queued message, in place of a turn number."""


def messages(views: SessionViews, read: ReadBlob) -> list[UIMessage]:
    """All messages so far, except the stream of the open attempt."""
    steered = steered_in(views)
    owners = {row.message_id: row.turn for row in views.messages.progress if not row.reason}
    answers: dict[int, tuple[State, list[Chunk]]] = {}
    user_messages: dict[int, list[UIMessage]] = {}
    for _, thing in history(views, read):
        if not isinstance(thing, LineAdded | Settled):
            continue  # the settled answer has all of the content
        turn = thing.line.turn
        state, chunks = answers.get(turn) or begin(views.session_id, turn)
        state, more = encode(state, thing, read, steered)
        answers[turn] = state, [*chunks, *more]
        if isinstance(thing, LineAdded) and thing.line.kind == "message":
            line = thing.line
            if not (line.step and steered(line.name, turn)):
                parts = user_parts(views.session_id, line.body, read)
                message = {"id": line.name, "role": "user", "parts": parts}
                user_messages.setdefault(owners.get(line.name, LATER), []).append(message)
    out: list[UIMessage] = []
    for turn in sorted({*answers, *user_messages}):
        out += user_messages.get(turn, [])
        _, chunks = answers.get(turn, (None, []))
        if turn and len(chunks) > 1:
            out.append(assembled(chunks))
    return out


def assembled(chunks: Iterable[Chunk]) -> UIMessage:
    """The message that the protocol's client assembles from a turn's chunks.

    The chunks must be made from final answers only, because this function does not handle chunks
    that withdraw streamed output.
    """
    message: UIMessage = {"id": "", "role": "assistant", "parts": []}
    parts: list[dict[str, Any]] = message["parts"]
    streaming: dict[str, dict[str, Any]] = {}
    for chunk in chunks:
        if "messageMetadata" in chunk:
            message["metadata"] = message.get("metadata", {}) | chunk["messageMetadata"]
        match chunk["type"]:
            case "start":
                message["id"] = chunk["messageId"]
            case "start-step":
                parts.append({"type": "step-start"})
            case "text-start":
                streaming[chunk["id"]] = {"type": "text"}
                parts.append(streaming[chunk["id"]])
            case "reasoning-start":
                streaming[chunk["id"]] = {"type": "reasoning", "id": chunk["id"]}
                parts.append(streaming[chunk["id"]])
            case "text-delta" | "reasoning-delta":
                part = streaming[chunk["id"]]
                part["text"] = part.get("text", "") + chunk["delta"]
            case "text-end" | "reasoning-end":
                more = {k: v for k, v in chunk.items() if k == "providerMetadata"}
                streaming[chunk["id"]] |= {"state": "done", **more}
            case "tool-input-available":
                fields = {name: chunk[name] for name in ("toolName", "toolCallId", "input")}
                parts.append({"type": "dynamic-tool", **fields, "state": "input-available"})
            case "steering-message":
                parts.append(chunk)
            case kind if kind.startswith("data-"):
                _data(parts, chunk)
            case kind if kind.startswith("tool-"):
                _of_call(parts, chunk)
    return message


def _data(parts: list[dict[str, Any]], chunk: Chunk) -> None:
    if chunk.get("transient"):
        return
    for part in parts:
        if (part["type"], part.get("id")) == (chunk["type"], chunk["id"]):
            part["data"] = chunk["data"]
            return
    parts.append(dict(chunk))


def _of_call(parts: list[dict[str, Any]], chunk: Chunk) -> None:
    def is_its_part(part: dict[str, Any]) -> bool:
        if "toolCallId" in chunk:
            return part.get("toolCallId") == chunk["toolCallId"]
        return part.get("approval", {}).get("id") == chunk["approvalId"]

    part = next(part for part in parts if is_its_part(part))
    match chunk["type"]:
        case "tool-approval-request":
            part |= {"state": "approval-requested", "approval": {"id": chunk["approvalId"]}}
        case "tool-approval-response":
            part["state"] = "approval-responded"
            part["approval"] |= {k: chunk[k] for k in ("approved", "reason") if k in chunk}
        case "tool-output-denied":
            part["state"] = "output-denied"
        case "tool-output-available":
            part.pop("errorText", None)
            part |= {"state": "output-available", "output": chunk["output"]}
        case "tool-output-error":
            part.pop("output", None)
            part |= {"state": "output-error", "errorText": chunk["errorText"]}
