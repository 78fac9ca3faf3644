"""The base class of views and entries: immutable, compared and hashed by their fields.

A fold creates new values for every event, so their cost dominates the reading of a log. Values are
msgspec structs: in comparison, replacing a field of a wide named tuple takes eight times as long,
and creating a named tuple four times as long. A store writes values as arrays, in field order.
"""

from dataclasses import fields, is_dataclass
from typing import Any, dataclass_transform

from msgspec import Struct, structs


# `gc=False` is safe: a value refers to older values only, so it cannot be part of a cycle. The
# decorator tells type checkers that subclasses are frozen too.
@dataclass_transform(frozen_default=True)
class Value(Struct, frozen=True, array_like=True, gc=False):
    """The base class of a value, as in `class Place(Value): turn: int; step: int = 0`."""


replace = structs.replace
"""`replace(value, field=new)` returns a copy with the named fields changed."""

fields_of = structs.asdict
"""The fields of a value by name, in order; nested values are not converted."""


def field_names(thing: Any) -> tuple[str, ...]:
    """The field names of a value, an event or a named tuple, in order; () for anything else."""
    if isinstance(thing, Value):
        return thing.__struct_fields__
    if is_dataclass(thing):
        return tuple(field.name for field in fields(thing))
    return getattr(thing, "_fields", ())
