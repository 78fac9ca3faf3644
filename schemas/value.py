"""Values: what views and entries are made of. Immutable, compared and hashed by their fields.

A fold makes new values from old ones for every event of every log: the inner loop of all reading.
They are msgspec structs, because a named tuple takes eight times as long to replace a field of a
wide one, and four times as long to make one. A store writes them as arrays, in field order.
"""

from dataclasses import fields, is_dataclass
from typing import Any, dataclass_transform

from msgspec import Struct, structs


# No gc: a value is made of older values only, so none can be part of a cycle. The decorator tells
# type checkers that subclasses are frozen too.
@dataclass_transform(frozen_default=True)
class Value(Struct, frozen=True, array_like=True, gc=False):
    """The base of a value: class Place(Value): turn: int; step: int = 0."""


replace = structs.replace
"""replace(value, field=new): the same value but for the fields named."""

fields_of = structs.asdict
"""The fields of a value by name, in order; values inside stay as they are."""


def field_names(thing: Any) -> tuple[str, ...]:
    """The names of the fields of a value, an event or a named tuple, in order; of others none."""
    if isinstance(thing, Value):
        return thing.__struct_fields__
    if is_dataclass(thing):
        return tuple(field.name for field in fields(thing))
    return getattr(thing, "_fields", ())
