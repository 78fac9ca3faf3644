"""Which calls the phase of a session forbids, and what the model reads about it.

The texts here are only for the model. The log has the code WRONG_PHASE and the phase. Pure.
"""

from collections.abc import Iterable
from hashlib import sha256

from ...schemas.events import ReminderAdded
from ..agent import Agent
from ..fold.views import SessionViews
from ..tools.tool import Tool

PREFIX = "phase-"  # of the ids of these reminders
NAMES_MAX = 40  # of each list in a reminder: about 300 tokens


def forbids(phase: str, tool: Tool) -> bool:
    """Whether the tool may not be called in this phase."""
    return bool(tool.phases) and phase not in tool.phases


def why_forbidden(phase: str, tool: Tool) -> str:
    """The result of a call in a wrong phase, for the model."""
    where = " or ".join(tool.phases)
    return f"{tool.name} was not run: the phase is {phase}, and it may be called only in {where}."


def phase_reminder(
    views: SessionViews, agent: Agent, checkpoint: int | None
) -> ReminderAdded | None:
    """A reminder with the phase and its tools; None if the model has it already, or if no tool of
    the agent has phases. A new checkpoint repeats it, because a summary may lack it."""
    limited = [tool for tool in agent.tools if tool.phases]
    if not limited:
        return None
    text = _in_words(views.state.phase, limited)
    found = f"{PREFIX}{sha256(text.encode()).hexdigest()[:16]}-{checkpoint}-"
    last = next((i for i in reversed(views.turn.reminder_ids) if i.startswith(PREFIX)), "")
    if last.startswith(found):
        return None
    return ReminderAdded(reminder_id=f"{found}{views.turn.basis}", text=text)


def _in_words(phase: str, limited: list[Tool]) -> str:
    now = _listed(tool.name for tool in limited if not forbids(phase, tool))
    later = _listed(
        f"{tool.name} ({', '.join(tool.phases)})" for tool in limited if forbids(phase, tool)
    )
    parts = [f"The phase of this session is {phase}."]
    if now:
        parts.append(f"Tools for this phase: {now}.")
    if later:
        parts.append(f"Tools that may be called only in other phases: {later}.")
    return " ".join(parts)


def _listed(names: Iterable[str]) -> str:
    all_names = sorted(names)
    more = len(all_names) - NAMES_MAX
    return ", ".join(all_names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
