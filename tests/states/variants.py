"""The systems that can be searched: one session, one message, one model call, one tool call."""

from dataclasses import dataclass, replace

from foldlog.processors.agent import Agent
from foldlog.processors.limits import Limits
from foldlog.tests.simulation import agents

LIMITS = Limits(
    model_attempts=2, tool_attempts=2, steps=1, stall_timeout_ms=20_000, tool_timeout_ms=20_000
)


@dataclass(frozen=True)
class Variant:
    """One system. `chunks`: whether the model streams one chunk before its answer; `cancels` and
    `decides`: whether a person cancels the turn, and answers the approval."""

    name: str
    tool: str
    chunks: bool = False
    cancels: bool = True
    decides: bool = False

    @property
    def agent(self) -> Agent:
        """The agent, whose only tool is the one that its model calls."""
        tool = agents.AGENT.tool(self.tool)
        assert tool is not None
        return replace(agents.AGENT, name="model", tools=(tool,), limits=LIMITS)


VARIANTS = (
    Variant("once", "charge"),
    Variant("idempotent", "put"),
    Variant("reconciled", "order"),
    Variant("approved", "wire", decides=True),
    Variant("streamed", "charge", chunks=True),
)
BY_NAME = {variant.name: variant for variant in VARIANTS}
