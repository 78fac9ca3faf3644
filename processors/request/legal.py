"""What the API accepts of an answer that is sent again. Pure.

A provider's answer may have blocks, ids and names that the same API, or another one, refuses in a
later request. The log keeps them as received. A request leaves out a block that it cannot send, and
contains each call with an id and a name that are legal.
"""

import re
from collections.abc import Mapping
from typing import Any

SIGNED = {"thinking": "signature", "redacted_thinking": "data"}
SERVERS_CALLS = ("server_tool_use", "mcp_tool_use")
SERVERS_RESULT = "_tool_result"
USERS = ("tool_result", "image", "document", "search_result")  # illegal in an answer
# type of a block -> the fields that it must have, with their types
REQUIRED: dict[str, tuple[tuple[str, type], ...]] = {
    "text": (("text", str),),
    "thinking": (("thinking", str), ("signature", str)),
    "redacted_thinking": (("data", str),),
    "server_tool_use": (("id", str), ("name", str), ("input", dict)),
    "mcp_tool_use": (("id", str), ("name", str), ("input", dict)),
}
ID_CHARS_MAX = 128
NAME_CHARS_MAX = 200
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]")
NO_NAME = "unnamed"
WAITS = "?"  # precedes the id of a provider's call without a result; no id has this character


def visible(block: Mapping[str, Any]) -> bool:
    """Whether the block is a text with a visible character."""
    text = block.get("text")
    return block.get("type") == "text" and isinstance(text, str) and bool(text.strip())


def fits(block: Mapping[str, Any], taken: set[str]) -> bool:
    """Whether an answer with this block may be sent again. `taken`: the ids of the calls so far;
    the id of a call of the provider's own tools is added. Such a call must precede its only
    result."""
    kind = block.get("type")
    if not isinstance(kind, str) or kind in USERS:
        return False
    if not all(isinstance(block.get(name), type_) for name, type_ in REQUIRED.get(kind, ())):
        return False
    if kind in SIGNED:
        return bool(block[SIGNED[kind]])
    if kind in SERVERS_CALLS:
        name, call_id = block["name"], block["id"]
        is_legal = legal_name(name) == name and _is_legal(call_id) and call_id not in taken
        taken.update([call_id, WAITS + call_id] if is_legal else [])
        return is_legal
    if kind.endswith(SERVERS_RESULT):
        waits = f"{WAITS}{block.get('tool_use_id')}"
        has_call = waits in taken
        taken.discard(waits)
        return has_call
    return kind != "text" or visible(block)


def plain_text(block: Mapping[str, Any]) -> dict[str, Any]:
    """The text of a block, without its citations and other fields."""
    return {"type": "text", "text": block["text"]}


def cites_legally(block: Mapping[str, Any]) -> bool:
    """Whether the API accepts the form of the citations of a text, if it has any."""
    cited = block.get("citations")
    return cited is None or (isinstance(cited, list) and all(isinstance(c, dict) for c in cited))


def legal_call(
    block: Mapping[str, Any], place: tuple[int, int, int], taken: set[str]
) -> dict[str, Any]:
    """The call with a legal, unique id, a legal name and an object as its input. What is legal
    stays as it is. `place`: turn, step and index of the call; its id is added to `taken`."""
    given = block.get("input")
    return {
        **block,
        "id": _unique(_legal_id(block.get("id"), place), place, taken),
        "name": legal_name(block.get("name")),
        "input": given if isinstance(given, dict) else {},
    }


def legal_name(name: object) -> str:
    """The name of a tool with only the characters that the API accepts."""
    return _ILLEGAL.sub("_", name)[:NAME_CHARS_MAX] if isinstance(name, str) and name else NO_NAME


def _is_legal(call_id: str) -> bool:
    return bool(call_id) and _ILLEGAL.search(call_id) is None


def _legal_id(call_id: object, place: tuple[int, int, int]) -> str:
    if not isinstance(call_id, str) or not call_id:
        return f"call-{_tail(place)}"
    return _ILLEGAL.sub("_", call_id)[:ID_CHARS_MAX]


def _tail(place: tuple[int, int, int]) -> str:
    return "-".join(map(str, place))


def _unique(call_id: str, place: tuple[int, int, int], taken: set[str]) -> str:
    """The id of a call, or an id derived from it if another call has the same id."""
    name, tail = call_id, _tail(place)
    while name in taken:
        name, tail = f"{call_id[:96]}-{tail}", f"{tail}-x"
    taken.add(name)
    return name
