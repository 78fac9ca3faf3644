"""Refuses messages to sessions without an agent, which are streams that clients write and histories
of other frameworks.

A message to such a session would open a turn that no worker serves, and wait forever. So it is
refused before it is written.
"""

from ..log.errors import Refused
from ..processors.fold.views import SessionViews
from .protocols.durable.writing import AGENT as STREAM

ELSEWHERE = "Nothing was written. To talk to an agent, send the message to another session."


class NobodyAnswers(Refused):
    """A message to a session that no agent serves."""


def demand_agent(views: SessionViews, agent: str) -> None:
    """Raise NobodyAnswers if no agent would answer in this session. `agent`: the agent of the
    session if it is new.
    """
    turn, session = views.turn, views.session_id
    if (turn.agent if turn.known else agent) == STREAM:
        raise NobodyAnswers(
            f"session {session} is a durable stream, which no agent answers; clients write it with "
            f"POST /v1/stream/{session}. {ELSEWHERE}"
        )
    if len(views.items.batches):
        raise NobodyAnswers(
            f"session {session} has the items of another framework, which answers there; no "
            f"agent of foldlog does. {ELSEWHERE}"
        )
