"""The facts of session-facts: schemas equal classes, values round-trip, and junk never raises."""

import pytest
from fastavro import parse_schema
from hypothesis import given, strategies as st

from foldlog.schemas import codec, facts
from foldlog.schemas.facts import (
    FACT_TYPES,
    UnknownFact,
    decode_fact,
    encode_fact,
)
from foldlog.schemas.value import replace
from foldlog.tests.schemas.arbitrary import example_of
from foldlog.tests.schemas.shapes import FACT_HISTORY, bare, incompatible, plain, shapes
from foldlog.tests.schemas.test_history import HOW
from foldlog.tests.schemas.test_shapes import findings
from foldlog.tests.structure.tree import ROOT

FACTS = [example_of(row.cls) for row in FACT_TYPES]
NAMESPACE = "foldlog.facts.v1"


@pytest.mark.parametrize("name", facts.BY_NAME)
def test_every_schema_equals_its_class(name):
    assert findings(facts.schema_of(name), facts.BY_NAME[name].cls, NAMESPACE) == []


def test_every_fact_has_a_schema_file_and_no_event_has_its_schema():
    files = {path.stem for path in (ROOT / "schemas" / "avro_facts").iterdir()}
    assert files == set(facts.BY_NAME) and len(facts.BY_CLASS) == len(FACT_TYPES)
    heads = {encode_fact(fact)[0][: codec.HEAD_BYTES] for fact in FACTS}
    assert len(heads) == len(FACT_TYPES) and not heads & set(codec.shapes())


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_a_fact_round_trips(fact):
    value, headers = encode_fact(fact)
    assert headers == [("t", facts.BY_CLASS[type(fact)].name.encode())]
    assert decode_fact(value, headers) == fact


def test_a_field_that_does_not_fit_is_refused():
    with pytest.raises(ValueError):
        encode_fact(replace(FACTS[3], turn="one"))


@given(value=st.one_of(
    st.none(), st.binary(max_size=40),
    st.builds(lambda fact, cut: encode_fact(fact)[0][:cut], st.sampled_from(FACTS),
              st.integers(0, 40)),
    st.builds(lambda fact, more: encode_fact(fact)[0] + more, st.sampled_from(FACTS),
              st.binary(min_size=1)),
))
def test_a_value_that_cannot_be_read_is_an_unknown_fact(value):
    found = decode_fact(value, [("w", b"x"), ("t", b"NEW_FACT")])
    assert isinstance(found, UnknownFact) and found.type == "NEW_FACT" and found.why


def test_an_event_is_an_unknown_fact():
    event = example_of(codec.BY_NAME["TURN_ENDED"].cls)
    assert isinstance(decode_fact(codec.encode(event), [("t", b"TURN_ENDED")]), UnknownFact)


SHAPES = shapes(FACT_HISTORY)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.type}.v{shape.version}")
def test_every_fact_that_was_ever_written_can_be_read(shape):
    assert shape.value[: codec.HEAD_BYTES].hex() == f"c301{shape.fingerprint}", "an edited shape"
    fact = plain(decode_fact(shape.value))
    assert {name: fact[name] for name in shape.event} == shape.event


@pytest.mark.parametrize("name", facts.BY_NAME)
def test_the_code_writes_the_newest_shape(name):
    known = [shape for shape in SHAPES if shape.type == name]
    assert [shape.version for shape in known] == list(range(1, len(known) + 1)), HOW
    assert bare(known[-1].schema) == bare(facts.schema_of(name)), f"{name} has a new shape: {HOW}"
    assert all(incompatible(shape.schema, facts.schema_of(name)) == [] for shape in known)


def test_a_fact_of_a_retired_shape_gets_the_defaults(monkeypatch):
    """The test acts as if `settled` and `doubts` had been added to PHASE_CHANGED later."""
    fact = FACTS[2]
    old = facts.schema_of("PHASE_CHANGED")
    old["fields"] = [one for one in old["fields"] if one["name"] not in ("settled", "doubts")]
    value = codec.encode_as(
        Old(**{one["name"]: getattr(fact, one["name"]) for one in old["fields"]}),
        codec.MAGIC + codec.fingerprint_of(old), parse_schema(old),
    )
    assert isinstance(decode_fact(value), UnknownFact)
    head = value[: codec.HEAD_BYTES]
    reader = type(fact), parse_schema(old), parse_schema(facts.schema_of("PHASE_CHANGED"))
    monkeypatch.setitem(facts._readers(), head, reader)
    assert decode_fact(value) == replace(fact, settled=(), doubts=())


class Old(facts.Fact, frozen=True, kw_only=True):
    """PHASE_CHANGED without two fields."""

    phase: str
    project_id: str | None = None
