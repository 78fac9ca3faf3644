"""A complete agent for a shop. docs/agents.md explains it step by step; a test runs those steps.

Its data (orders, notes, and the bank's refunds) is in `shop.sqlite3` in this directory, which is
created on first use.
"""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

from foldlog import (
    Agent,
    Compaction,
    DidNotHappen,
    Happened,
    Limits,
    McpServer,
    ToolContext,
    ToolFailed,
    read_result,
    tool,
)

HERE = Path(__file__).parent
EVENTS = ("packed", "handed over to the carrier", "arrived", "late, the customer waits")


@contextmanager
def shop() -> Iterator[sqlite3.Connection]:
    """The shop's database; a new one has three orders."""
    with closing(sqlite3.connect(HERE / "shop.sqlite3")) as db, db:
        db.row_factory = sqlite3.Row
        db.execute("CREATE TABLE IF NOT EXISTS orders (number PRIMARY KEY, customer, cents)")
        db.execute("CREATE TABLE IF NOT EXISTS notes (key PRIMARY KEY, number, text)")
        db.execute("CREATE TABLE IF NOT EXISTS refunds (key PRIMARY KEY, number, cents)")
        rows = [(17, "ana", 4_900), (18, "ana", 1_250), (19, "ben", 800)]
        db.executemany("INSERT OR IGNORE INTO orders VALUES (?, ?, ?)", rows)
        yield db


# A pure tool changes nothing: after a crash it runs again, and a result may be used twice.
@tool(effect="pure", cache_ttl_s=60)
def look_up_order(order: Annotated[int, "its number, as the customer knows it"]) -> dict:
    """Look up an order: its customer and what it cost, in cents."""
    with shop() as db:
        row = db.execute("SELECT * FROM orders WHERE number = ?", (order,)).fetchone()
    if row is None:
        raise ToolFailed(f"there is no order {order}")
    return dict(row)


def only_open(text: str) -> str:
    """The lines of a history that need action."""
    return "\n".join(line for line in text.splitlines() if line.endswith("waits"))


# The tool's own compactor, instead of a model, shortens a long result.
@tool(effect="pure", compactor=only_open)
def order_history(customer: str) -> str:
    """Everything that happened to the orders of a customer, one event a line."""
    return "\n".join(
        f"{customer}: parcel {1000 + n} of order {17 + n % 3}: {EVENTS[n % 4]}" for n in range(160)
    )


# An idempotent tool may run twice but takes effect once: it writes under its idempotency key.
@tool(effect="idempotent")
def add_note(ctx: ToolContext, order: int, text: str) -> str:
    """Write a note into an order, for the people of the shop."""
    with shop() as db:
        row = (ctx.idempotency_key, order, text)
        db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", row)
    return f"noted in order {order}"


def was_refunded(
    ctx: ToolContext, order: int, amount_cents: int
) -> Happened | DidNotHappen | None:
    """The outcome of a refund whose worker died; the bank finds it by its key."""
    with shop() as db:
        row = db.execute("SELECT * FROM refunds WHERE key = ?", (ctx.idempotency_key,)).fetchone()
    if row is None:
        return DidNotHappen("the bank knows of no such refund")
    return Happened({"refunded": row["cents"]})


# A tool that must not run twice is `once`; this one also needs a person's approval.
@tool(effect="once", approval="ask", timeout_s=30, reconciler=was_refunded)
async def refund(ctx: ToolContext, order: int, amount_cents: int) -> dict:
    """Pay money back to the customer of an order."""
    if amount_cents <= 0:
        raise ToolFailed("a refund is 1 cent or more")
    with shop() as db:
        db.execute(
            "INSERT INTO refunds VALUES (?, ?, ?)", (ctx.idempotency_key, order, amount_cents)
        )
    ctx.remind("A refund was paid: tell the customer that it takes three days.")
    return {"refunded": amount_cents}


# A tool that few turns need is not in every request: the model finds it with `find_tools`.
@tool(effect="pure", tier="rare")
def turnover(customer: str) -> dict:
    """What a customer has bought, in cents."""
    with shop() as db:
        query = "SELECT sum(cents) FROM orders WHERE customer = ?"
        (cents,) = db.execute(query, (customer,)).fetchone()
    return {"customer": customer, "cents": cents or 0}


# A tool with `stops` ends the turn when it succeeds.
@tool(effect="pure", stops=True)
def close_case(summary: str) -> str:
    """Close the customer's case. Call it last, with one sentence for the files."""
    return f"closed: {summary}"


agent = Agent(
    name="shop",
    model="claude-sonnet-5-5",
    params={"thinking": {"type": "adaptive"}},
    max_output_tokens=4_096,
    system="You answer the customers of a shop. Look orders up, never guess.",
    directive="Never say that money was paid back unless a tool said so.",
    tools=[look_up_order, order_history, add_note, refund, turnover, close_case, read_result],
    permissions=[("close_case", "allow"), ("rates__*", "allow")],
    mcp=[
        McpServer(
            name="rates",
            command=(sys.executable, str(HERE / "rates_server.py")),
            effects={"convert": "pure"},
        )
    ],
    workdir=HERE,
    instructions=True,
    memory=True,
    limits=Limits(steps=20, soft_tokens=40_000, hard_tokens=150_000, result_tokens=6_000),
    strategy="compacted",
    compaction=Compaction(model="claude-haiku-5-5"),
)
