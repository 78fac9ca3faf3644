"""Hypothesis strategies for events, derived from their schemas: any text, any bytes, any long
within its bounds."""

from dataclasses import fields
from functools import cache
from typing import Any, get_args, get_type_hints

from hypothesis import strategies as st
from msgspec import Meta

from foldlog.schemas import codec, facts
from foldlog.schemas.codec import BY_CLASS, BY_NAME, ROWS
from foldlog.schemas.events import parts

LONG_MAX = 2**63 - 1
# Avro text is UTF-8, which has no bytes for half of a surrogate pair.
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
BYTES = st.one_of(st.binary(max_size=60), TEXTS.map(str.encode))
RECORDS = {name: getattr(parts, name) for name in ("BlobRef", "Body", "Budget", "Usage")}
RECORDS |= {name: getattr(parts, name) for name in ("ProposedCall", "Trigger", "Try")}
RECORDS |= {"AgentDigest": parts.AgentDigest}
RECORDS |= {"ModelUsage": facts.ModelUsage, "WaitingCall": facts.WaitingCall}


def longs(low: int = -LONG_MAX - 1, high: int = LONG_MAX) -> st.SearchStrategy[int]:
    """A strategy for numbers between two bounds, mostly small ones."""
    return st.one_of(st.integers(max(low, -3), 300), st.integers(low, high))


def bounds_of(hint: Any) -> Meta | None:
    """The bounds in the type of a field, or None if it has none."""
    parts = [hint, *get_args(hint), *(inner for arg in get_args(hint) for inner in get_args(arg))]
    return next((part for part in parts if isinstance(part, Meta)), None)


def values(schema: Any) -> st.SearchStrategy[Any]:
    """Any value of an Avro schema, in the form in which foldlog's dataclasses hold it."""
    if isinstance(schema, list):
        return st.one_of(*(values(branch) for branch in schema))
    if isinstance(schema, str):
        plain = {"null": st.none(), "string": TEXTS, "long": longs(), "bytes": BYTES}
        plain["boolean"] = st.booleans()
        return plain[schema] if schema in plain else _named(schema)
    match schema["type"]:
        case "enum":
            return st.sampled_from(schema["symbols"])
        case "array":
            return st.lists(values(schema["items"]), max_size=3).map(tuple)
        case "record":
            _SEEN[schema["name"]] = schema
            return _record(schema, RECORDS[schema["name"]])
    return values(schema["type"])


_SEEN: dict[str, dict] = {}


def _named(name: str) -> st.SearchStrategy[Any]:
    return values(_SEEN[name.rpartition(".")[2]])


def _record(schema: dict, cls: type) -> st.SearchStrategy[Any]:
    hints, named = get_type_hints(cls, include_extras=True), {}
    for field in schema["fields"]:
        bounds, kind = bounds_of(hints[field["name"]]), field["type"]
        if bounds is None or "long" not in kind:
            named[field["name"]] = values(kind)
        else:
            number = longs(bounds.ge, bounds.le)
            named[field["name"]] = number if kind == "long" else st.none() | number
    return st.builds(cls, **named)


@cache
def events_of(name: str) -> st.SearchStrategy[Any]:
    """A strategy for any events of one type."""
    schema = codec.schema_of(name)
    return _record(schema, BY_NAME[name].cls)


def any_event() -> st.SearchStrategy[Any]:
    """A strategy for any events of any type."""
    return st.sampled_from([row.name for row in ROWS]).flatmap(events_of)


def example_of(cls: type) -> Any:
    """One event or fact of a class with every field set. It is always the same one, for golden
    records."""
    if cls in facts.BY_CLASS:
        name = facts.BY_CLASS[cls].name
        return _example(facts.schema_of(name), cls, name.lower())
    row = BY_CLASS[cls]
    return _example(codec.schema_of(row.name), cls, row.name.lower())


def names_of(cls: Any) -> list[str]:
    """The names of the fields of a class of events or facts, in order."""
    return list(getattr(cls, "__struct_fields__", ())) or [field.name for field in fields(cls)]


def _example(schema: dict, cls: type, label: str) -> Any:
    assert names_of(cls) == [field["name"] for field in schema["fields"]]
    values_by_name = {}
    for number, field in enumerate(schema["fields"], 1):
        values_by_name[field["name"]] = _one(field["type"], f"{label}.{field['name']}", number)
    return cls(**values_by_name)


def _one(schema: Any, label: str, number: int) -> Any:
    if isinstance(schema, list):
        return _one(schema[-1], label, number)  # null is the first branch everywhere
    if isinstance(schema, str):
        plain = {"string": f"{label} ü", "long": number * 1001, "boolean": True}
        plain["bytes"] = f"{label} \x00\xff".encode("latin-1")
        if schema in plain:
            return plain[schema]
        return _one(_SEEN[schema.rpartition(".")[2]], label, number)
    match schema["type"]:
        case "enum":
            return schema["symbols"][-1]
        case "array":
            return tuple(_one(schema["items"], f"{label}.{n}", number + n) for n in (1, 2))
        case "record":
            _SEEN[schema["name"]] = schema
            return _example(schema, RECORDS[schema["name"]], label)
    raise AssertionError(schema)
