"""Makes a server's tool definitions safe: bounded, without control characters, canonical.

Definitions are third-party data. Every request contains their texts, so these are cut and cleaned.
The schemas are data for the model and for the small check in arguments.py; they are never compiled,
and references in them are never fetched. The same list of a server gives the same definitions, and
so the same bytes of a prefix. Pure.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from ...schemas.canonical import compact_strict
from ...schemas.enums import Approval, Effect
from ..mcp_server import McpServer
from .fitting import adapt_schema

TOOLS_MAX = 256  # of one server
DESCRIPTION_CHARS_MAX = 2_000  # about 800 tokens; the limit for own tools is higher
TEXT_CHARS_MAX = 500  # of one text inside a schema
SCHEMA_BYTES_MAX = 16 * 1024  # about 6,500 tokens, which alone exceeds most budgets
SCHEMA_DEPTH_MAX = 24
API_NAME_CHARS_MAX = 64  # the maximum for a tool name in the Messages API
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_SPOKEN = ("description", "title", "examples", "default", "$comment")
_NO_SCHEMA = ("$schema", "$id", "$comment", "title")  # keys that do not restrict the arguments
HINTS = ("read_only", "idempotent", "destructive")


class ListedTool(NamedTuple):
    """A tool in a server's list. hints:
    the hints of HINTS that the tool has, in the order of HINTS."""

    name: str
    description: str
    schema: Mapping[str, Any]
    hints: tuple[tuple[str, bool], ...] = ()


class Definition(NamedTuple):
    """A tool as offered to the model.

    `tool`: its name on the server.
    `sha256`: the hash of the server's definition.
    `names`: (our name, the server's name) of each renamed parameter.
    """

    name: str
    tool: str
    description: str
    schema: Mapping[str, Any]
    effect: Effect
    approval: Approval
    sha256: str
    names: tuple[tuple[str, str], ...] = ()


class Definitions(NamedTuple):
    """The tools of a server by name, and notes on tools that were left out."""

    tools: tuple[Definition, ...]
    notes: tuple[str, ...]


def definitions_of(server: McpServer, listed: Iterable[ListedTool]) -> Definitions:
    """The tools that a server offers and the operator allows, sorted by name."""
    notes: list[str] = []
    tools: dict[str, Definition] = {}
    offered = sorted(listed, key=lambda each: each.name)
    _note_unknown(server, [each.name for each in offered], notes)
    taken = [each for each in offered if server.takes(each.name)]
    if len(taken) > TOOLS_MAX:
        notes.append(f"{len(taken) - TOOLS_MAX} of its {len(taken)} tools are left out: too many")
    for each in taken[:TOOLS_MAX]:
        shown = printable(each.name)[:80]
        fits = adapt_schema(each.schema)
        schema, why = safe_schema(fits.schema)
        if schema is None:
            notes.append(f"its tool {shown} is left out: {why}")
            continue
        name = safe_name(server.name, each.name, tools)
        if name is None:
            notes.append(f"its tool {shown} is left out: another one has its name")
            continue
        effect, approval = _rules(server, each)
        description = _cut(printable(each.description, lines=True), DESCRIPTION_CHARS_MAX)
        description = description.strip() or f"The tool {shown} of the server {server.name}."
        description += _alternatives(fits.left_out)
        sha256 = definition_hash(each)
        tools[name] = Definition(
            name, each.name, description, schema, effect, approval, sha256, fits.names
        )
    return Definitions(tuple(tools[name] for name in sorted(tools)), tuple(notes))


def _alternatives(left_out: Mapping[str, Any]) -> str:
    """The alternatives that were left out of a schema, as a text to append to the tool's
    description. The model needs to know them."""
    try:
        text = compact_strict(_clean(left_out, 0, _SPOKEN)) if left_out else ""
    except (ValueError, RecursionError):
        return ""
    return f"\nIts arguments must also match {_cut(text, TEXT_CHARS_MAX)}" if text else ""


def definition_hash(each: ListedTool) -> str:
    """The sha256 of a tool's definition as received from the server."""
    return sha256(json.dumps(each, sort_keys=True, default=str).encode()).hexdigest()


def safe_name(server: str, tool: str, taken: Mapping[str, Any]) -> str | None:
    """A valid API name for `SERVER__TOOL`.
    If the name had to be changed, it ends in a hash of the original."""
    name = _UNSAFE.sub("_", f"{server}__{tool}")
    if name != f"{server}__{tool}" or len(name) > API_NAME_CHARS_MAX or name in taken:
        mark = sha256(f"{server}\0{tool}".encode("utf-8", "replace")).hexdigest()[:8]
        name = f"{name[: API_NAME_CHARS_MAX - len(mark) - 1]}_{mark}"
    return None if name in taken else name


def printable(text: Any, *, lines: bool = False) -> str:
    """A text without invisible characters: control and format characters, lone surrogates.

    Invisible characters are used to hide instructions from people who read a description.
    """
    kept = "\n\t" if lines else ""
    return "".join(
        c for c in str(text) if c in kept or unicodedata.category(c) not in _INVISIBLE
    )


_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def safe_schema(schema: Any) -> tuple[Mapping[str, Any] | None, str]:
    """A JSON schema that may go into a request, or None and the reason."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        return None, "its schema is not that of an object"
    try:
        cleaned = _clean(schema, 0, ())
        if len(compact_strict(cleaned)) > SCHEMA_BYTES_MAX:
            cleaned = _clean(schema, 0, _SPOKEN)
        size = len(compact_strict(cleaned))
    except (ValueError, RecursionError) as error:
        return None, f"its schema is not usable: {error}"
    if size > SCHEMA_BYTES_MAX:
        return None, f"its schema has {size} bytes, at most {SCHEMA_BYTES_MAX} are taken"
    if not isinstance(cleaned.get("properties", {}), dict):
        return None, "the properties of its schema are no object"
    ordered = {"type": "object", "properties": cleaned.pop("properties", {})}
    return {**ordered, **{k: v for k, v in cleaned.items() if k != "type"}}, ""


def _clean(value: Any, depth: int, without: Sequence[str]) -> Any:
    """A part of a schema with its keys sorted, its texts cut to a maximum length, and invisible
    characters removed. Raises ValueError if the part is nested too deeply or refers to another
    document."""
    if depth > SCHEMA_DEPTH_MAX:
        raise ValueError("it is nested too deeply")
    if isinstance(value, str):
        return _cut(printable(value, lines=True), TEXT_CHARS_MAX)
    if isinstance(value, list | tuple):
        return [_clean(item, depth + 1, without) for item in value]
    if not isinstance(value, Mapping):
        return value
    cleaned = {}
    for key in sorted(value, key=str):
        inner = value[key]
        # `properties` maps names to schemas, and a parameter may be called `title`.
        is_word = not isinstance(inner, Mapping)
        if key == "$ref" and is_word and not str(inner).startswith("#"):
            raise ValueError("it refers to another document")
        if is_word and (key in _NO_SCHEMA or key in without):
            continue
        cleaned[printable(key)] = _clean(inner, depth + 1, without)
    return cleaned


def _rules(server: McpServer, each: ListedTool) -> tuple[Effect, Approval]:
    """Effect and approval of a tool: by the operator's rule, else by trusted hints of the server,
    else by the safe default."""
    hints = dict(each.hints) if server.trust_hints else {}
    effect, approval = Effect.ONCE, Approval.ASK
    if hints.get("read_only"):
        effect, approval = Effect.PURE, Approval.NONE
    elif hints.get("idempotent"):
        effect = Effect.IDEMPOTENT
        approval = Approval.ASK if hints.get("destructive", True) else Approval.NONE
    effect = Effect(server.effect(each.name) or effect)
    return effect, Approval(server.approval(each.name) or approval)


def _note_unknown(server: McpServer, names: Sequence[str], notes: list[str]) -> None:
    """Add a note for each name in the operator's rules that is not the name of a tool. Without the
    note, a misspelt name in `approvals` would silently leave its tool at the default approval, and
    a misspelt name in `allow` would silently remove its tool.
    """
    for what in ("allow", "rare", "effects", "approvals"):
        for glob in getattr(server, what):
            if not any(c in glob for c in "*?[") and glob not in names:
                notes.append(f"it has no tool {glob!r}, which {what} names")


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars - 6]} [cut]"
