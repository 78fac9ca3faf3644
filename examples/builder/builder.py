"""An agent that builds a site with its user. Its prompt and the table of phases predict what it may
do: docs/agents.md explains it, and a test tries every phase and tool.
"""

from typing import Annotated

from foldlog import Agent, ToolContext, tool


@tool(effect="pure")
def read_page(name: str) -> str:
    """Read a page of the site."""
    return f"<h1>{name}</h1>"


@tool(effect="pure", phases=("chatting", "done"))
def start_build(ctx: ToolContext, plan: Annotated[str, "what the user agreed to"]) -> str:
    """Begin to build, once the user agrees to a plan."""
    ctx.trigger("start_build")
    return f"the plan is: {plan}"


@tool(effect="idempotent", phases=("building",))
def write_page(name: str, html: str) -> str:
    """Write a page of the site."""
    return f"wrote {len(html)} characters to {name}"


@tool(effect="pure", phases=("building",))
def finish_build(ctx: ToolContext) -> str:
    """Say that every page is written."""
    ctx.trigger("todo_done_build")
    return "the site can be verified"


@tool(effect="once", approval="ask", phases=("verifying",))
def publish(ctx: ToolContext) -> str:
    """Publish the site, after the user has looked at it."""
    ctx.trigger("publish")
    return "the site is public"


agent = Agent(
    name="builder",
    model="claude-sonnet-5-5",
    system="You build a site with its user: agree on a plan, build it, let the user verify it, "
    "publish it.",
    tools=[read_page, start_build, write_page, finish_build, publish],
    permissions=[("read_page", "deny", ("verifying",))],
)
