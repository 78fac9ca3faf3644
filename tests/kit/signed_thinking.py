"""Thinking with real signatures of the scripted server, and the server's checks of a request.

An answer of a random history binds its thinking to the request that it answers. A request that
repeats this thinking after a change of anything before it is detected. This file shares no code
with the builder.
"""

import json
from typing import Any

from foldlog.local.messages_api.binding import (
    COMPACTION_BETA,
    Prefix,
    check_binding,
    first_prefix,
    places,
    sign_compaction,
    sign_thinking,
)
from foldlog.local.messages_api.conversation import check_conversation
from foldlog.local.messages_api.errors import ApiError
from foldlog.local.messages_api.shape import check_shape
from foldlog.tests.kit.answers import Use, block_text, dumps

BETAS = frozenset({COMPACTION_BETA})
THINKING = ("thinking", "redacted_thinking")
OTHER_MODEL = "model_binding_mismatch"
# Other types of blocks come from a future API: the scripted server knows only these.
KNOWN = (*THINKING, "text", "tool_use", "server_tool_use", "tool_result", "compaction")


class Prefixes:
    """The prefixes to which the answers of one conversation are bound. A request mostly begins with
    the previous request, so the chain of that request's blocks is reused."""

    def __init__(self) -> None:
        self._head: tuple[Any, Prefix] = (None, Prefix("", ""))
        self._links: list[tuple[Prefix, str, Any, Prefix]] = []

    def after(self, body: dict[str, Any]) -> Prefix:
        """The prefix to which an answer to this request is bound."""
        head = {name: value for name, value in body.items() if name != "messages"}
        if head != self._head[0]:
            self._head = head, first_prefix(body)
        prefix, known, links = self._head[1], self._links, []
        for n, (_, role, block) in enumerate(places(body)):
            step = (prefix, role, block)
            link = known[n] if n < len(known) and known[n][:3] == step else None
            links.append(link or (*step, prefix.after(role, block)))
            prefix = links[-1][3]
        self._links = links
        return prefix


def signed(blocks: "list[str | Use]", prefix: Prefix, model: str) -> "list[str | Use]":
    """The blocks of an answer with real signatures. A thinking block without a signature was cut
    off and stays unsigned."""
    made: list[str | Use] = []
    for block in blocks:
        parsed = json.loads(block_text(block))
        if parsed["type"] in THINKING and (parsed.get("signature") or parsed.get("data")):
            parsed = sign_thinking(parsed, prefix, model)
            block = dumps(parsed)
        made.append(block)
        prefix = prefix.after("assistant", parsed)
    return made


def summarized(request: bytes, text: str | None) -> dict[str, Any]:
    """The provider's own summary of a request. text: None if the provider failed."""
    prefix = Prefixes().after(json.loads(request))
    return sign_compaction({"type": "compaction", "content": text}, prefix)


def refusals(request: bytes) -> list[str]:
    """The reasons for which the scripted server would reject a request, and the thinking blocks
    that it would drop. Thinking of another model is not reported, because a model may drop it."""
    body, found = json.loads(request), []
    for check in (
        lambda: check_shape(_as_known(body), BETAS),
        lambda: check_conversation(_as_known(body)),
    ):
        try:
            check()
        except ApiError as refusal:
            found.append(str(refusal))
    try:
        dropped = check_binding(body, BETAS)
        found += [str(each) for each in dropped if each["reason"] != OTHER_MODEL]
    except ApiError as refusal:
        found.append(str(refusal))
    return found


def _as_known(body: dict[str, Any]) -> dict[str, Any]:
    """The body with unknown blocks replaced by texts, and calls of removed tools by calls of a
    declared tool."""
    declared = [tool["name"] for tool in body.get("tools") or ()]
    messages = []
    for message in body["messages"]:
        blocks = []
        for block in message["content"]:
            kind = block["type"]
            if kind not in KNOWN and not kind.endswith("_tool_result"):
                block = {"type": "text", "text": f"a {kind}"}
            elif kind == "tool_use" and block["name"] not in declared:
                block = {**block, "name": declared[0]}
            blocks.append(block)
        messages.append({**message, "content": blocks})
    return {**body, "messages": messages}
