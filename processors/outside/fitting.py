"""Adapts third-party schemas to the Messages API.

If one schema does not fit, the API rejects every request of the agent. The API allows no
alternatives (such as oneOf) at the top of a schema, and only certain parameter names. So this file
merges the properties of the alternatives as optional properties, and replaces invalid parameter
names. The server gets its own names and validates its arguments itself. Pure and shallow: the
schema of a single parameter is not examined.
"""

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

ALTERNATIVES = ("allOf", "anyOf", "oneOf")
KEY_CHARS_MAX = 64
KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


class AdaptedSchema(NamedTuple):
    """A schema for the API.

    names: (our name, the server's name) of each renamed parameter.
    left_out: the alternatives that were removed from the schema.
    """

    schema: Any
    names: tuple[tuple[str, str], ...] = ()
    left_out: Mapping[str, Any] = {}


def adapt_schema(schema: Any) -> AdaptedSchema:
    """The schema with valid names and without alternatives. A value that is not a schema stays
    unchanged.
    """
    if not isinstance(schema, Mapping):
        return AdaptedSchema(schema)
    left_out = {word: schema[word] for word in ALTERNATIVES if word in schema}
    known = schema.get("properties")
    if not isinstance(known, Mapping | None):
        return AdaptedSchema(schema)
    properties, required = dict(known or {}), _texts(schema.get("required"))
    for word, branch in _branches(left_out):
        more = branch.get("properties")
        for name, schema_of_it in more.items() if isinstance(more, Mapping) else ():
            properties.setdefault(name, schema_of_it)
        required += _texts(branch.get("required")) if word == "allOf" else []
    ours = _named(properties)
    if not left_out and all(name == own for name, own in ours.items()):
        return AdaptedSchema(schema)
    fits = {word: value for word, value in schema.items() if word not in left_out}
    fits["properties"] = {ours[name]: value for name, value in properties.items()}
    if required:
        fits["required"] = [ours.get(name, name) for name in dict.fromkeys(required)]
    renamed = sorted((own, name) for name, own in ours.items() if own != name)
    return AdaptedSchema(fits, tuple(renamed), left_out)


def _branches(alternatives: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for word, branches in alternatives.items():
        for branch in branches if isinstance(branches, list | tuple) else ():
            if isinstance(branch, Mapping):
                yield word, branch


def _texts(given: Any) -> list[str]:
    many = given if isinstance(given, list | tuple) else ()
    return [text for text in many if isinstance(text, str)]


def _named(properties: Mapping[Any, Any]) -> dict[Any, str]:
    """The name that the model sees for each parameter. It is the server's name if that is valid."""
    names = {name: name for name in properties if isinstance(name, str) and KEY.fullmatch(name)}
    taken = set(names)
    for name in sorted(properties.keys() - names.keys(), key=str):
        own = _UNSAFE.sub("_", str(name))[:KEY_CHARS_MAX] or "_"
        if own in taken:
            mark = sha256(str(name).encode("utf-8", "replace")).hexdigest()[:8]
            own = f"{own[: KEY_CHARS_MAX - 9]}_{mark}"
        taken.add(own)
        names[name] = own
    return names
