"""The files of the checkout, for the structure tests.

Rules are functions of `Source` values, so that the tests can also run each rule on small invented
sources.
"""

import ast
import os
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

# The rooms in the order of their arrows: a room may import those before it.
ROOM_ORDER = (
    "schemas", "log", "producers", "processors", "client", "reports",
    "web", "upkeep", "adapters", "testing", "fleet", "cli",
)
# Beside each other: none of them may import another one.
SIDE_BY_SIDE = ("web", "upkeep", "adapters")
# Outside of that order.
LOCAL = "local"
ROOMS = (*ROOM_ORDER, LOCAL)

# Generated or third-party. Hidden directories are skipped as well, except .ci.
SKIPPED_DIRECTORIES = {"__pycache__", "build", "dist", "node_modules"}


class Source:
    """One Python file: its path below the root, its text, and its syntax tree."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text

    def __repr__(self) -> str:
        return self.path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the path: `log/kafka.py` -> ("log", "kafka"); `log/__init__.py` ->
        ("log",)."""
        names = self.path.removesuffix(".py").split("/")
        return tuple(names[:-1] if names[-1] == "__init__" else names)

    @property
    def room(self) -> str | None:
        """The room of the file, or None for the root, tests, bench, docs and examples."""
        first = self.path.split("/")[0]
        return first if first in ROOMS else None

    @property
    def package(self) -> tuple[str, ...]:
        """The package that `from . import x` in this file refers to, below foldlog."""
        return tuple(self.path.split("/")[:-1])


def _walk() -> Iterator[Path]:
    for directory, names, files in os.walk(ROOT):
        names[:] = sorted(
            n for n in names
            if n not in SKIPPED_DIRECTORIES
            and not n.endswith(".egg-info")
            and (not n.startswith(".") or n == ".ci")
        )
        for file in sorted(files):
            if file != ".git":  # a worktree's: a file that names its repository
                yield Path(directory, file)


@lru_cache(maxsize=1)
def all_paths() -> tuple[str, ...]:
    """Every file of the tree, as paths below the root with forward slashes."""
    return tuple(
        p.relative_to(ROOT).as_posix()
        for p in _walk()
        if not p.name.endswith((".pyc", ".so", ".pyd"))  # compiled
    )


@lru_cache(maxsize=1)
def python_sources() -> tuple[Source, ...]:
    """Every Python file of the tree."""
    return tuple(
        Source(p, (ROOT / p).read_text(encoding="utf-8"))
        for p in all_paths()
        if p.endswith(".py")
    )


def room_sources() -> tuple[Source, ...]:
    """The Python files that a wheel contains, except foldlog/__init__.py."""
    return tuple(s for s in python_sources() if s.room)


# Parts of a syntax tree that do not change what the code does: imports, and types.
_IMPORTS = (ast.Import, ast.ImportFrom)
_TYPES = {"returns", "annotation", "type_comment", "type_params", "kind"}


def shape(node: Any) -> Any:
    """A syntax tree as nested tuples, without docstrings, imports and the types of parameters."""
    if isinstance(node, list):
        return tuple(shape(item) for item in node if not isinstance(item, _IMPORTS))
    if not isinstance(node, ast.AST):
        return repr(node)
    return type(node).__name__, *_fields(node)


def _fields(node: ast.AST) -> Iterator[tuple[str, Any]]:
    is_field = isinstance(node, ast.AnnAssign)  # a view's field is stored by its type
    for name, value in ast.iter_fields(node):
        if value in (None, []) or (name in _TYPES and not is_field):
            continue
        if name == "body" and isinstance(value, list):
            value = [item for item in value if not _is_text(item)]
        yield name, shape(value)


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is a docstring."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def demand_none(findings: Iterable[str]) -> None:
    """Fail if there is any finding, and print one finding per line."""
    found = list(findings)
    if found:
        pytest.fail(f"{len(found)} findings:\n" + "\n".join(found), pytrace=False)
