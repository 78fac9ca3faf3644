"""The agent of the web example."""

from foldlog import Agent, tool


@tool(effect="once", approval="ask")
async def refund(order: int) -> str:
    """Pay a customer's order back."""
    return f"order {order} is refunded"


shop = Agent(
    name="shop",
    model="claude-sonnet-5-5",
    system="You answer the customers of a shop.",
    tools=[refund],
)
