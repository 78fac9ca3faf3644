"""The facts of session-facts: schemas equal classes, values round-trip, and junk never raises."""

import pytest
from hypothesis import given, strategies as st

from foldlog.schemas import codec, facts
from foldlog.schemas.facts import (
    FACT_TYPES,
    UnknownFact,
    decode_fact,
    encode_fact,
    pack,
    unpack,
)
from foldlog.schemas.value import replace
from foldlog.tests.schemas.arbitrary import example_of
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
    assert decode_fact(value, headers) == fact == unpack(pack(fact))


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


@pytest.mark.parametrize("data", [b"", b"TURN_BEGUN", b"TURN_BEGUN\0\x80", b"X\0\x80"])
def test_other_bytes_are_no_packed_fact(data):
    with pytest.raises(ValueError):
        unpack(data)
