"""Measures how often each tool and prompt block is used, and recommends changes.

A tool that is called in 9 of 10 turns belongs in the fixed prompt. A tool that is called in fewer
than 1 of 20 belongs behind the tool search, where it costs nothing until the model searches for it.
The counts cover finished turns that had an answer; a turn counts for a tool only if the tool was
available in the turn. No log can show whether a model used an instruction that it read, so only the
size of prompt blocks is known. The functions are pure. The findings are advice, and no decision
depends on them.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from ...schemas.tokens import estimate
from ..fold.projections.prefixes import Prefix as PrefixRow
from ..fold.views import SessionViews
from ..tools.tiers import FIND, USE, may_hide, search_tokens

FIXED_SHARE = 0.9  # a tool that 90 % of turns use belongs in the fixed prompt
RARE_SHARE = 0.05  # a tool that under 5 % use belongs behind the search
TURNS_MIN = 60
"""Minimum sample: if 60 turns have no use, the true share is under 5 % with a confidence of 95 %,
because (1 - 0.05) ** 60 = 0.05. With fewer turns nothing is recommended."""
BLOCK_TOKENS_MIN = 200  # a smaller block is not worth the effort

# Tools that are needed however rarely they are called: the tool search itself, the tools that
# notices in results name, and the tool that ends a turn.
NOT_JUDGED = (FIND, USE, "read_result", "complete")
_INDEX, _INDEX_TOOLS = "memory index", ("load_memory", "search_memory")
_CALLS = ("call", "asks")  # kinds of transcript lines; a call that was refused at once has no line
PREFIXES_CACHED = 1_000  # prefixes whose part names are cached

PartsOf = Callable[[PrefixRow], dict[str, str] | None]
"""A function that returns the parts of a prefix by name, or None if the text is unavailable."""


class Place(StrEnum):
    """The place of a block. FRONT: a tool in the fixed prompt. BEHIND: a tool behind the search.
    PROMPT: a part of the system prompt. REMINDER: a text that is sent once, at the end of a
    message."""
    FRONT = "front"
    BEHIND = "behind"
    PROMPT = "prompt"
    REMINDER = "reminder"


class Use(NamedTuple):
    """The use of one block of an agent. turns: the number of turns in which the block was
    available. used: the number of turns that used it; None if the log cannot show this. calls: how
    often a tool was called. tokens: how many tokens the block adds to each request; for a reminder,
    how many it adds to the one request that contains it. hideable: whether a tool may be behind the
    search.
    """

    place: Place
    name: str
    turns: int
    used: int | None
    calls: int = 0
    tokens: int = 0
    hideable: bool = False

    @property
    def share(self) -> float | None:
        """The share of the turns that used the block."""
        return None if self.used is None or not self.turns else self.used / self.turns

    def __str__(self) -> str:
        name = f"tool {self.name}" if self.place in (Place.FRONT, Place.BEHIND) else self.name
        costs = {
            Place.FRONT: f"{self.tokens} tokens in every request",
            Place.PROMPT: f"{self.tokens} tokens in every request",
            Place.BEHIND: "behind the tool search",
            Place.REMINDER: f"about {self.tokens} tokens a turn that has them",
        }[self.place]
        if self.used is None or self.share is None:
            return f"{name}: {costs}, in {self.turns} turns"
        used = f"used in {self.used} of {self.turns} turns ({self.share:.0%})"
        calls = f", {self.calls / self.used:.1f} calls in each" if self.calls and self.used else ""
        return f"{name}: {costs}, {used}{calls}"


class AdviceCode(StrEnum):
    """A proposed change of a block."""

    PUT_BEHIND_SEARCH = "put_behind_search"
    PUT_IN_FIXED_PROMPT = "put_in_fixed_prompt"
    RETIRE_MEMORY = "retire_memory"


WORDS: dict[AdviceCode, str] = {
    AdviceCode.PUT_BEHIND_SEARCH: (
        "put it behind the tool search, where it costs nothing until it is looked for: "
        'tier="rare", of an MCP server rare=("NAME",)'
    ),
    AdviceCode.PUT_IN_FIXED_PROMPT: (
        "put it into the fixed prompt: take away its tier, or raise tool_schema_tokens; each turn "
        "pays for a search now"
    ),
    AdviceCode.RETIRE_MEMORY: (
        "hardly anything it lists is ever loaded: retire what is not needed, or move it to "
        "archive/NAME, which is searched and in no prompt"
    ),
}


class Advice(NamedTuple):
    """A proposed change of a block."""

    use: Use
    code: AdviceCode

    @property
    def do(self) -> str:
        """The change and its reason, for people."""
        return WORDS[self.code]


class AgentUsage(NamedTuple):
    """The blocks of an agent. turns: the number of all its turns; uses: how each block of the
    newest prefix was used, and each further tool that was called; the largest blocks come first."""

    turns: int
    uses: tuple[Use, ...]


def measure_usage(
    newest_first: Iterable[SessionViews], parts_of: PartsOf
) -> dict[str, AgentUsage]:
    """The use of blocks in these sessions, by agent name. The first session of an agent has the
    agent's newest prefix, which determines the blocks that are measured."""
    counts: dict[str, _Counts] = {}
    for views in newest_first:
        if views.turn.known:
            counts.setdefault(views.turn.agent, _Counts()).count(views, parts_of)
    return {agent: each.usage() for agent, each in sorted(counts.items())}


def advice(found: AgentUsage) -> Iterator[Advice]:
    """Recommends which tools to put behind the search or in the fixed prompt,
    and what to shorten."""
    rare = [
        use for use in found.uses
        if use.place is Place.FRONT and use.hideable and _judged(use, below=RARE_SHARE)
    ]
    searched = any(use.place is Place.FRONT and use.name == FIND for use in found.uses)
    if searched or sum(use.tokens for use in rare) > search_tokens():
        for use in rare:
            yield Advice(use, AdviceCode.PUT_BEHIND_SEARCH)
    for use in found.uses:
        if use.place is Place.BEHIND and _judged(use, least=FIXED_SHARE):
            yield Advice(use, AdviceCode.PUT_IN_FIXED_PROMPT)
        heavy = use.name == _INDEX and use.tokens >= BLOCK_TOKENS_MIN
        if heavy and _judged(use, below=RARE_SHARE):
            yield Advice(use, AdviceCode.RETIRE_MEMORY)


def _judged(use: Use, *, least: float = 0.0, below: float = 2.0) -> bool:
    """Whether a block's share is at least `least` and less than `below`, and the sample is large
    enough to judge the share.
    """
    if use.turns < TURNS_MIN or use.share is None or use.name in NOT_JUDGED:
        return False
    return least <= use.share < below


class _Turn(NamedTuple):
    """A finished turn: the offset of the first answer, and the number of calls per tool."""

    offset: int
    calls: Mapping[str, int]


class _Counts:
    """The counts of one agent, collected session by session."""

    def __init__(self) -> None:
        self.turns = 0
        self.reach: Counter[str] = Counter()  # turns by the name of an available tool or part
        self.used: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.behind: Counter[str] = Counter()  # turns that called a tool through the search
        self.behind_calls: Counter[str] = Counter()
        self.reminded: Counter[str] = Counter()  # "turns", "tokens"
        # By name, as in advice/prefix_drift.py: the tools of the newest prefix, and the newest
        # version of every other part.
        self.tools: dict[str, str] | None = None
        self.texts: dict[str, str] = {}
        self._names: dict[str, frozenset[str]] = {}

    def count(self, views: SessionViews, parts_of: PartsOf) -> None:
        prefixes = [*views.context.prefixes]
        for row in prefixes[:-2:-1]:  # the newest prefix, whose blocks are measured
            self._names_in(row, parts_of)
        for turn in _turns(views):
            self.turns += 1
            before = [row for row in prefixes if row.offset <= turn.offset]
            self._turn(turn, self._names_in(before[-1], parts_of) if before else frozenset())
        reminders = [row for row in views.context.fragments if row.kind == "reminder"]
        self.reminded["turns"] += len({row.turn for row in reminders})
        self.reminded["tokens"] += sum(estimate(row.text or "") for row in reminders)

    def _turn(self, turn: _Turn, blocks: frozenset[str]) -> None:
        self.reach.update(blocks)
        for name, calls in turn.calls.items():
            part = f"tool {name}"
            if part in blocks:
                self.used[part] += 1
                self.calls[part] += calls
            elif f"tool {FIND}" in blocks:
                self.behind[name] += 1
                self.behind_calls[name] += calls
        through = [calls for name, calls in turn.calls.items() if f"tool {name}" not in blocks]
        if through and f"tool {USE}" in blocks:
            self.used[f"tool {USE}"] += 1
            self.calls[f"tool {USE}"] += sum(through)
        if _INDEX in blocks and not turn.calls.keys().isdisjoint(_INDEX_TOOLS):
            self.used[_INDEX] += 1

    def _names_in(self, row: PrefixRow, parts_of: PartsOf) -> frozenset[str]:
        """The names of the parts of a prefix, cached because sessions share prefixes."""
        if row.sha256 not in self._names:
            known = parts_of(row)
            found = known or {}
            tools = {name: text for name, text in found.items() if name.startswith("tool ")}
            if self.tools is None and known is not None:
                self.tools = tools
            for name in found.keys() - tools.keys():
                self.texts.setdefault(name, found[name])
            if len(self._names) >= PREFIXES_CACHED:
                self._names.clear()
            self._names[row.sha256] = frozenset(found)
        return self._names[row.sha256]

    def usage(self) -> AgentUsage:
        blocks = {**(self.tools or {}), **self.texts}
        uses = [self._block(name, text) for name, text in blocks.items()]
        searched = self.reach[f"tool {FIND}"]
        uses += [
            Use(Place.BEHIND, name, searched, used, self.behind_calls[name])
            for name, used in self.behind.items()
            if f"tool {name}" not in blocks
        ]
        if turns := self.reminded["turns"]:
            each = self.reminded["tokens"] // turns
            uses.append(Use(Place.REMINDER, "reminders", self.turns, turns, tokens=each))
        uses.sort(key=lambda use: (-use.tokens, use.name))
        return AgentUsage(self.turns, tuple(uses))

    def _block(self, part: str, text: str) -> Use:
        tokens, turns = estimate(text), self.reach[part]
        if not part.startswith("tool "):
            used = self.used[part] if part == _INDEX else None
            return Use(Place.PROMPT, part, turns, used, tokens=tokens)
        name = part.removeprefix("tool ")
        hideable = may_hide(json.loads(text).get("input_schema", {}))
        return Use(
            Place.FRONT, name, turns, self.used[part], self.calls[part], tokens, hideable
        )


def _turns(views: SessionViews) -> Iterator[_Turn]:
    """The finished turns that had an answer."""
    answered: dict[int, int] = {}
    calls: dict[int, dict[str, str]] = {}
    ended: list[int] = []
    for line in views.transcript.lines:
        if line.kind == "answer":
            answered.setdefault(line.turn, line.offset)
        elif line.kind in _CALLS or line.call in calls.get(line.turn, {}):
            # A call proposed as use_tool has the real tool's name in its later lines.
            calls.setdefault(line.turn, {})[line.call] = line.name
        elif line.kind == "ended":
            ended.append(line.turn)
    for turn in dict.fromkeys(ended):
        if turn in answered:
            yield _Turn(answered[turn], Counter(calls.get(turn, {}).values()))


__all__ = ["FIXED_SHARE", "RARE_SHARE", "TURNS_MIN", "WORDS", "Advice", "AdviceCode", "AgentUsage",
           "Place", "Use", "advice", "measure_usage"]
