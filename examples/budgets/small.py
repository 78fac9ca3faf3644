"""An agent with budgets so small that a few turns show their effect. docs/budgets.md runs it.

Such budgets are only for demonstration: here a summary costs more than it saves. One of its tools
makes one of the mistakes that `foldlog doctor` reports.
"""

from foldlog import Agent, Limits, tool

LINE = "the pump stands in room {n}; its filter was changed on day {n}, its valve on day {m}. "


def page(number: int, lines: int) -> str:
    return "".join(LINE.format(n=number * 100 + n, m=number * 90 + n) for n in range(lines))


@tool(effect="pure")
def read_page(number: int) -> str:
    """Read a page of the manual of the plant. Every fifth page is a long one."""
    return page(number, 14 if number % 5 else 60)


@tool(effect="pure")
def search_manual(words: str) -> str:
    """Search the manual for words. It returns whole pages, and should not."""
    return "\n".join(page(number, 60) for number in (21, 22, 23))


agent = Agent(
    name="reader",
    model="claude-sonnet-5-5",
    system="You read a manual to people.",
    tools=[read_page, search_manual],
    limits=Limits(soft_tokens=5_000, resume_tokens=4_000, short_tokens=1_000, hard_tokens=20_000),
)
