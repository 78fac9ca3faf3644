"""Sessions that nobody answers: streams that clients write, and histories of other frameworks.

A message there would open a turn that no worker has the agent for, and wait for ever. Whoever would
say it is told before it is written. This file must not know who asks.
"""

from ..log.errors import Refused
from ..processors.fold.views import SessionViews
from .protocols.durable.writing import AGENT as STREAM

ELSEWHERE = "Nothing was written. To talk to an agent, say it in another session."


class NobodyAnswers(Refused):
    """A message to a session that no agent serves."""


def demand_agent(views: SessionViews, agent: str) -> None:
    """Raise NobodyAnswers if no agent would answer in this session; `agent`: which one opens it
    if it is new."""
    turn, session = views.turn, views.session_id
    if (turn.agent if turn.known else agent) == STREAM:
        raise NobodyAnswers(
            f"session {session} is a durable stream, which no agent answers: it is written by "
            f"POST /v1/stream/{session}. {ELSEWHERE}"
        )
    if len(views.items.batches):
        raise NobodyAnswers(
            f"session {session} holds the items of another framework, which answers there; no "
            f"agent does here. {ELSEWHERE}"
        )
