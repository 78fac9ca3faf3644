"""The pytest plugin: the fixture `foldlog_agent`, and `async def` tests that use it.

An async test that uses the fixture needs no other plugin: if no other plugin runs the test, this
plugin does, in a new event loop.
"""

import asyncio
import inspect
import warnings
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .forgotten import FORGOTTEN

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

T = TypeVar("T")
_OTHERS = ("asyncio", "anyio", "trio")
_PASSED = pytest.StashKey[bool]()
PATIENCE_S = 10.0
"""For how many real seconds a test waits for a tool by default. The process of an isolated tool
needs 3 s to start on a busy machine."""


class MakeRun:
    """The value of the fixture: a factory of runs, which are closed when the test ends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.runs: list[AgentRun] = []

    def __call__(
        self,
        *agents: "Agent",
        script: "Iterable[Scripted | str]" = (),
        user: str = "tester",
        session_id: str | None = None,
        patience_s: float = PATIENCE_S,
    ) -> "AgentRun":
        """A run of these agents. The first agent answers in the session of the run.

        script: the model's answers in order; a string stands for an answer that consists of this
            text.
        user: the user who acts.
        session_id: by default `test`, and `test-2`, `test-3` ... for further runs of one test, so
            that their idempotency keys differ.
        patience_s: for how many real seconds a wait lasts at most while one tool runs. Then it
            raises RunWaits, which names the tool.

        Runs of two tests have the same ids and idempotency keys, so each test must create its own
        fakes, such as a fake bank.
        """
        from .run import AgentRun

        number = len(self.runs) + 1
        directory = self._directory / f"run{number}"
        directory.mkdir(exist_ok=True)  # a refused run left it
        session_id = session_id or ("test" if number == 1 else f"test-{number}")
        self.runs.append(AgentRun(agents, script, directory, user, session_id, patience_s))
        return self.runs[-1]

    def close(self) -> None:
        """Close the runs."""
        for run in self.runs:
            run.close()

    def check(self) -> None:
        """Raise Refused if a run did less than the test asked for. Warn of scripts that have
        answers left, because the model got fewer requests, and of tools that still run."""
        from .run import ToolStillRuns
        from .script import AnswersUnused

        for run in self.runs:
            run.demand_complete()
        for run in self.runs:
            for call in run.left_running():
                warnings.warn(
                    f"tool {call} of session {run.session.id} still runs, although its worker was "
                    "killed: only an async tool can be ended, a thread cannot. Its result is "
                    "lost. Let the tool end, for example with a threading.Event that the test "
                    "sets",
                    ToolStillRuns,
                    stacklevel=2,
                )
            if unused := run.unused():
                warnings.warn(
                    f"{unused} answer{'s' * (unused > 1)} of the script of session "
                    f"{run.session.id} {'were' if unused > 1 else 'was'} not used, because the "
                    "model got fewer requests than the script has answers. Await the reply, or "
                    "shorten script=[...]",
                    AnswersUnused,
                    stacklevel=2,
                )


@pytest.fixture
def foldlog_agent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MakeRun]:
    """Makes runs: `foldlog_agent(agent, *more_agents, script=[...], user="tester")`."""
    make = MakeRun(tmp_path)
    yield make
    make.close()
    if request.node.stash.get(_PASSED, False):  # or one mistake would be reported twice
        make.check()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, T, T]:
    """Fail a test that passed although a call of the kit, such as `run.crash()`, was not awaited.
    """
    FORGOTTEN.clear()
    item.stash[_PASSED] = False
    result = yield
    if FORGOTTEN:
        pytest.fail(" ".join(FORGOTTEN), pytrace=False)
    item.stash[_PASSED] = True
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test that uses the fixture, unless it has the marker of another async plugin."""
    function, given = pyfuncitem.obj, pyfuncitem.funcargs
    make = given.get("foldlog_agent")
    if not isinstance(make, MakeRun) or not inspect.iscoroutinefunction(function):
        return None
    if any(pyfuncitem.get_closest_marker(name) for name in _OTHERS):
        return None
    names = inspect.signature(function).parameters

    asyncio.run(function(**{name: given[name] for name in names}))
    return True
