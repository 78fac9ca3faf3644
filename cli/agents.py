"""Imports the agents that a command line names: FILE.py or MODULE, and :NAME to choose one of
several.
"""

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from ..processors.agent import Agent

HINTS_MAX = 3


class Source(NamedTuple):
    """The place of the agents that one name on the command line means. `directory`: where the
    module is imported from.

    `file`: the file that was named, or None if a module was named.
    `attribute`: "" for the only agent of the module.
    """

    directory: Path
    module: str
    attribute: str
    file: Path | None


def source_of(name: str) -> Source:
    """The place that a name means. It may not exist.

    A file is imported as its own directory would import it. If it is in a package, it is imported
    from the package's parent directory, so that its relative imports work.
    """
    where, _, attribute = name.partition(":")
    if not ("/" in where or where in (".", "..") or where.endswith(".py")):
        return Source(Path.cwd(), where, attribute, None)
    file = Path(os.path.abspath(os.path.expanduser(where)))  # a shell keeps the ~ of --agent=~/
    root, parts = file.parent, [file.stem]
    while (root / "__init__.py").exists() and root.name:
        root, parts = root.parent, [root.name, *parts]
    if len(parts) > 1 and file.stem == "__init__":
        parts.pop()
    return Source(root, ".".join(parts), attribute, file)


def load_agents(names: Sequence[str]) -> list["Agent"]:
    """The agents of these names; without names, the built-in agent for the working directory.

    Raises click.UsageError, which says what is wrong with which name.
    """
    if not names:
        from ..processors.default_agent import default_agent

        return [default_agent(Path.cwd())]
    _search(Path.cwd())  # as with `python -m`: agents are in the working directory
    agents: list[Agent] = []
    for name in names:
        try:
            agents.extend(_load(source_of(name), name))
        except click.UsageError as error:
            error.message = f"--agent {name}: {error.message}"
            raise
    twice = {a.name for a in agents if sum(b.name == a.name for b in agents) > 1}
    if twice:
        names_twice = ", ".join(sorted(twice))
        raise click.UsageError(f"--agent: more than one agent is named {names_twice}. Rename one.")
    return agents


def _search(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _load(source: Source, name: str) -> Sequence["Agent"]:
    if source.file is not None:
        _demand_file(source.file)
        _search(source.directory)
    elif not source.module:
        raise click.UsageError(
            "it is neither a file nor a module. Give one, as in shop.py or my_app:agent."
        )
    module = _import(source)
    there = _agents_in(module)
    if source.attribute:
        return _chosen(module, source, there)
    where = name.rstrip(":")
    if len({tuple(map(id, several)) for several in there.values()}) == 1:
        return next(iter(there.values()))
    if there:
        listed = " or ".join(f"{where}:{one}" for one in there)
        raise click.UsageError(f"it has several agents, so name one: {listed}.")
    if getattr(module, "__file__", None) is None:
        raise click.UsageError(_no_directory(Path(next(iter(module.__path__)))))
    raise click.UsageError(
        f"{where} has no Agent at its top level. Assign one there, as in agent = Agent(...)."
    )


def _demand_file(file: Path) -> None:
    """Raise a UsageError unless this is a file that Python can import."""
    if file.is_dir():
        raise click.UsageError(_no_directory(file))
    if not file.exists():
        here = sorted(path.name for path in file.parent.glob("*.py"))
        close = difflib.get_close_matches(file.name, here, 1)
        hint = f" Did you mean {close[0]}?" if close else _files_in(file.parent)
        raise click.UsageError(f"there is no file {file}.{hint}")
    if file.suffix != ".py":
        raise click.UsageError("it is not a Python file. Give a file that ends in .py.")
    if "." in file.stem:
        raise click.UsageError(
            "Python cannot import a file whose name has another dot. Rename the file."
        )


def _no_directory(directory: Path) -> str:
    return f"{directory} is a directory. Give a Python file in it.{_files_in(directory)}"


def _files_in(directory: Path) -> str:
    if not directory.is_dir():
        return f" There is no directory {directory} either."
    names = sorted(path.name for path in directory.glob("*.py"))
    if not names:
        return f" {directory} has no Python file."
    more = ", ..." if len(names) > HINTS_MAX else ""
    return f" It has {', '.join(names[:HINTS_MAX])}{more}."


def _import(source: Source) -> ModuleType:
    where = str(source.file or source.module)
    try:
        with no_bytecode():
            module = importlib.import_module(source.module)
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}{_place(error)}"
        if isinstance(error, ModuleNotFoundError) and error.name == source.module:
            why += f". {_where_modules_are(source.module)}"
        raise click.UsageError(f"{where} cannot be imported: {why}") from error
    found = getattr(module, "__file__", None)
    if source.file is not None and (found is None or not source.file.samefile(found)):
        raise click.UsageError(
            f"Python has another module named {source.module} ({found or 'built-in'}). Rename the "
            "file."
        )
    return module


def _chosen(
    module: ModuleType, source: Source, there: dict[str, tuple["Agent", ...]]
) -> tuple["Agent", ...]:
    """The agents of the attribute that was named."""
    where = source.file.name if source.file else source.module
    listed = f"{where} has {', '.join(there) or 'no Agent at its top level'}"
    try:
        value = getattr(module, source.attribute)
    except AttributeError:
        raise click.UsageError(
            f"{where} has no {source.attribute}. Give the name of an Agent in it. {listed}."
        ) from None
    chosen = _agents_of(value)
    if not chosen:
        kind = type(value).__name__
        raise click.UsageError(f"it is a {kind}, not an Agent or a list of them. {listed}.")
    return chosen


def _where_modules_are(module_name: str) -> str:
    """The hint for a missing module: where modules are searched, and which ones exist there."""
    here = sorted(path.stem for path in Path.cwd().glob("*.py"))
    parent, _, attribute = module_name.rpartition(".")
    if parent in here:
        return f"Did you mean {parent}:{attribute}?"
    close = difflib.get_close_matches(module_name, here, 1)
    if close:
        return f"Did you mean {close[0]}?"
    return f"Modules are looked for in {Path.cwd()}. Change to its directory, or give its file"


def _agents_in(module: ModuleType) -> dict[str, tuple["Agent", ...]]:
    """The agents, and lists of agents, at the top level of a module, by their names."""
    found = {name: _agents_of(value) for name, value in sorted(vars(module).items())}
    return {name: agents for name, agents in found.items() if agents}


def _agents_of(value: object) -> tuple["Agent", ...]:
    """An agent, or a list of agents, as a tuple; () for any other value."""
    from ..processors.agent import Agent

    several = tuple(value) if isinstance(value, list | tuple) else (value,)
    return several if all(isinstance(one, Agent) for one in several) else ()


@contextmanager
def no_bytecode() -> Iterator[None]:
    """A block in which Python writes no .pyc files.

    Two versions of a file that have the same size and were saved within the same second would share
    one .pyc file, so the newer version would not be loaded.
    """
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _place(error: BaseException) -> str:
    """The line of the agent's own file that caused the error. The line that raised the error may be
    in foldlog.
    """
    ours = str(Path(__file__).parent.parent / "processors")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((ours, "<string>")):  # a dataclass's own __init__
            found = "importlib" not in frame.filename and frame.filename != __file__
            return f" ({frame.filename}, line {frame.lineno})" if found else ""
    return ""
