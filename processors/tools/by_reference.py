"""Names a function by its module and its place in it, so that another process can import it.

A function that another process would not find is an error when its tool or its agent is made, not
when it is called.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any, NamedTuple

from .tool import Tool


class Reference(NamedTuple):
    """A module, and the dotted name of a function, or of the tool made of it, in that module."""

    module: str
    qualname: str

    def resolve(self) -> Any:
        """Import the module, and return what the name stands for. Raises ImportError if there is no
        such name; the module itself may raise anything."""
        found: Any = import_module(self.module)
        try:
            for name in self.qualname.split("."):
                found = getattr(found, name)
        except AttributeError as error:
            raise ImportError(f"module {self.module} has no {self.qualname}") from error
        return found


def reference_of(function: Callable[..., Any]) -> Reference:
    """The reference of a function that `demand_importable` accepted."""
    return Reference(function.__module__, function.__qualname__)


def demand_importable(tool: Tool) -> None:
    """Raise ValueError unless another process can import the functions of an isolated tool."""
    named = (("function", tool.function), ("compactor", tool.compactor))
    for what, function in named:
        why = None if function is None else _why_not(function)
        if why:
            raise ValueError(
                f"the {what} of tool {tool.name} runs in a process of its own, which cannot "
                f"import it: {why}"
            )


def _why_not(function: Callable[..., Any]) -> str | None:
    module, name = (getattr(function, a, None) for a in ("__module__", "__qualname__"))
    if not (isinstance(module, str) and isinstance(name, str)):
        return f"{type(function).__name__} objects have no name. Use a function"
    if module == "__main__":
        return "it is in the script that was started. Move it to a module that the script imports"
    if "<" in name:
        return "it is a lambda or inside of a function. Move it to the top level of a module"
    try:
        found = Reference(module, name).resolve()
    except ImportError as error:
        return f"{error}. Assign the tool to the name of its function"
    if found is not function and not (isinstance(found, Tool) and found.function is function):
        return f"{name} in module {module} is another object. Give the function a name of its own"
    if _is_elsewhere(module):
        return f"no file of module {module} is on Python's path under this name"
    return None


def _is_elsewhere(name: str) -> bool:
    """Whether a fresh process would not find this module, or would find another file."""
    spec = _spec_of(name)
    file = getattr(sys.modules[name], "__file__", None)
    return spec is None or (file is not None and spec.origin != file)


def _spec_of(name: str) -> ModuleSpec | None:
    """What a search for a module finds, although the module is already loaded."""
    parent = name.rpartition(".")[0]
    path = getattr(sys.modules.get(parent), "__path__", None)
    if parent and path is None:
        return None
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path)
        if spec is not None:
            return spec
    return None
