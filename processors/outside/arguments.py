"""Checks the arguments of a third-party tool for obvious errors,
before a person is asked for approval.

The server itself validates its arguments completely. This check is deliberately small, because it
runs with a third-party schema in the thread that makes decisions. It follows no references, tries
no alternatives and matches no patterns, so it takes as long as one walk through the arguments.
Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..tools.arguments import object_of

ERRORS_SHOWN_MAX = 5  # a model needs only the first few to correct a call
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}


class OutsideArguments(NamedTuple):
    """The arguments of a third-party tool, used in place of `Arguments`."""

    schema: Mapping[str, Any]

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Parse the arguments into the form in which they are sent. Raises ValueError, whose text
        lists the first errors that were found."""
        found = object_of(raw or b"{}")
        reasons = []
        for reason in _wrong(found, self.schema, "arguments"):
            reasons.append(reason)
            if len(reasons) == ERRORS_SHOWN_MAX:
                break
        if reasons:
            raise ValueError("; ".join(reasons))
        return found


def _wrong(value: Any, schema: Any, where: str) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    allowed = schema.get("type")
    words = [allowed] if isinstance(allowed, str) else allowed
    if isinstance(words, list) and not any(_is(value, word) for word in words):
        yield f"{where}: must be {' or '.join(str(word) for word in words)}"[:200]
        return
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        yield f"{where}: must be one of {', '.join(repr(c) for c in choices[:10])}"[:200]
    if isinstance(value, dict):
        yield from _wrong_object(value, schema, where)
    elif isinstance(value, list) and "prefixItems" not in schema:
        for n, item in enumerate(value):
            yield from _wrong(item, schema.get("items"), f"{where}.{n}")


def _wrong_object(value: dict, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in value:
            yield f"{where}: {name[:80]} is missing"
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    for name, item in value.items():
        if name in properties:
            yield from _wrong(item, properties[name], f"{where}.{name[:80]}")
        elif closed:
            yield f"{where}: there is no {name[:80]}"


def _is(value: Any, word: Any) -> bool:
    types = _TYPES.get(word) if isinstance(word, str) else None
    if types is None:
        return True  # a type of another JSON Schema draft: the server checks it
    if isinstance(value, bool):
        return word == "boolean"
    if word == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, types)
