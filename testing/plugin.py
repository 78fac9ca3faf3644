"""The pytest plugin: the fixture `foldlog_agent`, and `async def` tests that use it.

An async test that uses the fixture needs no other plugin: if no other plugin runs the test, this
plugin does, in a new event loop.
"""

import asyncio
import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

try:
    import pytest
except ModuleNotFoundError:
    raise ImportError(
        "the fixture foldlog_agent needs pytest: pip install 'foldlog[testing]'"
    ) from None

if TYPE_CHECKING:
    from ..processors.agent import Agent
    from .run import AgentRun
    from .script import Scripted

_OTHERS = ("asyncio", "anyio", "trio")


class MakeRun:
    """The value of the fixture: a factory of runs, which are closed when the test ends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.runs: list[AgentRun] = []

    def __call__(
        self, *agents: "Agent", script: "Iterable[Scripted | str]" = (), user: str = "tester"
    ) -> "AgentRun":
        """A run of these agents, of which the first answers. See foldlog.testing."""
        from .run import AgentRun

        directory = self._directory / f"run{len(self.runs) + 1}"
        directory.mkdir()
        self.runs.append(AgentRun(agents, script, directory, user))
        return self.runs[-1]


@pytest.fixture
def foldlog_agent(tmp_path: Path) -> Iterator[MakeRun]:
    """Makes runs: `foldlog_agent(agent, *more_agents, script=[...], user="tester")`."""
    make = MakeRun(tmp_path)
    yield make
    for run in make.runs:
        run.close()
    for run in make.runs:
        run.demand_complete()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test that uses the fixture and that no other plugin is marked to run."""
    function, given = pyfuncitem.obj, pyfuncitem.funcargs
    make = given.get("foldlog_agent")
    if not isinstance(make, MakeRun) or not inspect.iscoroutinefunction(function):
        return None
    if any(pyfuncitem.get_closest_marker(name) for name in _OTHERS):
        return None
    names = inspect.signature(function).parameters

    async def run() -> None:
        try:
            await function(**{name: given[name] for name in names})
        finally:
            for run in make.runs:
                await run.aclose()

    asyncio.run(run())
    return True
