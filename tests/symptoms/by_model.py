"""A history with real model calls: the effect, the `anthropic` package and the scripted server.

The server is as strict as the API: a rejected request is a failed attempt.
"""

import asyncio

from foldlog.local.messages_api import ScriptedServer
from foldlog.processors.agent import Agent
from foldlog.processors.effects.models.call import GenClaim, generate, make_client
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.views import SessionViews, initial
from foldlog.processors.limits import DEFAULT_LIMITS
from foldlog.processors.tools.output_sink import Stop
from foldlog.processors.tools.tool import tool
from foldlog.schemas.codec import entry_of
from foldlog.tests.kit import history as histories
from foldlog.tests.kit.history import History
from foldlog.tests.processors.effects.models.attempts import Collected

THINKS = "claude-opus-5-5"  # a model whose thinking is bound to the preceding messages


@tool(effect="pure")
def look(ctx, where: str = "here") -> str:
    """Returns the place."""
    return where


AGENT = Agent(
    name="helper", model=THINKS, system="You help.", tools=(look,), limits=DEFAULT_LIMITS,
    params={"thinking": {"type": "adaptive", "display": "summarized"}},
)


def claim_of(history: History) -> GenClaim:
    """Returns the claim of the running attempt."""
    turn, step, attempt = history.place
    at = history.turn.generation.claim.at
    return GenClaim(
        session_id=history.session_id, turn=turn, step=step, attempt=attempt, claimed_at=at
    )


def call_model(history: History, server: ScriptedServer, alter=lambda request: request):
    """Runs the next model call against the server, then the work that follows it. Returns the
    outcome."""
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


def views_after(history: History, count: int) -> SessionViews:
    """Folds the first `count` records from the log, as a worker does after a restart."""
    views = initial(history.session_id)
    for entry in map(entry_of, history.records[:count]):
        if entry.session_id == history.session_id:
            views, _ = fold(views, entry)
    return views


def opened() -> History:
    """Opens a session of AGENT."""
    return histories.opened(agent=AGENT)
