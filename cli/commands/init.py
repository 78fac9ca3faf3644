"""init: writes a small project whose tests and run command pass at once."""

import re
import shlex
from importlib.resources import files
from pathlib import Path
from string import Template

import click

from ...log.errors import Refused
from ..edge import example, json_option
from ..terminal.printing import emit, line

TEMPLATES = {
    "app.py": "app.py.txt",
    "test_app.py": "test_app.py.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
}
"""The template of each file of the project."""

IN_THE_WAY = (*TEMPLATES, "app")
"""Paths that must not exist yet: the files, and a package that `import app` would import instead.
"""

NAME_CHARS_MAX = 64


@click.command("init", epilog=example("foldlog init my-shop", "foldlog init"))
@click.argument("directory", required=False, default=".", metavar="[DIR]",
                type=click.Path(file_okay=False, path_type=Path))
@json_option
def init_command(directory: Path, as_json: bool) -> None:
    """Write a small project: an agent, its tests, a README.

    DIR (default: this directory) is created if it is missing. The agent is named after DIR and has
    one tool, which asks for approval. Existing files are never overwritten: if one is in the way,
    nothing is written.
    """
    name = agent_name(directory)
    written = write_project(directory, name)
    enter = [] if directory == Path() else [shlex.join(["cd", str(directory)])]
    test = "python -m pytest"
    run = ["foldlog dev --agent app:agent", f"foldlog chat --agent {name}"]
    if as_json:
        emit({
            "directory": str(directory),
            "agent": name,
            "written": [str(path) for path in written],
            "next": [*enter, test, *run],
        })
        return
    for path in written:
        line(f"wrote {path}")
    line("\nNext:")
    for command in enter:
        line(f"  {command}")
    line(f"  {test:34} # tests the agent: no broker, no API key")
    line(f"  {run[0]:34} # runs it, and loads it again when you save a change")
    line(f"  {run[1]:34} # in a second terminal; type `refund 17`")


def agent_name(directory: Path) -> str:
    """The agent's name: the name of the directory in lower case, with every character that is
    neither a letter nor a digit replaced by `-`.
    """
    name = re.sub(r"[^a-z0-9]+", "-", directory.resolve().name.lower()).strip("-")
    return name[:NAME_CHARS_MAX].rstrip("-") or "agent"


def write_project(directory: Path, name: str) -> list[Path]:
    """Write the files and return their paths.

    Raises Refused, which names the files that were written.
    """
    written: list[Path] = []
    try:
        taken = [entry for entry in IN_THE_WAY if (directory / entry).exists()]
        if taken:
            raise Refused(
                f"{directory.resolve()} already has {', '.join(taken)}. Nothing was written. Give "
                "another directory, as in `foldlog init my-agent`, or move what is in the way."
            )
        directory.mkdir(parents=True, exist_ok=True)
        for file, template in TEMPLATES.items():
            text = (files(__package__) / "templates" / template).read_text("utf-8")
            with open(directory / file, "x", encoding="utf-8") as out:
                out.write(Template(text).substitute(name=name))
            written.append(directory / file)
    except OSError as error:
        kept = ", ".join(path.name for path in written)
        raise Refused(
            f"cannot write the project in {directory}: {error.strerror or error}. "
            f"{f'Only {kept} was written' if kept else 'Nothing was written'}. Give a directory "
            "in which you can write."
        ) from error
    return written
