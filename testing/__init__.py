"""Tests an agent in milliseconds, without a broker or an API key, with the fixture `foldlog_agent`.

    async def test_refund_asks_first(foldlog_agent):
        run = foldlog_agent(shop, script=[calls("refund", order=17), says("done")])
        ask = await run.send("refund 17").until(ApprovalAsked)
        await run.approve(ask)
        await run.crash()
        assert (await run.result()).text == "done"

The folds, the decisions, the claims and the tools are the product's own. The log is in memory, the
model is a scripted Messages API that is as strict as the real API, and time is virtual.

Read in this order: `run.py`, `script.py`, `engine.py` and `model_client.py` (what a run works
with), `tools.py` (`check_tool`), `forgotten.py` (calls that were not awaited), `plugin.py` (the
fixture).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers and editors; loaded by `__getattr__`
    from .engine import RunWaits as RunWaits
    from .run import (
        AgentRun as AgentRun,
        RunNeverEnds as RunNeverEnds,
        RunReply as RunReply,
        ToolStillRuns as ToolStillRuns,
    )
    from .script import (
        AnswersUnused as AnswersUnused,
        Scripted as Scripted,
        ScriptExhausted as ScriptExhausted,
        calls as calls,
        fails as fails,
        from_session as from_session,
        says as says,
        thinks as thinks,
    )
    from .tools import ToolChecked as ToolChecked, check_tool as check_tool

# Loaded on first use: pytest imports this package for its plugin in every run.
_EXPORTS: dict[str, str] = {
    "AgentRun": ".run",
    "AnswersUnused": ".script",
    "RunNeverEnds": ".run",
    "RunReply": ".run",
    "RunWaits": ".engine",
    "ScriptExhausted": ".script",
    "Scripted": ".script",
    "ToolChecked": ".tools",
    "ToolStillRuns": ".run",
    "calls": ".script",
    "check_tool": ".tools",
    "fails": ".script",
    "from_session": ".script",
    "says": ".script",
    "thinks": ".script",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> object:
    if name == "foldlog_agent":  # an AttributeError would lose its text in `from ... import`
        raise ImportError(
            "foldlog_agent is a fixture of pytest, so it is not imported. "
            "Name it as a parameter of the test."
        )
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name], __name__), name)
