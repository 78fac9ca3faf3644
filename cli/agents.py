"""Imports the agents that a command line names, as MODULE:ATTR."""

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..processors.agent import Agent


def load_agents(names: Sequence[str]) -> list["Agent"]:
    """The agents of these names; without names, the built-in agent for the working directory.

    Raises click.UsageError, which says what is wrong with which name.
    """
    from ..processors.agent import Agent

    if not names:
        from ..processors.tools.builtin import default_agent

        return [default_agent(Path.cwd())]
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as with `python -m`: agents are in the working directory
    agents: list[Agent] = []
    for name in names:
        found = _load(name)
        several: Sequence[Any] = found if isinstance(found, list | tuple) else [found]
        if not several or not all(isinstance(agent, Agent) for agent in several):
            what = f"it is a {type(found).__name__}, not an Agent or a list of them"
            raise click.UsageError(f"--agent {name}: {what}.")
        agents.extend(several)
    twice = {a.name for a in agents if sum(b.name == a.name for b in agents) > 1}
    if twice:
        names_twice = ", ".join(sorted(twice))
        raise click.UsageError(f"--agent: more than one agent is named {names_twice}: rename one.")
    return agents


def _load(name: str) -> object:
    module_name, colon, attribute = name.partition(":")
    if not module_name or not colon or not attribute:
        raise click.UsageError(f"--agent {name}: give MODULE:ATTR, as in my_app:agent.")
    if "/" in module_name or module_name.endswith(".py"):
        raise click.UsageError(f"--agent {name}: {_not_a_file(Path(module_name), attribute)}")
    try:
        with no_bytecode():
            module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}{_place(error)}"
        if isinstance(error, ModuleNotFoundError) and error.name == module_name:
            why += f". {_where_modules_are(module_name)}"
        raise click.UsageError(f"--agent {name}: {module_name} can't be imported: {why}") from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        there = ", ".join(_agents_in(module)) or "no Agent at its top level"
        raise click.UsageError(
            f"--agent {name}: {module_name} has no {attribute}: give the name of an Agent in it. "
            f"It has {there}."
        ) from None


def _where_modules_are(module_name: str) -> str:
    """The hint for a missing module: where modules are searched, and which ones exist there."""
    here = sorted(path.stem for path in Path.cwd().glob("*.py"))
    close = difflib.get_close_matches(module_name, here, 1)
    if close:
        return f"Did you mean {close[0]}?"
    return f"It is looked for in {Path.cwd()}: go to its directory first"


def _agents_in(module: object) -> list[str]:
    """The names of the agents at the top level of a module."""
    from ..processors.agent import Agent

    return sorted(name for name, value in vars(module).items() if isinstance(value, Agent))


@contextmanager
def no_bytecode() -> Iterator[None]:
    """A block that writes no .pyc files, because two versions of a file with the same size, saved
    within one second, would share a .pyc.
    """
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _not_a_file(path: Path, attribute: str) -> str:
    """The hint for a path that was given instead of a module: the name to import it by."""
    if path.is_absolute() or ".." in path.parts:
        return f"give a module, not a file: in {path.parent}, --agent {path.stem}:{attribute}"
    return f"give a module, not a file: {'.'.join(path.with_suffix('').parts)}:{attribute}"


def _place(error: BaseException) -> str:
    """The line of the agent's own file that caused the error, not our line that raised it."""
    ours = str(Path(__file__).parent.parent / "processors")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((ours, "<string>")):  # a dataclass's own __init__
            found = "importlib" not in frame.filename and frame.filename != __file__
            return f" ({frame.filename}, line {frame.lineno})" if found else ""
    return ""
