"""Old records stay readable: every shape in history/ can be read, and no change may break a
shape."""

import copy
import io
import json
from itertools import combinations

import pytest
from fastavro import parse_schema, schemaless_writer

from foldlog.schemas import codec, events as ev
from foldlog.schemas.codec import (
    BY_NAME,
    HEAD_BYTES,
    MAGIC,
    decode,
    digest,
    encode,
    read_as,
    reader_of,
)
from foldlog.tests.schemas.arbitrary import example_of
from foldlog.tests.schemas.shapes import HISTORY, Shape, bare, current, incompatible, plain, shapes

SHAPES = shapes()
HOW = "run `python -m foldlog.tests.schemas.record_shape` and commit the new file"


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.type}.v{shape.version}")
def test_every_shape_in_history_can_still_be_read(shape):
    assert shape.value[:HEAD_BYTES].hex() == f"c301{shape.fingerprint}", "an edited shape"
    event = plain(decode(shape.value))
    assert {name: event[name] for name in shape.event} == shape.event


@pytest.mark.parametrize("name", BY_NAME)
def test_the_code_writes_the_newest_shape_in_history(name):
    known = [shape for shape in SHAPES if shape.type == name]
    assert [shape.version for shape in known] == list(range(1, len(known) + 1)), HOW
    newest = known[-1]
    assert bare(newest.schema) == bare(codec.schema_of(name)), f"{name} has a new shape: {HOW}"
    assert encode(example_of(BY_NAME[name].cls)) == newest.value


def test_no_two_full_schemas_share_a_fingerprint():
    seen: dict[str, Shape] = {}
    for shape in [*SHAPES, *map(current, BY_NAME)]:
        other = seen.setdefault(shape.fingerprint, shape)
        assert other.type == shape.type and bare(other.schema) == bare(shape.schema), (
            f"{shape.type}: canonical form does not see this change, {HOW} after renaming the field"
        )


def test_every_shape_of_a_type_reads_every_other():
    for one, other in combinations([*SHAPES, *map(current, BY_NAME)], 2):
        if one.type == other.type:
            assert incompatible(one.schema, other.schema) == [], one.type


def test_history_contains_only_shapes():
    assert {path.suffix for path in HISTORY.iterdir()} == {".json"}
    assert {shape.type for shape in SHAPES} == set(BY_NAME)


def test_law_8_the_digest_of_a_logged_decision_never_changes():
    """GEN_START contains the digest. If the digest changed, a new fold would ignore every old
    claim."""
    first = next(shape for shape in SHAPES if (shape.type, shape.version) == ("LLM_CALLED", 1))
    assert digest(decode(first.value)).hex() == "139916a037adb0a7"


# -- the checks can fail ---------------------------------------------------------------------------


def field(schema: dict, name: str) -> dict:
    return next(field for field in schema["fields"] if field["name"] == name)


def changed(name: str, change) -> tuple[dict, dict]:
    old = codec.schema_of(name)
    new = copy.deepcopy(old)
    change(new)
    return old, new


NEW = {"name": "new", "type": "string", "doc": "x"}
REFUSED = {
    "a new field without default": lambda s: s["fields"].append(NEW),
    "a field without default is removed": lambda s: s["fields"].pop(0),
    "a type changed": lambda s: field(s, "turn").update(type="string"),
    "a field was renamed": lambda s: field(s, "turn").update(name="turn_number"),
    "a word is removed": lambda s: field(s, "outcome")["type"]["symbols"].pop(),
    "a word is added": lambda s: field(s, "outcome")["type"]["symbols"].append("maybe"),
    "null is allowed now": lambda s: field(s, "turn").update(type=["null", "long"]),
    "an edit that the fingerprint does not see": lambda s: field(s, "turn").update(default=1),
    "a logical type": lambda s: field(s, "bytes").update(
        type={"type": "long", "logicalType": "timestamp-millis"}
    ),
}
ACCEPTED = {
    "a new field with a default": lambda s: s["fields"].append({**NEW, "default": ""}),
    "a new optional field": lambda s: s["fields"].append(
        {"name": "new", "type": ["null", "long"], "doc": "x", "default": None}
    ),
    "a better doc": lambda s: field(s, "turn").update(doc="better"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_incompatible_change_is_refused(what):
    assert incompatible(*changed("TOOL_RESULT", REFUSED[what])), what


@pytest.mark.parametrize("what", ACCEPTED)
def test_a_compatible_change_is_accepted(what):
    assert incompatible(*changed("TOOL_RESULT", ACCEPTED[what])) == []


def test_missing_fields_of_a_retired_shape_get_their_defaults():
    """The test acts as if `turn` and `seen_phase` had been added to CANCEL_REQUESTED later."""
    old = codec.schema_of("CANCEL_REQUESTED")
    old["fields"] = [f for f in old["fields"] if f["name"] not in ("turn", "seen_phase")]
    assert incompatible(old, codec.schema_of("CANCEL_REQUESTED")) == []
    head, (cls, written, read) = reader_of({"type": "CANCEL_REQUESTED", "schema": old})
    out = io.BytesIO()
    values = {"cancel_id": "c1", "mode": "now", "reason": "old", "by_user": "ana"}
    schemaless_writer(out, parse_schema(old), values)
    value = head + out.getvalue()
    assert head == MAGIC + codec.fingerprint_of(old)
    event = read_as(value, cls, written, read)
    assert event == ev.CancelRequested(cancel_id="c1", mode="now", reason="old", by_user="ana")


def test_an_edited_shape_is_detected(tmp_path):
    path = HISTORY / "GEN_SENT.v1.json"
    content = json.loads(path.read_text("utf-8"))
    content["schema"]["fields"].pop()
    (tmp_path / path.name).write_text(json.dumps(content), "utf-8")
    (edited,) = shapes(tmp_path)
    with pytest.raises(AssertionError, match="an edited shape"):
        test_every_shape_in_history_can_still_be_read(edited)
