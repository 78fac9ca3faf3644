"""An agent with a tool for each kind of permission: docs/human-approval.md."""

from foldlog import Agent, tool


@tool(effect="pure")
def look_up(order: int) -> str:
    """Look up an order by its number."""
    return f"order {order}: 49 euros"


@tool(effect="once", approval="ask")
def refund(order: int) -> str:
    """Pay the customer's money back."""
    return f"order {order} is refunded"


@tool(effect="idempotent", approval="ask")
def report(command: str) -> str:
    """Run a report of the shop."""
    return f"{command}: done"


@tool(effect="once")
def delete_order(order: int) -> str:
    """Delete an order."""
    return f"order {order} is deleted"


agent = Agent(
    name="clerk",
    model="claude-sonnet-5-5",
    system="You answer the customers of a shop.",
    tools=[look_up, refund, report, delete_order],
    permissions=[("delete_*", "deny"), ("look_*", "allow")],
)
