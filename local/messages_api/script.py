"""The vocabulary of scripts: blocks, Reply, Rule, Script. A reply is chosen as data.

Owns what a script can say and how the rule for a request is found. It must not know HTTP, and no
choice may depend on a clock or on chance: the same requests get the same replies.

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
    """A thinking block; the server signs it. Empty text is what `display: omitted` gives."""
    return {"type": "thinking", "thinking": value}


def redacted_thinking(data: str = "b3BhcXVl") -> Block:
    """A redacted thinking block: opaque data that goes back unchanged."""
    return {"type": "redacted_thinking", "data": data}


def tool_use(name: str, input: Mapping[str, Any] | str | None = None, id: str = "") -> Block:
    """A tool call. A string as input is streamed as it is, JSON or not; an id is made if empty."""
    raw = input if isinstance(input, str) else json.dumps(input or {}, ensure_ascii=False)
    return {"type": "tool_use", "id": id, "name": name, "raw_input": raw}


def server_tool_use(name: str, input: Mapping[str, Any], id: str = "") -> Block:
    """A call of a tool that the server runs itself."""
    return tool_use(name, input, id) | {"type": "server_tool_use"}


def compaction(content: str | None) -> Block:
    """A compaction block; the server signs it. None: the compaction failed."""
    return {"type": "compaction", "content": content}


def block(type: str, **fields: Any) -> Block:
    """Any other block, sent whole in its content_block_start."""
    return {"type": type, **fields}


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer.

    stop_reason: None means tool_use if a tool_use block is there, else end_turn.
    chunk: length of a delta in characters, "word", "whole", or None for cuts anywhere (seeded by
    the request, so they repeat). pace_s: pause after each delta, None for the server's own.
    think_s: pause before the first byte. gate: a name; the answer waits there after gate_after
    events until the gate is opened (0: before the first byte). usage: fields that override the
    simulated ones.
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

    def __post_init__(self) -> None:
        blocks = tuple(text(item) if isinstance(item, str) else item for item in self.blocks)
        object.__setattr__(self, "blocks", tuple(map(_as_block, blocks)))
        object.__setattr__(self, "fault", as_fault(self.fault))
        if isinstance(self.chunk, str) and self.chunk not in ("word", "whole"):
            raise ValueError(f'chunk is a length, "word", "whole" or None, not {self.chunk!r}')
        if isinstance(self.chunk, int) and self.chunk < 1:
            raise ValueError("chunk is at least 1 character")


def _as_block(given: Block) -> Block:
    """A tool_use written as plain data ({"input": ...}) in the form `tool_use()` gives."""
    if given["type"] in ("tool_use", "server_tool_use") and "raw_input" not in given:
        made = tool_use(given["name"], given.get("input"), given.get("id", ""))
        return {**given, **made, "type": given["type"]}
    return given


Speaker = Callable[[Request], Reply]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A reply and when it is given. Every condition that is set must hold; none: always.

    contains: in the newest user text. session: the canary. ordinal: number of the request within
    its session, from 1. generation: `turn.step`, and attempt: number, of the attempt header.
    tool_results: how many this turn has so far. when: any predicate. times: at most so often.
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
        wanted = (
            (self.session, lambda: request.canary),
            (self.ordinal, lambda: request.ordinal),
            (self.generation, lambda: request.generation),
            (self.attempt, lambda: request.attempt),
            (self.tool_results, lambda: len(request.turn_results)),
        )
        return (
            all(want is None or want == found() for want, found in wanted)
            and (self.contains is None or self.contains in request.last_user_text)
            and (self.when is None or self.when(request))
        )


class Script:
    """Rules in order; the first that matches answers.

    Counts how often each rule spoke (for `times`), so one Script serves one server. Rules may be
    added while it runs: `add` puts them first. Safe to call from several threads.
    """

    def __init__(self, rules: Sequence[Rule | Reply | Speaker], name: str = "script") -> None:
        self.name = name
        self._rules = [as_rule(rule) for rule in rules]
        self._spoken: Counter[int] = Counter()
        self._lock = threading.Lock()

    def add(self, *rules: Rule | Reply | Speaker) -> None:
        """Put rules before all others, in the order given."""
        with self._lock:
            self._rules[:0] = [as_rule(rule) for rule in rules]

    def reply(self, request: Request) -> Reply | None:
        """The reply for a request, None if no rule matches. Counts the rule as spoken."""
        with self._lock:
            rule = next((r for r in self._rules if self._free(r) and r.matches(request)), None)
            if rule is None:
                return None
            self._spoken[id(rule)] += 1
        return rule.reply if isinstance(rule.reply, Reply) else rule.reply(request)

    def _free(self, rule: Rule) -> bool:
        return rule.times is None or self._spoken[id(rule)] < rule.times


def as_rule(value: Rule | Reply | Speaker) -> Rule:
    """A reply or a speaker alone is a rule without conditions."""
    return value if isinstance(value, Rule) else Rule(reply=value)


def replies(*in_order: Reply, session: str | None = None) -> list[Rule]:
    """Rules that give these replies to a session's first, second, ... request."""
    return [
        Rule(reply=reply, ordinal=number, session=session)
        for number, reply in enumerate(in_order, 1)
    ]


def rule_from_json(data: Mapping[str, Any], speakers: Mapping[str, Speaker]) -> Rule:
    """A rule written as JSON: the fields of Rule, `reply` as the fields of Reply or a name.

    speakers: the named speakers a rule may refer to. Raises ValueError or TypeError for anything
    else; `when` can't be written as JSON.
    """
    fields = dict(data)
    if fields.get("when") is not None:
        raise ValueError("a rule written as JSON can't have `when`; write the script in Python")
    reply = fields.pop("reply")
    if isinstance(reply, str):
        if reply not in speakers:
            raise ValueError(f"unknown reply {reply!r}; known: {', '.join(speakers)}")
        return Rule(reply=speakers[reply], **fields)
    return Rule(reply=Reply(**reply), **fields)
