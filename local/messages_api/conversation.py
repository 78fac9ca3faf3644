"""Checks the rules between messages: roles, pairs of calls and results, ids, the last message.

Errors are worded as the API words them. `shape.py` checks field types, `binding.py` signatures.
Every check raises ApiError (400) or returns None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from .errors import invalid
from .models import facts_of
from .request import blocks_of
from .seal import is_ours

PREFILL_TEXT = (
    "This model does not support assistant message prefill. "
    "The conversation must end with a user message."
)


@dataclass
class Turn:
    """Consecutive messages of one role, which the API treats as one.

    blocks: (message index, block index, block).
    """

    role: str
    blocks: list[tuple[int, int, dict[str, Any]]] = field(default_factory=list)

    def of_type(self, kind: str) -> list[tuple[int, int, dict[str, Any]]]:
        return [place for place in self.blocks if place[2].get("type") == kind]


def turns_of(messages: list[dict[str, Any]]) -> list[Turn]:
    """The messages, with consecutive messages of one role merged."""
    turns: list[Turn] = []
    for i, message in enumerate(messages):
        if not turns or turns[-1].role != message["role"]:
            turns.append(Turn(message["role"]))
        turns[-1].blocks += [(i, j, b) for j, b in enumerate(blocks_of(message["content"]))]
    return turns


def check_conversation(body: Mapping[str, Any]) -> None:
    """Check all rules, in the order in which the API was observed to report them."""
    messages = body["messages"]
    _check_content(messages)
    _check_first(messages)
    turns = turns_of(messages)
    _check_ids(turns)
    if body.get("compaction"):
        _check_compactable(turns)
    _check_pairing(turns)
    _check_server_results(turns)
    _check_tools_declared(body, turns)
    if not body.get("compaction"):
        _check_last(body)
    _check_open_turn(body, turns)


def _check_content(messages: list[dict[str, Any]]) -> None:
    for i, message in enumerate(messages):
        content = message["content"]
        settings_only = message["role"] == "system" and message.get("output_config")
        if not content and not settings_only:
            raise invalid(
                f"messages.{i}: all messages must have non-empty content except for the "
                "optional final assistant message"
            )
        for block in blocks_of(content):
            if block.get("type") != "text":
                continue
            if not block["text"]:
                raise invalid("messages: text content blocks must be non-empty")
            if not block["text"].strip():
                raise invalid("messages: text content blocks must contain non-whitespace text")


def _check_first(messages: list[dict[str, Any]]) -> None:
    first = messages[0]
    if first["role"] == "user":
        return
    blocks = blocks_of(first["content"])
    if first["role"] == "assistant" and blocks and blocks[0].get("type") == "compaction":
        return
    raise invalid('messages: first message must use the "user" role')


def _check_ids(turns: list[Turn]) -> None:
    ids: set[str] = set()
    for turn in turns:
        for i, j, block in turn.of_type("tool_use"):
            if block["id"] in ids:
                raise invalid(f"messages.{i}.content.{j}: `tool_use` ids must be unique")
            ids.add(block["id"])


def _check_compactable(turns: list[Turn]) -> None:
    last = turns[-1]
    if last.role == "assistant" and last.of_type("tool_use"):
        raise invalid(
            "compaction: the conversation ends inside a turn that awaits tool results",
            "compaction_incomplete_turn",
        )
    blocks = [block for turn in turns for _, _, block in turn.blocks]
    if len(blocks) < 2:
        raise invalid(
            "compaction: there is nothing to summarize", "compaction_nothing_to_summarize"
        )


def _check_pairing(turns: list[Turn]) -> None:
    calls: list[tuple[int, int, dict[str, Any]]] = []
    for turn in turns:
        if turn.role == "user":
            _check_results(turn, calls)
            calls = []
        else:
            # A system message between a call and its results is not "immediately after".
            _raise_unanswered(calls)
            calls = turn.of_type("tool_use")
    _raise_unanswered(calls)


def _check_results(turn: Turn, calls: list[tuple[int, int, dict[str, Any]]]) -> None:
    call_ids = {block["id"] for _, _, block in calls}
    result_ids: set[str] = set()
    for i, j, block in turn.of_type("tool_result"):
        id = block["tool_use_id"]
        if id not in call_ids:
            raise invalid(
                f"messages.{i}.content.{j}: unexpected `tool_use_id` found in `tool_result` "
                f"blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` "
                "block in the previous message."
            )
        if id in result_ids:
            raise invalid(
                f"messages.{i}.content.{j}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {id}"
            )
        result_ids.add(id)
    blocks = (block for _, _, block in turn.blocks)
    leading = takewhile(lambda block: block.get("type") == "tool_result", blocks)
    first = {block["tool_use_id"] for block in leading}
    _raise_unanswered([place for place in calls if place[2]["id"] not in first])


def _raise_unanswered(calls: list[tuple[int, int, dict[str, Any]]]) -> None:
    if not calls:
        return
    ids = ", ".join(block["id"] for _, _, block in calls)
    raise invalid(
        f"messages.{calls[-1][0]}: `tool_use` ids were found without `tool_result` blocks "
        f"immediately after: {ids}. Each `tool_use` block must have a corresponding "
        "`tool_result` block in the next message."
    )


def _check_server_results(turns: list[Turn]) -> None:
    for turn in turns:
        call_ids: set[str] = set()
        for i, j, block in turn.blocks:
            kind = block.get("type", "")
            if kind == "server_tool_use":
                call_ids.add(block["id"])
            elif kind.endswith("_tool_result") and block.get("tool_use_id") not in call_ids:
                raise invalid(
                    f"messages.{i}.content.{j}: unexpected `tool_use_id` found in `{kind}` blocks: "
                    f"{block.get('tool_use_id')}. Each `{kind}` block must have a corresponding "
                    "`server_tool_use` block before it."
                )


def _check_tools_declared(body: Mapping[str, Any], turns: list[Turn]) -> None:
    declared = {tool.get("name") for tool in body.get("tools") or ()}
    declared |= {_added_name(block) for turn in turns for _, _, block in turn.blocks}
    for turn in turns:
        for i, j, block in turn.of_type("tool_use"):
            # A call that this server generated stays legal even if its tool is not declared.
            if block["name"] not in declared and not is_ours(block["id"]):
                raise invalid(
                    f"messages.{i}.content.{j}: Tool '{block['name']}' not found in provided tools"
                )


def _added_name(block: Mapping[str, Any]) -> str | None:
    tool = block.get("tool") if block.get("type") == "tool_addition" else None
    if not isinstance(tool, dict):
        return None
    definition = tool.get("definition")
    return (definition if isinstance(definition, dict) else tool).get("name")


def _check_last(body: Mapping[str, Any]) -> None:
    last = body["messages"][-1]
    if last["role"] != "assistant":
        return
    blocks = blocks_of(last["content"])
    # A paused turn is sent back unchanged: it ends inside the server's own tool loop.
    if any(block.get("type") == "server_tool_use" for block in blocks):
        return
    thinks = (body.get("thinking") or {}).get("type") == "enabled"
    if thinks or not facts_of(body["model"]).prefill:
        raise invalid(PREFILL_TEXT)
    text = blocks[-1].get("text", "") if blocks else ""
    if text != text.rstrip():
        raise invalid("messages: final assistant content cannot end with trailing whitespace")


def _check_open_turn(body: Mapping[str, Any], turns: list[Turn]) -> None:
    """Check that the last assistant message starts with a thinking block, if the request has a
    fixed thinking budget and ends with tool results.
    """
    if (body.get("thinking") or {}).get("type") != "enabled" or len(turns) < 2:
        return
    calls, results = turns[-2], turns[-1]
    if results.role != "user" or not results.of_type("tool_result") or calls.role != "assistant":
        return
    i, j, block = calls.blocks[0]
    if block.get("type") not in ("thinking", "redacted_thinking"):
        raise invalid(
            f"messages.{i}.content.{j}.type: Expected `thinking` or `redacted_thinking`, but found "
            f"`{block.get('type')}`. When `thinking` is enabled, a final `assistant` message must "
            "start with a thinking block (preceding the lastmost set of `tool_use` and "
            "`tool_result` blocks). To avoid this requirement, disable `thinking`."
        )
