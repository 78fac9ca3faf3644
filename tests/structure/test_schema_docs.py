"""Every record and field of every .avsc is documented, because the schema is the contract."""

import json
from collections.abc import Iterator

import pytest

from foldlog.tests.structure.tree import ROOT, all_paths, demand_none


def _undocumented(schema: object, at: str) -> Iterator[str]:
    """Records and fields without a `doc`, however deeply they are nested."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _undocumented(branch, at)
    elif isinstance(schema, dict):
        if schema.get("type") == "record":
            at = f"{at}: {schema.get('name')}"
            if not str(schema.get("doc", "")).strip():
                yield f"{at} has no doc"
        for field in schema.get("fields", []):
            if not str(field.get("doc", "")).strip():
                yield f"{at}.{field['name']} has no doc"
            yield from _undocumented(field["type"], f"{at}.{field['name']}")
        for inner in ("type", "items", "values"):
            if isinstance(schema.get(inner), dict | list):
                yield from _undocumented(schema[inner], at)


def test_constraint_3_every_schema_field_is_documented():
    paths = [p for p in all_paths() if p.startswith("schemas/") and p.endswith(".avsc")]
    assert paths, "no schema found: did schemas/ move?"
    demand_none(
        finding for path in paths for finding in _undocumented(
            json.loads((ROOT / path).read_text(encoding="utf-8")), path
        )
    )


FIELD = {"name": "a", "type": "string", "doc": "why"}
RECORD = {"type": "record", "name": "R", "doc": "what", "fields": [FIELD]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (RECORD, 0),
        ({**RECORD, "doc": " "}, 1),
        ({**RECORD, "fields": [{"name": "a", "type": "string"}]}, 1),
        ({**RECORD, "fields": [{**FIELD, "type": {**RECORD, "doc": ""}}]}, 1),
        ({**RECORD, "fields": [{**FIELD, "type": ["null", {"type": "array", "items":
            {**RECORD, "fields": [{"name": "b", "type": "int"}]}}]}]}, 1),
        ({**RECORD, "fields": [{**FIELD, "type": {"type": "map", "values":
            {**RECORD, "doc": ""}}}]}, 1),
        ({**RECORD, "fields": [{**FIELD, "type": {"type": "enum", "name": "E", "symbols": ["X"]}}]},
         0),
    ],
)
def test_planted_undocumented_schemas_are_found(schema, expected):
    assert len(list(_undocumented(schema, "x.avsc"))) == expected
