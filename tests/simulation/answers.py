"""The answers of the simulated model: random, with blocks of every kind, always well formed."""

import json
from random import Random
from typing import Any, NamedTuple

from foldlog.processors.fold.field_writers import CONFIRMS, PROJECT_TOOL
from foldlog.schemas import events as ev
from foldlog.schemas.canonical import compact
from foldlog.tests.kit import answers
from foldlog.tests.kit.answers import Use

USAGE = answers.usage(40, 9, cached=(10, 0, 0), raw=b"{}")


def usage_of(request: bytes, answer: "Answer") -> ev.Usage:
    """The approximate tokens of a request and its answer."""
    read, written = len(request) // 3, len(answer.content()) // 3
    return answers.usage(read, written, cached=(0, 0, 0), raw=b"{}")


class Answer(NamedTuple):
    """A whole answer. `texts`: the deltas that are streamed."""

    stop_reason: str
    blocks: tuple[dict[str, Any], ...]
    uses: tuple[Use, ...]
    texts: tuple[str, ...]

    def content(self) -> bytes:
        """The blocks of the answer as a JSON array."""
        return f"[{','.join(compact(block) for block in self.blocks)}]".encode()


class Tastes(NamedTuple):
    """The probabilities of what the model does."""

    calls: float = 0.55
    odd: float = 0.15  # wrong arguments, unknown names, repeated ids
    ends: float = 0.15  # refusal, max_tokens, pause_turn instead of end_turn
    fails: float = 0.1
    hangs: float = 0.05
    long: float = 0.0  # many deltas and no call
    slow: float = 0.1  # the next delta comes shortly before the stall timeout
    pings: bool = False  # a slow delta takes twice as long, with a sign of life in between
    tools: tuple[str, ...] = ()


END_TURN = Answer("end_turn", ({"type": "text", "text": "Done."},), (), ("Done.",))


def an_answer(rng: Random, tastes: Tastes, number: int) -> Answer:
    """A random answer. Every text contains the answer's `number` in this world, so each text is
    unique."""
    if tastes.long and rng.random() < tastes.long:
        return _a_long_one(rng, number)
    blocks: list[dict[str, Any]] = []
    if rng.random() < 0.3:
        signature = "" if rng.random() < 0.2 else f"sig{number}"
        blocks.append({"type": "thinking", "thinking": "hm", "signature": signature})
    text = f"answer {number}"
    if rng.random() < 0.8:
        blocks.append({"type": "text", "text": text})
    if rng.random() < tastes.calls:
        uses = [_a_use(rng, tastes) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        for index, use in enumerate(uses):
            odd = rng.random() < tastes.odd
            call_id = "same" if odd else f"toolu_{number}_{index}"
            args = {} if use.error else json.loads(use.args)
            blocks.append({"type": "tool_use", "id": call_id, "name": use.name, "input": args})
            uses[index] = use._replace(id=call_id)
        cut = rng.random() < 0.05
        return Answer("max_tokens" if cut else "tool_use", tuple(blocks), tuple(uses), (text,))
    reason = "end_turn"
    if rng.random() < tastes.ends:
        reason = rng.choice(("max_tokens", "refusal", "pause_turn", "stop_sequence"))
    if rng.random() < 0.05:
        blocks = []
    return Answer(reason, tuple(blocks), (), (text[:4], text[4:]))


def _a_long_one(rng: Random, number: int) -> Answer:
    deltas = tuple(f"{rng.choice((' ', '', chr(10)))}a{number}.{n} " for n in range(8))
    return Answer("end_turn", ({"type": "text", "text": "".join(deltas)},), (), deltas)


def _a_use(rng: Random, tastes: Tastes) -> Use:
    name = rng.choice(tastes.tools)
    if rng.random() >= tastes.odd:
        number = rng.randrange(3)
        confirms = f',"{CONFIRMS}":true' if name == PROJECT_TOOL and number else ""
        return Use(name, f'{{"n":{number}{confirms}}}')
    match rng.randrange(3):
        case 0:
            return Use("no_such_tool")
        case 1:
            return Use(name, '{"n":"no number"}')
        case _:
            return Use(name, '{"n":', error="the arguments are no JSON")
