"""The scripted model of the crash tests: its replies in each scene, and a record of all replies.

A message names its scene (`scene:NAME`); the reply depends on the scene and on the number of
results in the turn. Each word of a reply contains the number of the request, so a word of a dead
attempt is recognizable anywhere. The summaries of the cheap model contain the names of everything
in the model's input, so a test can see whether anything was lost.
"""

import json
import re
from collections.abc import Callable

from foldlog.local.messages_api import Reply, Request, compaction, text, thinking, tool_use
from foldlog.tests.crash.agents import CHEAP

_SCENE = re.compile(r"scene:(\w+)")
# The names of messages, answers and results.
NAMED = re.compile(r"session:\S+ scene:\w+ message:[\w.-]*\w|\b\d+-end|session:\S+ read [\d.]*\d")
WORDS = 18
PACE_S = 0.015  # a chunk is sent every 40 ms: the answer takes about six
LONG_WORDS, LONG_PACE_S = 120, 0.03  # for answers that are stopped in mid-stream
OUTLAST_PACE_S = 0.06  # for answers that stream during an outage of the broker

Step = Callable[[Request], Reply]


class ScriptedModel:
    """Replies to requests. `texts[n]`: the text of the reply to request n."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}

    def __call__(self, request: Request) -> Reply:
        """Reply to a request, as a `Speaker` does."""
        if request.model == CHEAP or request.body.get("compaction"):
            return self._note(request.n, summary(request))
        everything = json.dumps(request.messages)  # if a signed summary replaces the message
        found = _SCENE.findall(request.last_user_text) or _SCENE.findall(everything)
        steps = SCENES[found[-1]] if found else (answer,)
        if found and found[-1] in BY_STEP:
            step = int((request.generation or "").rpartition(".")[2])
            return self._note(request.n, steps[min(step, len(steps)) - 1](request))
        results = len(request.turn_results)
        given = 0
        for step in steps[:-1]:
            reply = step(request)
            if given == results:
                return self._note(request.n, reply)
            given += sum(block["type"] == "tool_use" for block in reply.blocks)
        return self._note(request.n, steps[-1](request))

    def _note(self, n: int, reply: Reply) -> Reply:
        texts = (block["text"] for block in reply.blocks if block["type"] == "text")
        self.texts[n] = "".join(texts)
        return reply


def words(n: int, count: int) -> str:
    """Words that occur in the reply to request n only."""
    return "".join(f"{n}-{i} " for i in range(count)) + f"{n}-end."


def answer(request: Request) -> Reply:
    """An answer that streams for a while."""
    return Reply([text(words(request.n, WORDS))], chunk="word", pace_s=PACE_S)


def long(request: Request) -> Reply:
    """An answer that streams long enough to be stopped."""
    return Reply([text(words(request.n, LONG_WORDS))], chunk="word", pace_s=LONG_PACE_S)


def outlast(request: Request) -> Reply:
    """An answer that still streams after most outages."""
    return Reply([text(words(request.n, LONG_WORDS))], chunk="word", pace_s=OUTLAST_PACE_S)


def gated(after: int) -> Step:
    """An answer that waits after this many events, at a gate named after the session."""

    def step(request: Request) -> Reply:
        blocks = [text(words(request.n, WORDS))]
        return Reply(blocks, chunk="word", pace_s=PACE_S, gate=request.canary, gate_after=after)

    return step


def calls(*wanted: tuple[str, dict]) -> Step:
    """A thought (signed by the server), some words, then these tool calls in parallel."""

    def step(request: Request) -> Reply:
        uses = [tool_use(name, arguments) for name, arguments in wanted]
        blocks = [thinking(f"hm {request.n}"), text(words(request.n, 4)), *uses]
        return Reply(blocks, chunk="word", pace_s=PACE_S)

    return step


def pages(*tokens: int) -> Step:
    """Like `calls`, for calls that read pages; the reply comes at once, because there are many
    steps."""

    def step(request: Request) -> Reply:
        uses = [tool_use("read", {"tokens": each}) for each in tokens]
        return Reply([thinking(f"hm {request.n}"), text(words(request.n, 1)), *uses])

    return step


def summary(request: Request) -> Reply:
    """A summary or a short form: it lists the names in the conversation or the result."""
    signs = bool(request.body.get("compaction"))  # the provider's own summary, of the whole request
    shown = json.dumps(request.messages) if signs else request.last_user_text
    names = dict.fromkeys(NAMED.findall(shown))
    gated = any(f"scene:{scene} " in shown for scene in GATED)
    gate = gate_of(request.canary) if gated else None
    block = (compaction if signs else text)("; ".join(["In short", *names]))
    return Reply([block], chunk="whole", gate=gate, gate_after=1)


def gate_of(session_id: str) -> str:
    """The name of the gate at which the cheap model waits in some scenes."""
    return f"{session_id}-aside"


# Scene -> the replies of the model, step by step; the last one is an answer.
SCENES: dict[str, tuple[Step, ...]] = {
    "talk": (answer,),
    "long": (long,),
    "outlast": (outlast,),
    "tools": (
        calls(("look", {"where": "here"}), ("put", {"text": "a"})),
        calls(("charge", {"cents": 5})),
        answer,
    ),
    "twice": (
        calls(("charge", {"cents": 1}), ("charge", {"cents": 2}), ("put", {"text": "b"})),
        answer,
    ),
    "big": (calls(("big", {})), answer),
    "approve": (calls(("pay", {"cents": 7}), ("pay", {"cents": 8})), answer),
    "wire": (calls(("wire", {"cents": 9})), answer),
    "hold": (calls(("hold", {})), answer),
    "steered": (answer,),
    "slow": (calls(("slow_charge", {"cents": 3})), answer),
    "begun": (gated(1),),
    "middle": (gated(12),),
    # more than one summary while the turn runs
    "haul": (*[pages(600, 600)] * 18, answer),
    # results that are shortened one by one
    "shorts": (*[pages(1_300, 1_300)] * 5, answer),
    # long enough for a summary when the turn is over
    "returns": (pages(*[600] * 6), *[pages(20)] * 6, answer),
}
SCENES |= {
    "patient": SCENES["haul"],
    "signed": SCENES["haul"],
    "stopped": (*SCENES["haul"][:-1], long),
    "brim": SCENES["returns"],
}
# A summary may take the place of a step's results, so these go by the number of the step.
BY_STEP = frozenset({"haul", "shorts", "returns", "patient", "signed", "stopped", "brim"})
GATED = frozenset({"patient", "stopped", "brim"})  # the cheap model waits at a gate
