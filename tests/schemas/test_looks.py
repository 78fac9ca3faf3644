"""The records of operator-looks: the schema equals its class, and what was written can be read."""

import pytest

from foldlog.schemas import looks
from foldlog.schemas.codec import Undecodable
from foldlog.schemas.enums import LookKind
from foldlog.schemas.looks import Look, decode_look, encode_look
from foldlog.tests.schemas.test_shapes import findings

LOOK = Look(operator="olga", user_id="ana", session_id="s1", what=LookKind.STREAM)
WRITTEN = bytes.fromhex("c301d61bd4af59718fdf086f6c676106616e6104733108")
"""LOOK, as the first version wrote it. For another schema, keep this one readable, as history/
does."""


def test_the_schema_equals_its_class():
    assert findings(looks.schema(), Look, "foldlog.looks.v1") == []


def test_a_look_is_written_as_ever_and_can_be_read():
    assert encode_look(LOOK) == WRITTEN and decode_look(WRITTEN) == LOOK


@pytest.mark.parametrize("value", [b"", b"x", WRITTEN[:-1], WRITTEN + b"x", b"\xc3\x01" + bytes(9)])
def test_another_value_is_undecodable(value):
    with pytest.raises(Undecodable):
        decode_look(value)
