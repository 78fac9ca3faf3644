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
from foldlog.schemas import events as ev
from foldlog.tests.laws.history import History

THINKS = "claude-opus-5-5"  # a model whose thinking is bound to all that was said before it


@tool(effect="pure")
def look(ctx, where: str = "here") -> str:
    """Looks."""
    return where


AGENT = Agent(
    name="helper", model=THINKS, system="You help.", tools=(look,), limits=DEFAULT_LIMITS,
    params={"thinking": {"type": "adaptive", "display": "summarized"}},
)


class Sink:
    """What an attempt reports."""

    def __init__(self) -> None:
        self.chunks: list[ev.GenChunk] = []
        self.outcomes: list = []

    def chunk(self, session_id, event) -> None:
        self.chunks.append(event)

    async def outcome(self, session_id, event) -> None:
        self.outcomes.append(event)


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
    sink = Sink()

    async def main() -> None:
        async with make_client("test-key", server.base_url) as client:
            request, limits = alter(history.request_bytes()), history.agent.limits
            await generate(claim_of(history), request, sink, Stop(), client, limits=limits)

    asyncio.run(main())
    (outcome,) = sink.outcomes
    assert history.append(outcome, "models").accepted
    history.work()
    return outcome


def opened(agent: Agent = AGENT, session_id: str = "s1") -> History:
    """A session with a worker that holds its partition."""
    history = History(session_id, agent)
    history.take()
    assert history.open().accepted
    return history
