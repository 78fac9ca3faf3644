"""Generates the example in docs/requests.md: a request that the real fold and builder made."""

import json

from foldlog.processors.agent import Agent
from foldlog.processors.request.layers import Layer, Layers
from foldlog.processors.tools.tool import tool
from foldlog.processors.wake.decide import Sources, decide
from foldlog.tests.kit.answers import Use
from foldlog.tests.kit.history import History


@tool(effect="pure")
def look_up(ctx, order: str) -> str:
    """Look up an order by its number."""
    return order


AGENT = Agent(
    name="shop",
    model="claude-sonnet-5-5",
    system="You answer customers of a shop. Look orders up, never guess.",
    directive="Never promise a refund: hand it to a person.",
    tools=(look_up,),
)
LAYERS = Layers(
    (
        Layer("managed", "policy.md", "Never show a card number."),
        Layer("project", "FOLDLOG.md", "Prices are in cents."),
        Layer("core", "memory", "user| Ana wants short answers."),
    )
)


def request() -> str:
    """The second request of a turn: a question, a call, its result and a reminder."""
    history = History("s1", AGENT)
    history.take().open(agent=AGENT.name)
    history.say("Where is order 17?")
    (first,) = [owed for owed in history.owed() if owed.owed == "LLM_CALLED"]
    sources = Sources(history.blobs.body, history.blobs.read, lambda agent, views: LAYERS)
    for event in decide(first, history.views, AGENT, sources):
        history.append(event, "sessions")
    history.answer("I look.", Use("look_up", '{"order":"17"}', "toolu_1"))
    history.result("1.1.0", "sent on Monday", reminders=("Orders take three days.",))
    history.work()
    return f"```json\n{_indented(json.loads(history.request_bytes()))}\n```\n"


def _indented(value, depth: int = 0) -> str:
    """JSON with one block or one field per line."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + depth <= 92 or not isinstance(value, dict | list) or not value:
        return flat
    inner = " " * (depth + 2)
    if isinstance(value, list):
        lines = [inner + _indented(item, depth + 2) for item in value]
    else:
        lines = [
            f"{inner}{json.dumps(name)}: {_indented(item, depth + 2)}"
            for name, item in value.items()
        ]
    opens, closes = ("[", "]") if isinstance(value, list) else ("{", "}")
    return f"{opens}\n" + ",\n".join(lines) + f"\n{' ' * depth}{closes}"
