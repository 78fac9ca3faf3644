"""Shapes: every schema that ever wrote a record, with one golden record of each.

A shape is a file of schemas/history/, named TYPE.vN.json after its event type and number: the full
schema, and a record as it lies in the log with the fields it holds. Shapes are added, never edited:
the golden record begins with the fingerprint of its schema, so an edit of one betrays itself.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import avro.schema
import msgspec
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

from foldlog.schemas import codec
from foldlog.schemas.codec import BY_NAME
from foldlog.tests.schemas.arbitrary import example_of
from foldlog.tests.structure.tree import ROOT

HISTORY = ROOT / "schemas" / "history"
NAME = re.compile(r"([A-Z_]+)\.v([1-9][0-9]*)\.json")


class Shape(NamedTuple):
    """One file of history/. `value`: the golden record; `event`: its fields, bytes as base64."""

    type: str
    version: int
    schema: dict
    value: bytes
    event: dict

    @property
    def fingerprint(self) -> str:
        """Hex, as in the head of a record."""
        return codec.fingerprint_of(self.schema).hex()


def shapes(directory: Path = HISTORY) -> list[Shape]:
    """Every shape, by type and number."""
    read = [shape_in(path) for path in directory.iterdir()]
    return sorted(read, key=lambda shape: (shape.type, shape.version))


def shape_in(path: Path) -> Shape:
    """The shape in a file."""
    held, named = json.loads(path.read_text("utf-8")), NAME.fullmatch(path.name)
    assert named is not None, f"{path.name} is not named TYPE.vN.json"
    assert held["type"] == named[1] and held["version"] == int(named[2]), path.name
    golden = held["golden"]
    return Shape(
        held["type"], held["version"], held["schema"], bytes.fromhex(golden["hex"]), golden["event"]
    )


def current(name: str) -> Shape:
    """The shape that the code writes now, as its next number would have it."""
    event = example_of(BY_NAME[name].cls)
    number = 1 + max((s.version for s in shapes() if s.type == name), default=0)
    return Shape(name, number, codec.schema_of(name), codec.encode(event), plain(event))


def plain(event: Any) -> dict:
    """The fields of an event as JSON has them; bytes as base64."""
    return json.loads(msgspec.json.encode(event))


def bare(schema: Any) -> Any:
    """A schema without its docs, which may always be improved."""
    if isinstance(schema, list):
        return [bare(branch) for branch in schema]
    if isinstance(schema, dict):
        return {name: bare(value) for name, value in schema.items() if name != "doc"}
    return schema


def incompatible(old: dict, new: dict) -> list[str]:
    """Why two shapes of a type can not live in one log: each must read what the other wrote."""
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
    """The text of a shape's file."""
    held = {
        "type": shape.type,
        "version": shape.version,
        "fingerprint": shape.fingerprint,
        "schema": shape.schema,
        "golden": {"hex": shape.value.hex(), "event": shape.event},
    }
    return json.dumps(held, indent=1, ensure_ascii=False) + "\n"
