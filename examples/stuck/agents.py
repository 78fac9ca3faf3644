"""Agents whose sessions get stuck, one for each cause of docs/debug-a-stuck-session.md."""

from foldlog import Agent, Limits, tool


@tool(effect="once", approval="ask")
def charge(amount_cents: int) -> dict:
    """Charge the customer's card."""
    return {"charged": amount_cents}


@tool(effect="once")
def refund(order: int) -> str:
    """Pay an order back."""
    raise TimeoutError("the bank did not answer")


MODEL = "claude-sonnet-5-5"
agents = [
    Agent(name="shop", model=MODEL, tools=[charge, refund]),
    Agent(
        name="hurried", model=MODEL, tools=[charge],
        limits=Limits(approval_expiry_ms=2_000),  # a day by default
    ),
    Agent(name="narrow", model=MODEL, limits=Limits(soft_tokens=10, hard_tokens=10)),
]
