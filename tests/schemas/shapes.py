"""Shapes: every schema that ever wrote a record, each with one golden record.

A shape is a file of schemas/history/ that is named TYPE.vN.json, after its event type and number.
It has the full schema, and one record with its bytes in the log and its fields. Shapes are added,
never edited: the golden record begins with the fingerprint of its schema, so an edit is detected.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import avro.schema
import msgspec
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

from foldlog.schemas import codec, facts
from foldlog.schemas.codec import BY_NAME
from foldlog.tests.schemas.arbitrary import example_of
from foldlog.tests.structure.tree import ROOT

HISTORY = ROOT / "schemas" / "history"
FACT_HISTORY = ROOT / "schemas" / "history_facts"
NAME = re.compile(r"([A-Z_]+)\.v([1-9][0-9]*)\.json")


class Shape(NamedTuple):
    """One file of history/. `value`: the golden record; `event`: the record's fields, with bytes as
    base64."""

    type: str
    version: int
    schema: dict
    value: bytes
    event: dict

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the schema in hex, as in the head of a record."""
        return codec.fingerprint_of(self.schema).hex()


def shapes(directory: Path = HISTORY) -> list[Shape]:
    """Every shape, in the order of type and number."""
    found = [shape_in(path) for path in directory.iterdir()]
    return sorted(found, key=lambda shape: (shape.type, shape.version))


def shape_in(path: Path) -> Shape:
    """Reads the shape from a file."""
    content, name = json.loads(path.read_text("utf-8")), NAME.fullmatch(path.name)
    assert name is not None, f"{path.name} is not named TYPE.vN.json"
    kind, version, golden = content["type"], content["version"], content["golden"]
    assert (kind, version) == (name[1], int(name[2])), path.name
    return Shape(
        kind, version, content["schema"], bytes.fromhex(golden["hex"]), golden["event"]
    )


def current(name: str) -> Shape:
    """The shape of the records that the code writes now, with the next number."""
    event = example_of(BY_NAME[name].cls)
    number = 1 + max((s.version for s in shapes() if s.type == name), default=0)
    return Shape(name, number, codec.schema_of(name), codec.encode(event), plain(event))


def current_fact(name: str) -> Shape:
    """The same of a type of facts."""
    fact = example_of(facts.BY_NAME[name].cls)
    number = 1 + max((s.version for s in shapes(FACT_HISTORY) if s.type == name), default=0)
    value, _ = facts.encode_fact(fact)
    return Shape(name, number, facts.schema_of(name), value, plain(fact))


def plain(event: Any) -> dict:
    """The fields of an event as JSON values, with bytes as base64."""
    return json.loads(msgspec.json.encode(event))


def bare(schema: Any) -> Any:
    """A schema without its doc texts, which may change."""
    if isinstance(schema, list):
        return [bare(branch) for branch in schema]
    if isinstance(schema, dict):
        return {name: bare(value) for name, value in schema.items() if name != "doc"}
    return schema


def incompatible(old: dict, new: dict) -> list[str]:
    """The reasons why a reader with one of two shapes of a type cannot read records of the other.
    Both shapes occur in one log."""
    found = []
    for reader, writer, what in ((new, old, "new code reads old"), (old, new, "old reads new")):
        result = ReaderWriterCompatibilityChecker().get_compatibility(
            avro.schema.parse(json.dumps(reader)), avro.schema.parse(json.dumps(writer))
        )
        if result.compatibility is not SchemaCompatibilityType.compatible:
            found.append(f"{what}: {'; '.join(sorted(result.messages)) or 'incompatible'}")
    if codec.fingerprint_of(old) == codec.fingerprint_of(new) and bare(old) != bare(new):
        found.append("the fingerprint does not see the difference: a reader could pick either")
    return found


def to_file(shape: Shape) -> str:
    """The content of a shape's file."""
    content = {
        "type": shape.type,
        "version": shape.version,
        "fingerprint": shape.fingerprint,
        "schema": shape.schema,
        "golden": {"hex": shape.value.hex(), "event": shape.event},
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
