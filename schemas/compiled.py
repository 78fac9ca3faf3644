"""The optional compiled decoder of events: how codec.py uses it, and the programs that it runs.

codec.py decodes every record in Python, with fastavro and msgspec. Where the extension module
`_decoder` is built (_decoder.c, `make accelerate`), codec.py asks it first. It returns the same
event, several times faster, or None; after None, codec.py decodes the record itself. So errors,
their messages and all rare cases have one source, which is Python.

A program is a description of a schema and the classes of its events, as tuples. This file only
makes programs of what it knows to be decoded alike: anything else, such as a logical type or a
field that no class has, leaves the records of this schema to Python.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    from . import _decoder

FORMAT = 1
"""The format of programs. A module that was built for another format is not used."""

Program = tuple[Any, ...]
_LONG_MAX = 2**63 - 1
_PRIMITIVES = {"long": int, "boolean": bool, "bytes": bytes, "string": str}
_KEYS = {
    "record": {"type", "name", "fields"},
    "enum": {"type", "name", "symbols"},
    "array": {"type", "items"},
}


class _Unsupported(Exception):
    """A part of a schema or of a class that has no program."""


class CompiledDecoder:
    """Decodes the records of the schemas that it has learnt."""

    def __init__(self, module: Any) -> None:
        self._decoder: _decoder.Decoder = module.Decoder()
        self._known: set[bytes] = set()
        self.decode = self._decoder.decode
        """`decode(value)`: the event in a record's value, or None if Python has to decode it."""

    def learn(self, head: bytes, cls: type, written: Any, read: Any) -> None:
        """Decode the records of one more schema, if it has a program. See codec.read_as for the
        arguments; `head`: the first 10 bytes of such a record."""
        if head in self._known:
            return
        self._known.add(head)
        program = program_of(cls, written, read or written)
        if program is not None:
            with suppress(ValueError, TypeError):  # a Python whose objects have another layout
                self._decoder.add(head[2:], program)


def compiled_decoder() -> CompiledDecoder | None:
    """A compiled decoder, or None if the module is not built for this Python."""
    try:
        from . import _decoder
    except ImportError:
        return None
    return CompiledDecoder(_decoder) if _decoder.FORMAT == FORMAT else None


def in_words(in_use: bool) -> str:
    """Which decoder a process uses, and why."""
    if in_use:
        return "compiled"
    if compiled_decoder() is not None:
        return "Python, as the setting decoder demands"
    return "Python; the compiled one, which is faster, is not built (docs/install.md)"


def program_of(cls: type, written: Any, read: Any) -> Program | None:
    """The program for events of a class, from parsed schemas: that of the writer and the current
    one. None: such records are decoded in Python."""
    try:
        return _node(_bare(written, {}), _bare(read, {}), cls)
    except _Unsupported:
        return None


def _bare(schema: Any, names: dict[str, Any]) -> Any:
    """A schema without its doc texts, and with every name replaced by the type that it refers to.
    """
    if isinstance(schema, list):
        return [_bare(branch, names) for branch in schema]
    if isinstance(schema, str):
        if schema == "null" or schema in _PRIMITIVES:
            return schema
        if schema not in names:  # or a type that contains itself
            raise _Unsupported(schema)
        return names[schema]
    kind = schema["type"]
    keys = {key for key in schema if key != "doc" and not key.startswith("__")}
    if keys == {"type"}:
        return _bare(kind, names)
    if not isinstance(kind, str) or keys != _KEYS.get(kind):
        raise _Unsupported(kind)
    if kind == "array":
        return {"type": kind, "items": _bare(schema["items"], names)}
    bare = {"type": kind, "name": schema["name"]}
    if kind == "enum":
        bare["symbols"] = schema["symbols"]
    else:
        bare["fields"] = [_bare_field(field, names) for field in schema["fields"]]
    names[schema["name"]] = bare
    return bare


def _bare_field(field: Mapping[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    if not field.keys() <= {"name", "type", "doc", "default"}:
        raise _Unsupported(field["name"])
    return {**field, "type": _bare(field["type"], names)}


def _node(written: Any, read: Any, hint: Any) -> Program:
    """The program of one type: as it was written, as the current schema has it, and as the class
    declares it."""
    if isinstance(written, list):
        if not (isinstance(read, list) and len(written) == len(read) == 2):
            raise _Unsupported("a union")
        if not written[0] == read[0] == "null":
            raise _Unsupported("a union")
        return ("optional", _node(written[1], read[1], _not_none(hint)))
    if isinstance(written, str):
        if written != read:
            raise _Unsupported(written)
        return _primitive(written, hint)
    if not isinstance(read, dict) or written["type"] != read["type"]:
        raise _Unsupported(written["type"])
    if written["type"] == "array":
        if get_origin(hint) is not tuple or get_args(hint)[1:] != (...,):
            raise _Unsupported(hint)
        return ("array", _node(written["items"], read["items"], get_args(hint)[0]))
    if written["name"] != read["name"]:
        raise _Unsupported(written["name"])
    if written["type"] == "enum":
        if hint is not str or not set(written["symbols"]) <= set(read["symbols"]):
            raise _Unsupported(written["name"])
        return ("enum", tuple(written["symbols"]))
    return _record(written, read, hint)


def _not_none(hint: Any) -> Any:
    """T, for T | None."""
    others = [arg for arg in get_args(hint) if arg is not NoneType]
    if get_origin(hint) not in (Union, UnionType) or len(others) != 1 or hint != others[0] | None:
        raise _Unsupported(hint)
    return others[0]


def _primitive(kind: str, hint: Any) -> Program:
    low, high = -_LONG_MAX - 1, _LONG_MAX
    if kind == "long" and get_origin(hint) is Annotated:
        hint, *more = get_args(hint)
        for meta in more:
            if not isinstance(meta, Meta) or meta != Meta(ge=meta.ge, le=meta.le):
                raise _Unsupported(meta)
            low = low if meta.ge is None else max(low, int(meta.ge))
            high = high if meta.le is None else min(high, int(meta.le))
    if hint is not _PRIMITIVES[kind]:
        raise _Unsupported(hint)
    return (kind, low, high) if kind == "long" else (kind,)


def _record(written: Any, read: Any, cls: Any) -> Program:
    if not (isinstance(cls, type) and is_dataclass(cls)) or hasattr(cls, "__post_init__"):
        raise _Unsupported(cls)
    hints = get_type_hints(cls, include_extras=True)
    known = {field["name"]: field for field in read["fields"]}
    if {field.name for field in fields(cls)} != known.keys():
        raise _Unsupported(cls)
    decoded = []
    for field in written["fields"]:
        name = field["name"]
        if name not in known:
            raise _Unsupported(name)
        decoded.append((name, _node(field["type"], known[name]["type"], hints[name])))
    left = known.keys() - {name for name, _ in decoded}
    constants = tuple((name, _default(known[name], hints[name])) for name in sorted(left))
    return ("record", cls, tuple(decoded), constants)


def _default(field: Mapping[str, Any], hint: Any) -> Any:
    """The value of a field that the writer's schema lacks. It is shared, so it is immutable."""
    default = field.get("default", ...)
    if default not in (None, []) and not isinstance(default, (bool, int, str)):
        raise _Unsupported(field["name"])
    try:
        return msgspec.convert(default, hint)
    except msgspec.ValidationError as error:  # bytes are text in a default
        raise _Unsupported(field["name"]) from error
