"""A history whose model calls are real: the effect, the `anthropic` package, the scripted server.

The server is as strict as the API: a request that it refuses is a failed attempt here.
"""

import asyncio

from foldlog.local.messages_api import ScriptedServer
from foldlog.processors.agent import Agent
from foldlog.processors.effects.models.call import GenClaim, generate, make_client
from foldlog.processors.limits import DEFAULT_LIMITS
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.tools.tool import tool
from foldlog.tests.laws import history as histories
from foldlog.tests.laws.history import History
from foldlog.tests.processors.effects.models.attempts import Collected

THINKS = "claude-opus-5-5"  # a model whose thinking is bound to all that was said before it


@tool(effect="pure")
def look(ctx, where: str = "here") -> str:
    """Looks."""
    return where


AGENT = Agent(
    name="helper", model=THINKS, system="You help.", tools=(look,), limits=DEFAULT_LIMITS,
    params={"thinking": {"type": "adaptive", "display": "summarized"}},
)


def claim_of(history: History) -> GenClaim:
    """The claim of the attempt that runs now."""
    turn, step, attempt = history.place
    at = history.turn.generation.claim.at
    return GenClaim(
        session_id=history.session_id, turn=turn, step=step, attempt=attempt, claimed_at=at
    )


def answered(history: History, server: ScriptedServer, alter=lambda request: request):
    """Work up to the model call, let the server answer it, and what follows; the outcome."""
    history.work()
    sink = Collected()

    async def main() -> None:
        async with make_client("test-key", server.base_url) as client:
            request, limits = alter(history.request_bytes()), history.agent.limits
            await generate(claim_of(history), request, sink, Stop(), client, limits=limits)

    asyncio.run(main())
    (outcome,) = sink.outcomes
    assert history.append(outcome, "models").accepted
    history.work()
    return outcome


def opened() -> History:
    """A session of the agent above."""
    return histories.opened(agent=AGENT)
