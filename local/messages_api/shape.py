"""Checks the fields of a request body and their types.

Errors are worded as the API words them. `conversation.py` checks how blocks relate to each other.
Every function raises ApiError (400) or returns None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .errors import invalid
from .seal import canonical, unseal

MESSAGES_MAX = 100_000
BREAKPOINTS_MAX = 4
THINKING_BUDGET_MIN = 1024
CREATE_FIELDS = frozenset(
    "cache_control container diagnostics inference_geo max_tokens messages metadata model "
    "output_config service_tier speed stop_sequences stream system thinking tool_choice "
    "tools".split()
)
# Fields that exist only under a beta header, with the prefix of the header's value.
BETA_FIELDS: Mapping[str, str | tuple[str, ...]] = {
    "compaction": "compact-2026-09-04",
    "context_management": ("context-management-2025-06-27", "compact-2026-01-12"),
    "mcp_servers": "mcp-client-",
    "fallbacks": "fallback",
    "fallback_credit_token": "fallback",
    "thread": "message-threads-2026-08-12",
    "billing_policy": "billing-policy",
}
BINDING_BETA = "thinking-binding-controls-2026-08-01"
_NOT_COUNTED = frozenset(
    "max_tokens stream metadata service_tier stop_sequences diagnostics".split()
)
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_PROPERTY_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_TOOL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_USER_BLOCKS = frozenset(
    "text image document search_result tool_result container_upload tool_addition "
    "tool_removal".split()
)
_ASSISTANT_BLOCKS = frozenset(
    "text thinking redacted_thinking tool_use server_tool_use compaction fallback mcp_tool_use "
    "mcp_tool_listing container_upload tool_addition tool_removal connector_text".split()
)
_REQUIRED = {
    "text": (("text", str),),
    "thinking": (("thinking", str), ("signature", str)),
    "redacted_thinking": (("data", str),),
    "tool_use": (("id", str), ("name", str), ("input", dict)),
    "server_tool_use": (("id", str), ("name", str), ("input", dict)),
    "tool_result": (("tool_use_id", str),),
    "image": (("source", dict),),
    "document": (("source", dict),),
}
_MESSAGE_FIELDS = {
    "user": {"role", "content"},
    "assistant": {"role", "content"},
    "system": {"role", "content", "clear_at", "output_config"},
}
_WORD_OF_TYPE = {str: "string", dict: "dictionary", list: "list", int: "integer"}


def check_shape(body: Any, betas: frozenset[str], *, counting: bool = False) -> None:
    """Check the whole body. counting: whether it is for count_tokens, which has fewer fields."""
    if not isinstance(body, dict):
        raise invalid("The request body must be a JSON object.")
    _check_fields(body, betas, counting)
    _require(body, "model", str, "model")
    if not body["model"]:
        raise invalid("model: String should have at least 1 character")
    if not counting:
        _require(body, "max_tokens", int, "max_tokens")
        if body["max_tokens"] < 0:
            raise invalid("max_tokens: Input should be greater than or equal to 0")
    _require(body, "messages", list, "messages")
    _check_messages(body["messages"])
    _check_system(body.get("system"))
    _check_tools(body.get("tools"), body.get("tool_choice"))
    _check_thinking_config(body, betas)
    _check_breakpoints(body)
    _check_rest(body)


def _check_fields(body: Mapping[str, Any], betas: frozenset[str], counting: bool) -> None:
    for name in body:
        if counting and name in _NOT_COUNTED:
            raise invalid(f"{name}: Extra inputs are not permitted")
        starts = BETA_FIELDS.get(name)
        if name in CREATE_FIELDS or (starts and any(b.startswith(starts) for b in betas)):
            continue
        raise invalid(f"{name}: Extra inputs are not permitted")


def _require(holder: Mapping[str, Any], name: str, kind: type, path: str) -> None:
    if name not in holder:
        raise invalid(f"{path}: Field required")
    value = holder[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise invalid(f"{path}: Input should be a valid {_WORD_OF_TYPE[kind]}")


def _check_messages(messages: list[Any]) -> None:
    if not messages:
        raise invalid("messages: at least one message is required")
    if len(messages) > MESSAGES_MAX:
        raise invalid(f"messages: List should have at most {MESSAGES_MAX} items")
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            raise invalid(f"messages.{i}: Input should be a valid dictionary")
        role = message.get("role")
        if role not in ("user", "assistant", "system"):
            raise invalid(
                f'messages: Unexpected role "{role}". Allowed roles are "user", '
                '"assistant" or "system".'
            )
        for name in message:
            if name not in _MESSAGE_FIELDS[role]:
                raise invalid(f"messages.{i}.{name}: Extra inputs are not permitted")
        if "content" not in message:
            raise invalid(f"messages.{i}.content: Field required")
        content = message["content"]
        if isinstance(content, str):
            continue
        if not isinstance(content, list):
            raise invalid(f"messages.{i}.content: Input should be a valid list")
        for j, block in enumerate(content):
            _check_block(block, role, f"messages.{i}.content.{j}")


def _check_block(block: Any, role: str, path: str) -> None:
    if not isinstance(block, dict):
        raise invalid(f"{path}: Input should be a valid dictionary")
    kind = block.get("type")
    if not isinstance(kind, str):
        raise invalid(f"{path}.type: Field required")
    _check_place(block, kind, role, path)
    for name, want in _REQUIRED.get(kind, ()):
        _require(block, name, want, f"{path}.{kind}.{name}")
    if kind in ("thinking", "redacted_thinking") and block.get("cache_control") is not None:
        raise invalid(f"{path}.{kind}.cache_control: Extra inputs are not permitted")
    if kind in ("tool_use", "server_tool_use"):
        _check_tool_use(block, f"{path}.{kind}")
    if kind == "tool_result":
        _check_tool_result(block, path)


def _check_place(block: Mapping[str, Any], kind: str, role: str, path: str) -> None:
    if role == "system":
        known = frozenset({"text", "tool_addition", "tool_removal"})
    else:
        known = _USER_BLOCKS if role == "user" else _ASSISTANT_BLOCKS
    if kind in known or (role == "assistant" and _is_server_result(kind)):
        return
    if kind in _USER_BLOCKS or kind in _ASSISTANT_BLOCKS:
        owner = "assistant" if kind in _ASSISTANT_BLOCKS else "user"
        raise invalid(f"{path}: `{kind}` blocks can only be in `{owner}` messages")
    if role == "assistant" and is_issued_unknown(block):
        return
    raise invalid(
        f"{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags: "
        + ", ".join(f"'{name}'" for name in sorted(known))
    )


def _is_server_result(kind: str) -> bool:
    return kind.endswith("_tool_result") or kind == "mcp_tool_result"


def is_issued_unknown(block: Mapping[str, Any]) -> bool:
    """Whether this block came from the fault `unknown_block` and is unchanged."""
    sealed = unseal(block.get("seal"))
    bare = {key: value for key, value in block.items() if key != "seal"}
    return sealed is not None and canonical(sealed) == canonical(bare)


def _check_tool_use(block: Mapping[str, Any], path: str) -> None:
    if not _TOOL_ID.fullmatch(block["id"]):
        raise invalid(f"{path}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not 1 <= len(block["name"]) <= 200:
        raise invalid(f"{path}.name: String should have at least 1 and at most 200 characters")


def _check_tool_result(block: Mapping[str, Any], path: str) -> None:
    content = block.get("content")
    if content is not None and not isinstance(content, str | list):
        raise invalid(f"{path}.tool_result.content: Input should be a valid list")
    if block.get("is_error") and not content:
        raise invalid(f"{path}: content cannot be empty if `is_error` is true")
    for k, part in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(part, dict) or "type" not in part:
            raise invalid(f"{path}.tool_result.content.{k}: Input should be a valid dictionary")
        if part["type"] not in ("text", "image", "document", "search_result", "tool_reference"):
            raise invalid(
                f"{path}.tool_result.content.{k}: Input tag '{part['type']}' found using "
                "'type' does not match any of the expected tags"
            )
        if part["type"] == "text" and not part.get("text"):
            raise invalid("messages: text content blocks must be non-empty")


def _check_system(system: Any) -> None:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        raise invalid("system: Input should be a valid list")
    for i, block in enumerate(system):
        if not isinstance(block, dict) or block.get("type") != "text":
            raise invalid(f"system.{i}.type: Input should be 'text'")
        _require(block, "text", str, f"system.{i}.text")
        if not block["text"]:
            raise invalid("system: text content blocks must be non-empty")


def _check_tools(tools: Any, choice: Any) -> None:
    if tools is not None and not isinstance(tools, list):
        raise invalid("tools: Input should be a valid list")
    names: set[str | None] = set()
    for i, tool in enumerate(tools or ()):
        if not isinstance(tool, dict):
            raise invalid(f"tools.{i}: Input should be a valid dictionary")
        custom = tool.get("type") in (None, "custom")
        path = f"tools.{i}.{'custom' if custom else tool['type']}"
        if custom:
            _require(tool, "name", str, f"{path}.name")
            _require(tool, "input_schema", dict, f"{path}.input_schema")
            if tool["input_schema"].get("type") != "object":
                raise invalid(f"{path}.input_schema.type: Input should be 'object'")
            _check_schema(tool["input_schema"], f"{path}.input_schema")
            if not _TOOL_NAME.fullmatch(tool["name"]):
                raise invalid(
                    f"{path}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
                )
        name = tool.get("name")
        if name in names:
            raise invalid("tools: Tool names must be unique.")
        names.add(name)
    _check_choice(choice, names)


def _check_schema(schema: dict[str, Any], path: str) -> None:
    """Refuse the request if the API would refuse this top-level schema."""
    if any(word in schema for word in ("oneOf", "allOf", "anyOf")):
        raise invalid(
            f"{path}: input_schema does not support oneOf, allOf, or anyOf at the top level"
        )
    if not all(_PROPERTY_KEY.fullmatch(key) for key in schema.get("properties") or {}):
        raise invalid(
            f"{path}.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$'"
        )


def _check_choice(choice: Any, names: set[str | None]) -> None:
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in ("auto", "any", "tool", "none"):
        raise invalid(
            "tool_choice: Input tag does not match any of the expected tags: 'auto', "
            "'any', 'tool', 'none'"
        )
    if not names and kind != "none":
        raise invalid("tool_choice: tool_choice may only be specified while providing tools")
    if kind == "tool" and choice.get("name") not in names:
        raise invalid(f"tool_choice: Tool '{choice.get('name')}' not found in provided tools")


def _check_thinking_config(body: Mapping[str, Any], betas: frozenset[str]) -> None:
    config = body.get("thinking")
    if config is None:
        return
    kind = config.get("type") if isinstance(config, dict) else None
    if kind not in ("adaptive", "enabled", "disabled", "between_tools"):
        raise invalid(
            "thinking: Input tag does not match any of the expected tags: 'adaptive', "
            "'between_tools', 'disabled', 'enabled'"
        )
    if kind == "enabled":
        path = "thinking.enabled.budget_tokens"
        _require(config, "budget_tokens", int, path)
        if config["budget_tokens"] < THINKING_BUDGET_MIN:
            raise invalid(f"{path}: Input should be greater than or equal to 1024")
        if body.get("max_tokens", config["budget_tokens"] + 1) <= config["budget_tokens"]:
            raise invalid("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if "block_binding" in config and BINDING_BETA not in betas:
        raise invalid(f"thinking.{kind}.block_binding: Extra inputs are not permitted")


def _check_breakpoints(body: Mapping[str, Any]) -> None:
    marks = list(cache_marks(body))
    if len(marks) > BREAKPOINTS_MAX:
        raise invalid(
            f"A maximum of {BREAKPOINTS_MAX} blocks with cache_control may be provided. "
            f"Found {len(marks)}."
        )
    short = False
    for path, mark in marks:
        if not isinstance(mark, dict) or mark.get("type") != "ephemeral":
            raise invalid(f"{path}.cache_control.type: Input should be 'ephemeral'")
        ttl = mark.get("ttl", "5m")
        if ttl not in ("5m", "1h"):
            raise invalid(f"{path}.cache_control.ephemeral.ttl: Input should be '5m' or '1h'")
        if ttl == "1h" and short:
            raise invalid(
                f"{path}.cache_control.ttl: a ttl='1h' cache_control block must not come "
                "after a ttl='5m' cache_control block."
            )
        short = short or ttl == "5m"


def cache_marks(body: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Every cache mark with its path, in prompt order; the automatic mark comes last."""
    places: list[tuple[str, Any]] = [
        (f"tools.{i}", tool) for i, tool in enumerate(body.get("tools") or ())
    ]
    system = body.get("system")
    places += [(f"system.{i}", b) for i, b in enumerate(system if isinstance(system, list) else ())]
    for i, message in enumerate(body["messages"]):
        if isinstance(message["content"], list):
            places += [(f"messages.{i}.content.{j}", b) for j, b in enumerate(message["content"])]
    marks = [(path, place["cache_control"]) for path, place in places if place.get("cache_control")]
    if body.get("cache_control"):
        marks.append(("cache_control", body["cache_control"]))
    return marks


def _check_rest(body: Mapping[str, Any]) -> None:
    metadata = body.get("metadata")
    if metadata is not None:
        if not isinstance(metadata, dict):
            raise invalid("metadata: Input should be a valid dictionary")
        for name in metadata:
            if name != "user_id":
                raise invalid(f"metadata.{name}: Extra inputs are not permitted")
    if not isinstance(body.get("stream", False), bool):
        raise invalid("stream: Input should be a valid boolean")
