"""Parses and checks AG-UI's RunAgentInput. Pure.

The log is the source of truth. A client may send all of its messages, but only the user's newest
ones count, and only if the session does not have them yet.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ....producers.checks import Invalid, an_id
from ....producers.options import REMEMBER, WHEN_BUSY
from ....schemas.enums import Decision, Resolution
from .calls import APPROVAL, SCHEMAS
from .events import VERSION
from .messages import Message

SHOWN = ("user", "assistant", "tool", "reasoning")
"""Roles of messages in a session; messages with other roles are the client's own."""

Attach = Callable[[bytes], dict[str, Any]]
"""Stores an attachment and returns a content block with a reference.

Raises ValueError with the reason.
"""


class RunInput(NamedTuple):
    """A client's request.

    messages: all messages that the client has.
    resume: the answers, by the keys of the calls.

    options: those of the newest messages, in forwardedProps, and the agent of a new session.
    """

    thread: str
    messages: list[Message]
    resume: list[tuple[str, dict[str, Any] | None]]
    options: Mapping[str, Any]


class Answer(NamedTuple):
    """An answer to an interrupt, in the terms of the log. `options`: those of the command."""

    call: str
    decision: str | None = None
    outcome: str | None = None
    options: Mapping[str, Any] = {}

    @property
    def word(self) -> str:
        """The decision on an approval, or the outcome of a call in doubt."""
        return self.decision or self.outcome or ""


def run_input(body: Any) -> RunInput:
    """Parses a RunAgentInput. Raises Invalid."""
    if not isinstance(body, Mapping):
        raise Invalid("invalid", "the body must be a RunAgentInput, a JSON object: nothing was "
                      "done")
    version = body.get("protocolVersion", VERSION)
    if version != VERSION:
        raise Invalid(
            "unknown_protocol_version",
            f"protocolVersion {str(version)[:40]!r} is not supported, only {VERSION}: nothing was "
            "done. Send that version, or omit the field.",
        )
    messages = _list(body, "messages")
    for message in messages:
        if not isinstance(message.get("id"), str) or not isinstance(message.get("role"), str):
            raise Invalid("invalid", "each of `messages` must have an id and a role: nothing was "
                          "done")
    more = body.get("forwardedProps")
    more = more if isinstance(more, Mapping) else {}
    agent = more.get("agent")
    return RunInput(
        an_id("threadId", body.get("threadId", "")),
        [{k: v for k, v in m.items() if v is not None} for m in messages],
        [_resume_entry(entry) for entry in _list(body, "resume")],
        {"agent": None if agent is None else an_id("agent", agent), **WHEN_BUSY.of(more)},
    )


def newest(messages: list[Message]) -> list[Message]:
    """The user's messages after the last message of any other role."""
    out: list[Message] = []
    for message in reversed(messages):
        if message["role"] not in SHOWN:
            continue
        if message["role"] != "user":
            break
        out.append(message)
    return out[::-1]


def answer_to(call: str, payload: dict[str, Any] | None, waits_for: str) -> Answer | None:
    """The answer in an interrupt's payload. Without a payload (a cancelled interrupt), an approval
    is denied and a doubt stays open. Raises Invalid.
    """
    properties = SCHEMAS[waits_for]["properties"]
    if payload is None:
        return Answer(call, Decision.DENY) if waits_for == APPROVAL else None
    flags = [name for name in properties if isinstance(payload.get(name), bool)]
    required = next(iter(properties))
    if required not in flags:
        raise Invalid("invalid", f"the payload for {call} must be an object with {required!r}: "
        "true or false. Nothing was done.")
    if waits_for == APPROVAL:
        decision = Decision.ALLOW if payload["approved"] else Decision.DENY
        return Answer(call, decision, options=REMEMBER.of(payload))
    outcome = Resolution.HAPPENED if payload["happened"] else Resolution.DID_NOT_HAPPEN
    return Answer(call, outcome=outcome, options={"report": str(payload.get("report", ""))})


def content_of(message: Message, attach: Attach) -> str | list[dict[str, Any]]:
    """A user's message as blocks. Raises Invalid."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Invalid("invalid_content", "a user's content must be a string or a list of parts: "
        "nothing was sent")
    return [_block(part, attach) for part in content]


def _block(part: Any, attach: Attach) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, Mapping) else None
    source = part.get("source") if isinstance(part, Mapping) else None
    if kind == "text":
        return {"type": "text", "text": part.get("text")}
    if kind not in ("image", "document") or not isinstance(source, Mapping):
        raise Invalid(
            "invalid_content",
            f"a part of type {str(kind)[:40]!r} cannot be sent: nothing was sent. Use text, image "
            "or document",
        )
    if source.get("type") == "url":
        return {"type": kind, "source": {"type": "url", "url": str(source.get("value"))}}
    try:
        data = base64.b64decode(str(source.get("value")), validate=True)
        return attach(data)
    except ValueError as error:
        raise Invalid("not_attachable", f"the {kind} cannot be attached, so nothing was sent: "
                                        f"{error}") from None


def _resume_entry(entry: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
    status, payload = entry.get("status"), entry.get("payload")
    if status not in ("resolved", "cancelled") or not isinstance(entry.get("interruptId"), str):
        raise Invalid("invalid", "each of `resume` must have an interruptId, and a status, "
        "resolved or cancelled: nothing was done")
    if status == "cancelled":
        return entry["interruptId"], None
    return entry["interruptId"], dict(payload) if isinstance(payload, Mapping) else {}


def _list(body: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    found = body.get(field, [])
    if not isinstance(found, list) or not all(isinstance(item, Mapping) for item in found):
        raise Invalid("invalid", f"`{field}` must be a list of objects: nothing was done")
    return found
