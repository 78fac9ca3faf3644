"""Tool tiers: every request has the schemas that most turns need; a search finds other tools.

Tools that are marked rare, or whose schemas exceed the agent's budget, are hidden behind two tools:
`find_tools` returns names, descriptions and schemas of hidden tools as data, and `use_tool` calls a
hidden tool. Such a call is decided, claimed and reported under the hidden tool's name, so
permissions, effects, doubt and grants are independent of tiers. There is one difference: the raw
arguments stay as use_tool received them, in an envelope, and the hidden tool unwraps them when it
checks them. Pure: the same tools and budget give the same arrangement.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple, Protocol

from ...schemas.canonical import compact_strict
from ...schemas.tokens import estimate
from .arguments import ToolArguments, object_of
from .tool import RARE, SEARCH, Tool, ToolFailed, tool

FIND, USE = "find_tools", "use_tool"
SCHEMA_TOKENS = 10_000  # a fifth of a turn's soft budget, sent in every step
FOUND_MAX = 5
FOUND_TOKENS_MAX = 6_000  # of one search: below the limit of a result, so that no schema is cut
NAMES_MAX = 100  # as in other lists: 100 rows and "N more"
NAMES_CHARS_MAX = 2_000  # of the names in the description of find_tools: about 800 tokens
_WORD = re.compile(r"[^\W_]+")
_ENVELOPE = {"name", "arguments"}


class HiddenArguments(NamedTuple):
    """The arguments of a hidden tool, which are inside the envelope of use_tool."""

    tool: str
    inner: ToolArguments

    @property
    def schema(self) -> Mapping[str, Any]:
        """The schema of the tool's own arguments."""
        return self.inner.schema

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Parse the raw envelope into the hidden tool's keyword arguments. Raises ValueError if the
        envelope or the arguments in it are invalid."""
        name, arguments = _opened(raw)
        if name != self.tool:  # the agent's tools changed since this was decided
            raise ValueError(f"they are for {name[:64]!r}")
        return self.inner.parse(compact_strict(arguments).encode())


def is_hidden(each: Tool) -> bool:
    """Whether the model can call a tool only through use_tool."""
    return isinstance(each.arguments, HiddenArguments)


def arranged(tools: Iterable[Tool], budget: int) -> tuple[Tool, ...]:
    """The tools in the order of a request: visible tools, the two search tools, hidden tools. If
    the function is applied to its own result, the result stays the same.

    If the schemas exceed `budget` tokens, each tool that still fits stays visible, in the given
    order. A tool with a huge schema thus hides only itself.
    """
    plain = [_unwrapped(each) for each in tools if each.tier != SEARCH]
    rare = [each for each in plain if each.tier == RARE]
    hidden_names = {each.name for each in rare if may_hide(each.input_schema)}
    if hidden_names or sum(map(schema_tokens, plain)) > budget:
        room = budget - sum(map(schema_tokens, _search(plain)))
        for each in plain:
            if each.name in hidden_names or not may_hide(each.input_schema):
                continue
            if schema_tokens(each) <= room:
                room -= schema_tokens(each)
            else:
                hidden_names.add(each.name)
    if not hidden_names:
        return tuple(plain)
    front = [each for each in plain if each.name not in hidden_names]
    hidden = [each for each in plain if each.name in hidden_names]
    return (*front, *_search(hidden), *map(_wrapped, hidden))


def tools_json(tools: Iterable[Tool]) -> bytes:
    """The schemas of the visible tools as compact JSON: equal bytes for equal tools."""
    return compact_strict([each.entry for each in tools if not is_hidden(each)]).encode()


def schema_tokens(each: Tool) -> int:
    """Estimated tokens of a tool's entry in a request."""
    return estimate(compact_strict(each.entry))


class HasTools(Protocol):
    """The part of an agent that this file uses."""

    @property
    def tools(self) -> tuple[Tool, ...]: ...

    def tool(self, name: str) -> Tool | None: ...


def resolve(agent: HasTools, name: str, raw: bytes) -> tuple[Tool | None, str]:
    """The tool that a proposed call names, or None and the reason as text for the model.

    The raw arguments stay unchanged, including the envelope, because an approval is bound to their
    sha256.
    """
    found = agent.tool(name)
    if found is None:
        known = ", ".join(sorted(t.name for t in agent.tools if not is_hidden(t))) or "none"
        return None, f"There is no tool {name[:64]!r}. The tools are: {known}."
    if is_hidden(found):
        return None, f"{name} was not run: call it through {USE}, with its name and arguments."
    if found.tier != SEARCH or name != USE:
        return found, ""
    try:
        inner, _ = _opened(raw)
    except ValueError as error:
        return None, f"{USE} ran nothing, its arguments are wrong: {error}"
    target = agent.tool(inner)
    if target is None:
        return None, f"{USE} ran nothing: there is no tool {inner[:64]!r}. Look with {FIND}."
    if not is_hidden(target):
        return None, f"{USE} ran nothing: {inner} is called directly."
    return target, ""


def _opened(raw: bytes) -> tuple[str, dict[str, Any]]:
    """The name and the arguments in an envelope. Raises ValueError if the envelope is invalid."""
    envelope = object_of(raw or b"{}")
    name, arguments = envelope.get("name"), envelope.get("arguments", {})
    if not isinstance(name, str) or not name:
        raise ValueError("`name` must be the name of a tool")
    if not isinstance(arguments, dict):
        raise ValueError("`arguments` must be an object")
    if set(envelope) - _ENVELOPE:
        raise ValueError("no other keys than `name` and `arguments` are allowed")
    return name, arguments


def may_hide(input_schema: Mapping[str, Any]) -> bool:
    """Whether a tool may be hidden. It may not if its arguments could be mistaken for the envelope
    of `use_tool`, because a recorded call would change its meaning when the tool becomes
    visible."""
    return not set(input_schema.get("properties", ())) >= _ENVELOPE


def search_tokens() -> int:
    """The tokens that the two search tools add to a request, without the names of hidden tools."""
    return sum(map(schema_tokens, _search(())))


def _unwrapped(each: Tool) -> Tool:
    if isinstance(each.arguments, HiddenArguments):
        return replace(each, arguments=each.arguments.inner)
    return each


def _wrapped(each: Tool) -> Tool:
    return replace(each, arguments=HiddenArguments(each.name, each.arguments))


def _search(hidden: Sequence[Tool]) -> tuple[Tool, Tool]:
    """The two visible tools that search and call hidden tools."""

    def find(
        query: Annotated[str, "words of what it should do, or its name; empty lists the names"],
    ) -> Any:
        """Find tools that are not listed here."""
        return _found(hidden, query)

    def use(name: Annotated[str, "as find_tools gives it"], arguments: dict[str, Any]) -> None:
        """Call a tool that find_tools gave. `arguments` must match its input_schema."""
        raise ToolFailed(f"{USE} stands for the tool it names and runs nothing itself")

    names = ", ".join(sorted(each.name for each in hidden))
    if len(names) > NAMES_CHARS_MAX:
        names = names[:NAMES_CHARS_MAX].rpartition(", ")[0] + " and others"
    description = (
        f"Find tools that are not listed here, by words of what they do. There are {len(hidden)}: "
        f"{names}. Gives names, descriptions and schemas; call one with {USE}."
    )
    finder = replace(tool(effect="pure", name=FIND)(find), description=description, tier=SEARCH)
    return finder, replace(tool(effect="pure", name=USE)(use), tier=SEARCH)


def _found(hidden: Sequence[Tool], query: str) -> dict[str, Any]:
    """The result of find_tools: the best matches with their schemas,
    and the names of other matches."""
    words = [word.lower() for word in _WORD.findall(query)]
    scored = sorted((-_score(each, words), each.name, each) for each in hidden)
    matches = [each for score, _, each in scored if score < 0]
    shown: list[dict[str, Any]] = []
    room = FOUND_TOKENS_MAX
    for each in matches[:FOUND_MAX]:
        room -= schema_tokens(each)
        if shown and room < 0:
            break
        shown.append(each.entry)
    others = [each.name for each in matches[len(shown) :]]
    if not shown:
        others = sorted(each.name for each in hidden)
    found: dict[str, Any] = {"tools": shown, "others": others[:NAMES_MAX]}
    if len(others) > NAMES_MAX:
        found["more"] = f"{len(others) - NAMES_MAX} more"
    return found


def _score(each: Tool, words: Sequence[str]) -> int:
    """How well a tool matches the words. A match of the name counts most; a match of only a part of
    a word counts least.
    """
    name = set(_WORD.findall(each.name.lower()))
    described = set(_WORD.findall(each.description.lower()))
    return sum(
        8 * (word in name)
        + 3 * (word in described)
        + (len(word) > 2 and word in each.name.lower())
        for word in words
    )
