"""Generates the reference pages: settings, commands of `foldlog`, and the public Python API.

The text comes from docstrings and help texts: edit these, then run `make docs`.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from textwrap import dedent
from types import ModuleType

import click

import foldlog
import foldlog.testing
from foldlog.cli.__main__ import COMMANDS, foldlog as root_command
from foldlog.log import settings as of_installation
from foldlog.testing import plugin


def settings() -> list[tuple[str, ...]]:
    """Rows: setting, environment variables, type, default, meaning."""
    (declared,) = ast.parse(inspect.getsource(of_installation.Settings)).body
    rows = []
    for field, doc in _documented_fields(declared):
        name = field.target.id
        row = of_installation.ROWS.get(name)
        if name != "channels" and row is None:
            continue  # derived, not a separate setting
        meaning, _, default = doc.partition("Default: ")
        default = default.rstrip(".") or _default(field, of_installation)
        kind = ast.unparse(_bare(field.annotation)).removesuffix(" | None")
        bounds = row.bounds if row else None
        kind = f"{kind}, {bounds[0]:,} to {bounds[1]:,}" if bounds else f"`{kind}`"
        variables = " or ".join(f"`{variable}`" for variable in row.variables) if row else ""
        where = variables or "in the file only"
        rows.append((f"`{name}`", where, kind, _linked(default), _linked(meaning)))
    return rows


def _linked(text: str) -> str:
    """The text on one line, with links to the pages of docs/ that it names."""
    return re.sub(r"docs/([a-z-]+\.md)", r"[\1](../\1)", " ".join(text.split()))


def _documented_fields(declared: ast.ClassDef) -> Iterator[tuple[ast.AnnAssign, str]]:
    """The public fields of a class, each with the docstring after it (empty if there is none)."""
    for field, after in zip(declared.body, [*declared.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and not field.target.id.startswith("_"):
            documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            yield field, inspect.cleandoc(after.value.value) if documented else ""


def _default(field: ast.AnnAssign, module: object) -> str:
    if field.value is None:
        return ""
    source = ast.unparse(field.value)
    empty = {"None": "", "''": "", "()": "", "field(default_factory=dict)": ""}
    if source in empty:
        return empty[source] or "none"
    value = eval(source, vars(module))
    return f"{value:,}" if isinstance(value, int) else f"`{value}`"


def commands() -> str:
    """Every command under its heading: usage, help, arguments and options."""
    parts, heading = [_command(root_command, "foldlog", 2)], None
    for named in COMMANDS:
        if named.heading != heading:
            heading = named.heading
            parts.append(f"## {heading}\n")
        context = click.Context(root_command, info_name="foldlog")
        command = root_command.get_command(context, named.name)
        parts.append(_command(command, f"foldlog {named.name}", 3))
    return "\n".join(parts)


def _command(command: click.Command, path: str, depth: int) -> str:
    context = click.Context(command, info_name=path, **command.context_settings)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    lines = [f"{'#' * depth} {path}", "", f"`{usage}`", "", _prose(command.help or "")]
    rows = [
        record for parameter in command.get_params(context)
        if (record := parameter.get_help_record(context)) and "--help" not in record[0]
    ]
    if rows:
        lines += ["", "| option | meaning |", "|---|---|"]
        lines += [f"| `{_cell(option)}` | {_cell(text)} |" for option, text in rows]
    parts = ["\n".join(lines) + "\n"]
    if isinstance(command, click.Group) and command is not root_command:
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            parts.append(_command(inner, f"{path} {name}", depth + 1))
    return "\n".join(parts)


def _prose(text: str) -> str:
    """Help text as Markdown; \\b marks a paragraph whose line breaks are kept."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    shown = []
    for paragraph in paragraphs:
        if paragraph.startswith("\b\n"):
            shown.append("```text\n" + paragraph.removeprefix("\b\n") + "\n```")
        else:
            shown.append("\n".join(_items(paragraph)).replace("<", "\\<"))
    return "\n\n".join(shown)


_ITEM = re.compile(r"`?(\w+)`?((?:, `?\w+`?)*): ")


def _items(paragraph: str) -> list[str]:
    """A paragraph on one line, or as a Markdown list if its lines are items, "name: meaning"."""
    lines = paragraph.split("\n")
    if not all(_ITEM.match(line) or line.startswith("    ") for line in lines):
        return [" ".join(paragraph.split())]
    items = re.sub(r"\n {4,}", " ", paragraph).split("\n")
    return [f"- {item}" for item in items]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "&#124;").replace("<", "&lt;")


# Classes that users get from functions and methods, and methods that only the package calls.
NOT_CONSTRUCTED = {
    "AgentRun", "AsgiApp", "AsyncConnection", "AsyncReply", "AsyncSession", "AsyncStream",
    "Connection", "Reply", "RunReply", "Session", "Stream",
}
OF_THE_PACKAGE = {
    "AgentRun": ("continue_for", "close", "demand_complete"),
    "ModelRequest": ("of",),
    "Reply": ("offer", "pump", "poll_answer", "no_answer_yet", "settle"),
    "Session": ("fold",),
    "Stream": ("offer", "pump", "take", "is_idle", "dropping"),
}


def python() -> str:
    """Every name that `foldlog` exports: its signature, docstring and public methods."""
    return _names(foldlog)


def testing() -> str:
    """The fixture and every name that `foldlog.testing` exports."""
    made = _tree(plugin.MakeRun.__call__)
    fixture = _entry("## foldlog_agent", _call("foldlog_agent", made), ast.get_docstring(made))
    return f"{fixture}\n{_names(foldlog.testing)}"


def _names(package: ModuleType) -> str:
    parts = []
    for name in package.__all__:
        found = getattr(package, name)
        if inspect.isclass(found):
            parts.append(_class(name, found))
        elif inspect.isfunction(found):
            tree = _tree(found)
            parts.append(_entry(f"## {name}", _call(name, tree), found.__doc__))
        else:  # a tool: its description is the docstring that the model reads
            tree = _tree(found.function)
            parts.append(_entry(f"## {name}", f"tool {_call(name, tree)}", found.description))
    return "\n".join(parts)


def _tree(found: object) -> ast.stmt:
    (tree,) = ast.parse(dedent(inspect.getsource(found))).body
    return tree


def _class(name: str, found: type) -> str:
    tree = _tree(found)
    bases = [ast.unparse(base) for base in tree.bases]
    methods = list(_methods(found, tree))
    init = next((each for each in methods if each.name == "__init__"), None)
    fields = list(_documented_fields(tree)) if init is None else []
    if issubclass(found, Enum):
        call = f"class {name}({', '.join(bases)})  # {', '.join(map(repr, map(str, found)))}"
    elif name in NOT_CONSTRUCTED:
        public = [base for base in bases if base in foldlog.__all__]
        call = f"class {name}" + (f"({', '.join(public)})" if public else "")
    elif init is not None:
        call = _call(name, init)
    elif fields:
        keyword_only = any("kw_only=True" in ast.unparse(each) for each in tree.decorator_list)
        words = ["*"] if keyword_only else []
        words += [word for field, _ in fields if "init=False" not in (word := _field(field))]
        call = _wrapped(name, words)
    else:
        call = f"class {name}({', '.join(bases)})"
    parts = [_entry(f"## {name}", call, ast.get_docstring(tree))]
    if any(doc for _, doc in fields):
        parts.append("".join(
            f"- `{field.target.id}`: {_linked(doc)}\n" for field, doc in fields if doc
        ))
    for method in methods:
        if method.name.startswith("_") or method.name in OF_THE_PACKAGE.get(name, ()):
            continue
        marks = {ast.unparse(mark) for mark in method.decorator_list}
        is_property = "property" in marks
        returns = f": {_type(method.returns)}" if method.returns else ""
        shown = f"{name}.{method.name}{returns}" if is_property else _call(
            f"{name}.{method.name}", method, bound="staticmethod" not in marks
        )
        parts.append(_entry(f"### {name}.{method.name}", shown, ast.get_docstring(method)))
    return "\n".join(parts)


def _methods(found: type, tree: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The methods that a class declares. One that passes its arguments to a method of another
    class has the parameters of that method, and without a body of its own also its docstring.
    """
    for node in tree.body:
        is_method = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        name = node.name if is_method else _assigned(node)
        target = getattr(vars(found).get(name), "__wrapped__", None)
        if target is None and is_method:
            yield node
        elif target is not None:
            shown = _tree(target)
            shown.name = name
            if is_method:
                shown.body, shown.returns, shown.decorator_list = node.body, node.returns, []
            yield shown


def _assigned(node: ast.stmt) -> str:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return ""


def _field(field: ast.AnnAssign) -> str:
    """A field as an argument, with its default."""
    default = f" = {ast.unparse(field.value)}" if field.value else ""
    return f"{ast.unparse(field.target)}: {ast.unparse(_bare(field.annotation))}{default}"


def _bare(annotation: ast.expr) -> ast.expr:
    """The type of a field, without metadata that code reads."""
    match annotation:
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[bare, *_])):
            return bare
    return annotation


def _type(annotation: ast.expr) -> str:
    """An annotation, without the quotes of a forward reference."""
    return ast.unparse(annotation).strip("'")


def _call(name: str, function: ast.FunctionDef, bound: bool = True) -> str:
    """The signature of a function, one argument per line if it is long."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + given.defaults
    words = [_argument(each, value) for each, value in zip(positional, defaults, strict=True)]
    if given.posonlyargs:
        words.insert(len(given.posonlyargs), "/")
    if bound and words and words[0] in ("self", "cls"):
        words = words[1:]
    if given.vararg:
        words.append(f"*{_argument(given.vararg, None)}")
    elif given.kwonlyargs:
        words.append("*")
    words += [
        _argument(each, value)
        for each, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg:
        words.append(f"**{_argument(given.kwarg, None)}")
    returns = f" -> {_type(function.returns)}" if function.returns else ""
    if function.name == "__init__":
        returns = ""
    return _wrapped(name, words, returns)


def _argument(each: ast.arg, value: ast.expr | None) -> str:
    shown = each.arg + (f": {_type(each.annotation)}" if each.annotation else "")
    if value is None:
        return shown
    return f"{shown} = {ast.unparse(value)}" if each.annotation else f"{shown}={ast.unparse(value)}"


def _wrapped(name: str, words: list[str], returns: str = "") -> str:
    flat = f"{name}({', '.join(words)}){returns}"
    if len(flat) <= 88:
        return flat
    return f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){returns}"


def _entry(heading: str, call: str, doc: str | None) -> str:
    prose = _prose(doc or "")
    return f"{heading}\n\n```python\n{call}\n```\n\n{prose}\n"
