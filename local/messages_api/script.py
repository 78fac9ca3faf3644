"""The vocabulary of scripts: blocks, Reply, Rule, Script.

Neither a clock nor chance decides which rule answers a request: the same requests get the same
replies.

    Script([
        Rule(Reply([text("hello")], fault="overloaded"), contains="hi", times=2),
        Rule(Reply([thinking("hm"), tool_use("read_file", {"path": "a"})]), tool_results=0),
        Rule(lambda request: Reply([text(request.last_user_text)])),
    ])
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .faults import Fault, as_fault
from .request import Request

Block = dict[str, Any]


def text(value: str) -> Block:
    """A text block."""
    return {"type": "text", "text": value}


def thinking(value: str = "") -> Block:
    """A thinking block; the server signs it. With `display: omitted` its text is empty."""
    return {"type": "thinking", "thinking": value}


def redacted_thinking(data: str = "b3BhcXVl") -> Block:
    """A redacted thinking block: opaque data that the client sends back unchanged."""
    return {"type": "redacted_thinking", "data": data}


def tool_use(name: str, input: Mapping[str, Any] | str | None = None, id: str = "") -> Block:
    """A tool call. An input that is a string is streamed unchanged, even if it is not JSON. An
    empty id is replaced by a generated id.
    """
    raw = input if isinstance(input, str) else json.dumps(input or {}, ensure_ascii=False)
    return {"type": "tool_use", "id": id, "name": name, "raw_input": raw}


def server_tool_use(name: str, input: Mapping[str, Any], id: str = "") -> Block:
    """A call of a server tool, which the server runs itself."""
    return tool_use(name, input, id) | {"type": "server_tool_use"}


def compaction(content: str | None) -> Block:
    """A compaction block; the server signs it. None: the compaction failed."""
    return {"type": "compaction", "content": content}


def block(type: str, **fields: Any) -> Block:
    """A block of any other type, which is sent complete in its content_block_start."""
    return {"type": type, **fields}


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer.

    stop_reason: None means tool_use if there is a tool_use block, otherwise end_turn.
    chunk: length of a delta in characters, "word", "whole", or None for cuts anywhere (seeded by
        the request, so they are repeatable).
    pace_s: pause after each delta, None for the server's default.
    think_s: pause before the first byte.
    gate: the name of a gate at which the answer waits after gate_after events until it is opened
        (0: before the first byte).
    usage: fields that override the simulated ones.
    """

    blocks: Sequence[Block] = ()
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Mapping[str, Any] | None = None
    chunk: int | str | None = None
    pace_s: float | None = None
    think_s: float = 0.0
    gate: str | None = None
    gate_after: int = 0
    fault: Fault | str | Mapping[str, Any] | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def made_fault(self) -> Fault | None:
        """The field `fault`, which `__post_init__` has converted to a Fault."""
        assert self.fault is None or isinstance(self.fault, Fault)
        return self.fault

    def __post_init__(self) -> None:
        blocks = tuple(text(item) if isinstance(item, str) else item for item in self.blocks)
        object.__setattr__(self, "blocks", tuple(map(_as_block, blocks)))
        object.__setattr__(self, "fault", as_fault(self.fault))
        if isinstance(self.chunk, str) and self.chunk not in ("word", "whole"):
            raise ValueError(
                f'chunk must be a length, "word", "whole" or None, not {self.chunk!r}'
            )
        if isinstance(self.chunk, int) and self.chunk < 1:
            raise ValueError("chunk must be at least 1 character")


def _as_block(data: Block) -> Block:
    """Convert a tool_use written as plain data ({"input": ...}) to the form of `tool_use()`."""
    if data["type"] in ("tool_use", "server_tool_use") and "raw_input" not in data:
        block = tool_use(data["name"], data.get("input"), data.get("id", ""))
        return {**data, **block, "type": data["type"]}
    return data


Speaker = Callable[[Request], Reply]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A reply with its conditions. All conditions that are set must hold; a rule without conditions
    always matches.

    contains: a part of the newest user text.
    session: the canary.
    ordinal: number of the request within its session, from 1.
    generation: `turn.step` of the attempt header.
    attempt: attempt number of that header.
    tool_results: the number of results in this turn so far.
    when: any predicate.
    times: the most times that the rule may match.
    """

    reply: Reply | Speaker
    contains: str | None = None
    session: str | None = None
    ordinal: int | None = None
    generation: str | None = None
    attempt: int | None = None
    tool_results: int | None = None
    when: Callable[[Request], bool] | None = None
    times: int | None = None

    def matches(self, request: Request) -> bool:
        conditions = (
            (self.session, lambda: request.canary),
            (self.ordinal, lambda: request.ordinal),
            (self.generation, lambda: request.generation),
            (self.attempt, lambda: request.attempt),
            (self.tool_results, lambda: len(request.turn_results)),
        )
        return (
            all(want is None or want == actual() for want, actual in conditions)
            and (self.contains is None or self.contains in request.last_user_text)
            and (self.when is None or self.when(request))
        )


class Script:
    """Rules in order. The first rule that matches a request answers it.

    A script counts how often each rule has answered (for `times`), so use one Script per server.
    `add` inserts rules before all others, also while the server runs. Thread-safe.
    """

    def __init__(self, rules: Sequence[Rule | Reply | Speaker], name: str = "script") -> None:
        self.name = name
        self._rules = [as_rule(rule) for rule in rules]
        self._uses: Counter[int] = Counter()
        self._lock = threading.Lock()

    def add(self, *rules: Rule | Reply | Speaker) -> None:
        """Insert rules before all others, in the given order."""
        with self._lock:
            self._rules[:0] = [as_rule(rule) for rule in rules]

    def reply(self, request: Request) -> Reply | None:
        """The reply for a request, or None if no rule matches. The answer counts as one use of the
        rule."""
        with self._lock:
            rule = next((r for r in self._rules if self._is_usable(r) and r.matches(request)), None)
            if rule is None:
                return None
            self._uses[id(rule)] += 1
        return rule.reply if isinstance(rule.reply, Reply) else rule.reply(request)

    def _is_usable(self, rule: Rule) -> bool:
        return rule.times is None or self._uses[id(rule)] < rule.times


def as_rule(value: Rule | Reply | Speaker) -> Rule:
    """Convert a reply, or a function that returns one, to a rule without conditions."""
    return value if isinstance(value, Rule) else Rule(reply=value)


def replies(*in_order: Reply, session: str | None = None) -> list[Rule]:
    """Rules that give these replies to a session's first, second, ... request."""
    return [
        Rule(reply=reply, ordinal=number, session=session)
        for number, reply in enumerate(in_order, 1)
    ]


def rule_from_json(data: Mapping[str, Any], speakers: Mapping[str, Speaker]) -> Rule:
    """A rule from JSON. The JSON has the fields of Rule; its `reply` has the fields of Reply, or is
    the name of a speaker.

    speakers: the named speakers that a rule may use. Raises ValueError or TypeError for invalid
    JSON rules. `when` cannot be written as JSON.
    """
    fields = dict(data)
    if fields.get("when") is not None:
        raise ValueError("a rule in JSON cannot have `when`; write the script in Python")
    reply = fields.pop("reply")
    if isinstance(reply, str):
        if reply not in speakers:
            raise ValueError(f"unknown reply {reply!r}; known: {', '.join(speakers)}")
        return Rule(reply=speakers[reply], **fields)
    return Rule(reply=Reply(**reply), **fields)
