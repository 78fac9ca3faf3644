"""Parses and checks what a Vercel AI SDK 7 client posts, and uses only the new parts.

The log is the source of truth, so of the client's messages only the newest message and the answers
to approval requests are read.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ....producers.checks import Invalid
from ....producers.options import REMEMBER, WHEN_BUSY
from ....schemas.enums import Decision
from ....schemas.ids import parse_call_key

Attach = Callable[[bytes], dict[str, Any]]
"""Stores an attachment and returns its content block. Raises ValueError with the reason."""

FORK = "fork"
"""The value of `on_edit` in the body of a client that follows forks."""

TRIGGERS = ("submit-message", "regenerate-message")


class Answer(NamedTuple):
    """An answer to an approval request, valid only for the arguments that were shown."""

    call: str
    args_sha256: str
    decision: Decision
    options: Mapping[str, Any]


class ChatRequest(NamedTuple):
    """A client's request.

    message: the user's newest message; None if it only answers approvals.
    about: the id of the message to edit, regenerate or continue.
    before: the id of the message before the newest message.
    answer: the id of the newest answer that the client has.
    options: those of the newest message.
    forks: whether the client follows the fork in which an edited message is answered.
    """

    session_id: str
    trigger: str
    message: Mapping[str, Any] | None
    answers: tuple[Answer, ...]
    about: str
    before: str
    answer: str
    options: Mapping[str, Any]
    agent: str | None
    forks: bool


def chat_request(body: Any) -> ChatRequest:
    """Parses a body of POST /api/chat. Raises Invalid."""
    if not isinstance(body, Mapping) or not isinstance(body.get("id"), str):
        raise Invalid("invalid", "the body must be an object with the chat's `id`: nothing was "
                      "done")
    trigger = body.get("trigger", TRIGGERS[0])
    if trigger not in TRIGGERS:
        raise Invalid("invalid", f"`trigger` must be one of {', '.join(TRIGGERS)}: nothing was "
                      "done")
    if body.get("on_edit") not in (None, FORK):
        raise Invalid("invalid_word", f"`on_edit` must be {FORK!r}: nothing was done")
    messages = body.get("messages", [body["message"]] if "message" in body else [])
    if not isinstance(messages, list) or not all(_is_message(message) for message in messages):
        raise Invalid("invalid", "`messages` must be a list of messages, each with its parts: "
                      "nothing was done")
    last = messages[-1] if messages else None
    is_users = last is not None and last["role"] == "user"
    if last is not None and is_users and not isinstance(last.get("id"), str):
        raise Invalid("invalid", "the newest message must have an `id`, by which a repetition is "
                      "recognized: nothing was done")
    last_answer = [message for message in messages if message["role"] == "assistant"][-1:]
    return ChatRequest(
        body["id"],
        trigger,
        last if is_users else None,
        tuple(answer for message in last_answer for answer in _answers(message)),
        str(body.get("messageId") or ""),
        str(messages[-2].get("id")) if len(messages) > 1 else "",
        str(last_answer[0].get("id")) if last_answer else "",
        WHEN_BUSY.of(body),
        body["agent"] if isinstance(body.get("agent"), str) else None,
        body.get("on_edit") == FORK,
    )


def _is_message(message: Any) -> bool:
    return (
        isinstance(message, Mapping)
        and isinstance(message.get("role"), str)
        and isinstance(message.get("parts"), list)
        and all(isinstance(part, Mapping) for part in message["parts"])
    )


def _answers(message: Mapping[str, Any]) -> Iterator[Answer]:
    for part in message["parts"]:
        approval = part.get("approval")
        if part.get("state") == "approval-responded" and isinstance(approval, Mapping):
            yield answer_of(approval)


def answer_of(approval: Mapping[str, Any]) -> Answer:
    """The answer in {id, approved, remember}. Raises Invalid."""
    call, _, sha256 = str(approval.get("id")).rpartition(":")
    approved = approval.get("approved")
    if parse_call_key(call) is None or not sha256 or not isinstance(approved, bool):
        raise Invalid("invalid", "an approval must have the `id` of its request, and `approved`: "
        "true or false. Nothing was done.")
    decision = Decision.ALLOW if approved else Decision.DENY
    return Answer(call, sha256, decision, REMEMBER.of(approval))


def content_of(message: Mapping[str, Any], attach: Attach) -> list[dict[str, Any]]:
    """A user's message as content blocks. Raises Invalid."""
    return [_block(part, attach) for part in message["parts"]]


def _block(part: Mapping[str, Any], attach: Attach) -> dict[str, Any]:
    if part.get("type") == "text":
        return {"type": "text", "text": part.get("text")}
    if part.get("type") != "file":
        kind = str(part.get("type"))[:40]
        raise Invalid("invalid_content", f"a part of type {kind!r} cannot be sent: nothing was "
                      "sent. Use text or file")
    head, _, data = str(part.get("url")).partition(",")
    if not head.startswith("data:") or not head.endswith(";base64"):
        raise Invalid("not_attachable", "a file must be a base64 data URL; other URLs are not "
        "fetched: nothing was sent")
    try:
        return attach(base64.b64decode(data, validate=True))
    except ValueError as error:
        raise Invalid("not_attachable", f"the file cannot be attached, so nothing was sent: "
                                        f"{error}") from None
