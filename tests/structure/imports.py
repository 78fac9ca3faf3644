"""Reads the imports of a source, as absolute dotted names."""

import ast
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from foldlog.tests.structure.tree import Source

FRONT_DOOR = "foldlog"
_DYNAMIC = {"import_module", "__import__"}


class Import(NamedTuple):
    """One imported name. `from ..schemas import codec` results in module foldlog.schemas, name
    codec."""

    line: int
    module: str
    name: str | None
    relative: bool

    @property
    def top(self) -> str:
        return self.module.split(".")[0]

    @property
    def room(self) -> str | None:
        """The part after `foldlog.`, whether it is in `module` or in `name`."""
        if self.top != FRONT_DOOR:
            return None
        parts = self.module.split(".")
        return parts[1] if len(parts) > 1 else self.name

    def candidates(self) -> tuple[str, ...]:
        """The modules that this import may load: the module, and the name if the name is a module
        as well."""
        return (self.module, f"{self.module}.{self.name}") if self.name else (self.module,)


@cache
def imports(source: Source) -> tuple[Import, ...]:
    """Every import in the file. Imports inside functions, for type checking, and by a name in a
    string are included."""
    return tuple(_imports(source))


def _imports(source: Source) -> Iterator[Import]:
    for node in ast.walk(source.tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield Import(node.lineno, alias.name, None, False)
            case ast.ImportFrom():
                module = _absolute(source, node)
                for alias in node.names:
                    yield Import(node.lineno, module, alias.name, node.level > 0)
            case ast.Call(args=[ast.Constant(value=str() as module), *_]):
                called = node.func
                name = called.attr if isinstance(called, ast.Attribute) else None
                if (name or getattr(called, "id", None)) in _DYNAMIC:
                    yield Import(node.lineno, module.lstrip("."), None, module.startswith("."))


def _absolute(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    up = len(source.package) - (node.level - 1)
    if up < 0:
        return f"(above the root){node.module or ''}"
    return ".".join([FRONT_DOOR, *source.package[:up], *filter(None, [node.module])])
