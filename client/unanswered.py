"""Refuses messages to sessions without an agent, which are histories of other frameworks.

A message to such a session would open a turn that no worker serves, and wait forever. So it is
refused before it is written.
"""

from ..log.errors import Refused
from ..processors.fold.views import SessionViews


class NobodyAnswers(Refused):
    """A message to a session that no agent serves."""


def demand_agent(views: SessionViews) -> None:
    """Raise NobodyAnswers if no agent would answer in this session."""
    if len(views.items.batches):
        raise NobodyAnswers(
            f"session {views.session_id} has the items of another framework, which answers there; "
            "no agent of foldlog does. Nothing was written. To talk to an agent, send the message "
            "to another session."
        )
