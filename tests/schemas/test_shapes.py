"""Every .avsc equals its dataclass: names, types, optional fields and defaults."""

import dataclasses
import types
import typing
from typing import Any

import msgspec
import pytest

from foldlog.schemas import codec, enums as words
from foldlog.schemas.codec import BY_NAME, ROWS
from foldlog.schemas.events import EVENT_TYPES, parts
from foldlog.schemas.memory import MEMORY_TYPES
from foldlog.tests.structure.tree import ROOT

PRIMITIVES = {str: "string", int: "long", bytes: "bytes", bool: "boolean"}


def findings(schema: dict, cls: type, namespace: str = "foldlog.v1") -> list[str]:
    """The differences between a record schema and a dataclass."""
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in fields_of(cls)}
    found = []
    if schema["name"] != cls.__name__ or schema.get("namespace", namespace) != namespace:
        found.append(f"{schema['name']} is not {cls.__name__}")
    if list(fields) != [field["name"] for field in schema["fields"]]:
        return [*found, f"{cls.__name__}: other fields, or another order"]
    for field in schema["fields"]:
        at = f"{cls.__name__}.{field['name']}"
        found += _type_findings(field["type"], hints[field["name"]], at)
        default = fields[field["name"]].default
        if _default(field) != (dataclasses.MISSING if default is msgspec.NODEFAULT else default):
            found.append(f"{at}: defaults differ")
    return found


def fields_of(cls: type) -> tuple[Any, ...]:
    """The fields of a dataclass or of a struct of msgspec, with `name` and `default`."""
    if issubclass(cls, msgspec.Struct):
        return msgspec.structs.fields(cls)
    return dataclasses.fields(cls)


def _default(field: dict) -> Any:
    if "default" not in field:
        return dataclasses.MISSING
    return () if field["default"] == [] else field["default"]


def _type_findings(schema: Any, hint: Any, at: str) -> list[str]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        if not isinstance(schema, list) or schema[0] != "null" or len(schema) != 2:
            return [f"{at}: optional, but its schema is not a union with null first"]
        return _type_findings(schema[1], inner[0], at)
    if typing.get_origin(hint) is tuple:
        if not isinstance(schema, dict) or schema["type"] != "array":
            return [f"{at}: a tuple, but its schema is not an array"]
        return _type_findings(schema["items"], typing.get_args(hint)[0], at)
    if isinstance(schema, dict) and schema["type"] == "enum":
        known = [str(word) for word in getattr(words, schema["name"])]
        is_known = hint in (str, getattr(words, schema["name"])) and schema["symbols"] == known
        return [] if is_known else [f"{at}: other words"]
    if isinstance(schema, dict) and schema["type"] == "record":
        return findings(schema, hint)
    if isinstance(schema, str) and hint not in PRIMITIVES:
        return [] if schema.rpartition(".")[2] == hint.__name__ else [f"{at}: not {schema}"]
    return [] if PRIMITIVES.get(hint) == schema else [f"{at}: {hint} is not {schema}"]


@pytest.mark.parametrize("name", BY_NAME)
def test_every_schema_equals_its_dataclass(name):
    assert findings(codec.schema_of(name), BY_NAME[name].cls) == []


def test_every_event_type_has_a_schema_file_and_a_class_of_its_own():
    files = {path.stem for path in (ROOT / "schemas" / "avro").iterdir()}
    assert files == set(BY_NAME) == {row.name for row in ROWS}
    assert len({row.cls for row in ROWS}) == len(ROWS)


def test_S0_8_memory_events_are_not_session_events():
    """Session folds do not read memory events, so these do not change the version of the stores."""
    assert not {row.name for row in MEMORY_TYPES} & {row.name for row in EVENT_TYPES}
    assert set(BY_NAME) == {row.name for row in (*EVENT_TYPES, *MEMORY_TYPES)}
    assert not any(row.is_input or row.must_understand for row in MEMORY_TYPES)


def test_S2_1_the_event_names_of_the_specification_exist():
    names = (
        "MESSAGE_RECEIVED LLM_CALLED GEN_START GEN_CHUNK GEN_COMPLETE GEN_SENT GEN_RESUMED "
        "TOOL_INVOKED TOOL_RESULT TOOL_FAILED_UNCERTAIN SESSION_TERMINATED"
    )
    assert set(names.split()) <= set(BY_NAME)


def test_no_event_has_a_timestamp_or_a_random_id():
    """The record has the position and the time. Ids are given by the caller or derived from meaning
    (law 3)."""
    for row in ROWS:
        names = {field.name for field in dataclasses.fields(row.cls)}
        assert not names & {"id", "uuid", "event_id", "timestamp", "ts", "session_id"}, row.name


@pytest.mark.parametrize(
    "change",
    [
        lambda schema: schema["fields"].pop(),
        lambda schema: schema["fields"].reverse(),
        lambda schema: schema["fields"][0].update(type="string"),
        lambda schema: schema["fields"][4].update(type=["null", "string"]),
        lambda schema: schema["fields"][0].update(default=1),
        lambda schema: schema["fields"][4]["type"]["symbols"].append("maybe"),
        lambda schema: schema["fields"][-1].pop("default"),
    ],
)
def test_a_planted_difference_is_found(change):
    schema = codec.schema_of("TOOL_RESULT")
    assert findings(schema, BY_NAME["TOOL_RESULT"].cls) == []
    change(schema)
    assert findings(schema, BY_NAME["TOOL_RESULT"].cls)


def test_parts_have_the_same_schema_in_every_event():
    seen: dict[str, Any] = {}

    def walk(schema: Any) -> None:
        if isinstance(schema, list):
            for branch in schema:
                walk(branch)
        elif isinstance(schema, dict):
            if schema.get("type") in ("record", "enum") and "name" in schema:
                shape = repr(schema)
                assert seen.setdefault(schema["name"], shape) == shape, schema["name"]
            for inner in (schema.get("type"), schema.get("items")):
                walk(inner if isinstance(inner, dict | list) else None)
            for field in schema.get("fields", ()):
                walk(field["type"])

    for row in ROWS:
        walk(codec.schema_of(row.name)["fields"] and codec.schema_of(row.name))
    assert {cls for cls in seen if hasattr(parts, cls)} >= {"Body", "BlobRef", "Usage"}
