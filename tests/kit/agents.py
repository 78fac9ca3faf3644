"""The agents of the law tests: one tool of each kind, and limits so low that sessions reach
them."""

from dataclasses import replace
from functools import cache
from typing import Any

from foldlog.processors.agent import Agent, Compaction
from foldlog.processors.limits import Limits
from foldlog.processors.tools.project import build_and_deploy
from foldlog.processors.tools.tool import tool

MINUTE = 60_000


@tool(effect="pure")
def read(ctx, page: int = 1) -> str:
    """Reads a lot; may be repeated."""
    return ""


@tool(effect="pure", compactor=lambda whole: whole[:40])
def leaf(ctx, page: int = 1) -> str:
    """Reads a lot, and can say it in short."""
    return ""


@tool(effect="pure")
def look(ctx, where: str = "here") -> str:
    """Looks; may be repeated."""
    return where


@tool(effect="idempotent")
def put(ctx, text: str = "") -> str:
    """Puts a text in its place; may be repeated."""
    return text


@tool(effect="once", approval="ask")
def charge(ctx, cents: int) -> dict:
    """Takes money, after a person allowed it."""
    return {"cents": cents}


@tool(effect="once")
def post(ctx, text: str = "") -> str:
    """Sends a letter that can not be called back."""
    return text


@tool(effect="once", reconciler=lambda ctx, **args: None)
def wire(ctx, cents: int = 1) -> str:
    """As charge, with a bank that can be asked what happened."""
    return "sent"


@tool(effect="pure", phases=("building", "done"))
def paint(ctx, colour: str = "red") -> str:
    """Paints what is being built."""
    return colour


@tool(effect="pure", stops=True)
def complete(ctx, answer: str = "") -> str:
    """Ends the turn."""
    return answer


@tool(approval="deny")
def forbidden(ctx) -> str:
    """No rule allows it."""
    return ""


LIMITS = Limits(
    model_attempts=3,
    tool_attempts=2,
    delivery_attempts=3,
    steps=4,
    stall_timeout_ms=MINUTE,
    tool_timeout_ms=2 * MINUTE,
    approval_expiry_ms=60 * MINUTE,
    grace_ms=5_000,
    margin_ms=10_000,
    soft_tokens=1_000,
    hard_tokens=4_000,
)
TOOLS = (look, put, charge, post, wire, complete, forbidden)
AGENT = Agent(
    name="helper", model="claude-test", system="Be brief.", tools=TOOLS, limits=LIMITS
)
# The same agent with an edited prompt: CONTEXT_SET is owed again.
EDITED = Agent(
    name="helper", model="claude-test", system="Be very brief.", tools=TOOLS[:-1], limits=LIMITS
)
AGENTS = {"helper": AGENT}
# The same agent with the tool that may lock a project.
PROJECT = replace(build_and_deploy(["true"]), approval="none")
BUILDER = replace(AGENT, tools=(*TOOLS, PROJECT))

# The agents of random histories. Their requests begin with some 500 tokens of tools.
SMALL = replace(
    LIMITS,
    steps=8,
    background_attempts=2,
    background_timeout_ms=MINUTE,
    candidate_wait_ms=MINUTE,
    soft_tokens=6_000,
    resume_tokens=4_000,
    short_tokens=500,
    hard_tokens=20_000,
)
LONG = "Be brief and to the point. " * 1_500  # some 15,000 tokens: three quarters of the cap
MODELS = ("claude-test", "claude-test", "claude-opus-4-5")  # of both families of tokens
STRATEGIES = (
    *("compacted",) * 6,
    "full",
    "sliding_window_1",
    "sliding_window_2",
    "sliding_window_5",
    "sliding_window_50",
)
FIXED = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
ADAPTIVE = {"thinking": {"type": "adaptive"}}


@cache
def variant(
    strategy: str = "compacted",
    *,
    thinking: str = "adaptive",
    system: str = "Be brief.",
    fewer: bool = False,
    provider: bool = False,
    memory: bool = False,
    recovery: str = "replace",
    model: str = "claude-test",
    phased: bool = False,
) -> Agent:
    """An agent for random histories. `thinking`: "", "adaptive" or "fixed"; `fewer`: omits one
    tool; `phased`: one more tool, which may be called only in some phases."""
    params: dict[str, Any] = {"adaptive": ADAPTIVE, "fixed": FIXED}.get(thinking, {})
    tools = (read, leaf, *((paint,) if phased else ()), *TOOLS)
    return Agent(
        name="helper",
        model=model,
        system=system,
        tools=tools[:-1] if fewer else tools,
        limits=SMALL,
        params=params,
        strategy=strategy,
        compaction=Compaction(provider=provider),
        memory=memory,
        recovery=recovery,
        directive="Say nothing twice." if provider else "",
    )
