"""The records of `operator-looks`: what operators read of the sessions of other users.

The key of a record is the operator, and its time is when the operator looked, by the broker's
clock. A value is Avro in single-object encoding (codec.py), with the schema in avro_looks/.
"""

import json
from functools import cache
from importlib import resources
from typing import Any

from fastavro import parse_schema
from msgspec import Struct

from . import codec
from .codec import HEAD_BYTES, MAGIC, Schema, Undecodable
from .enums import LookKind

NAME = "OPERATOR_LOOKED"


class Look(Struct, frozen=True, kw_only=True):
    """An operator read a session of another user, or a list of sessions.

    user_id, session_id: the session and its user; both are empty for a list or a search.
    """

    operator: str
    user_id: str = ""
    session_id: str = ""
    what: LookKind


def schema() -> Schema:
    """The .avsc of a look, as a dict."""
    file = resources.files(__package__).joinpath("avro_looks", f"{NAME}.avsc")
    found: Schema = json.loads(file.read_text("utf-8"))
    return found


@cache
def _written() -> tuple[bytes, Any]:
    return MAGIC + codec.fingerprint_of(schema()), parse_schema(schema())


def encode_look(look: Look) -> bytes:
    """The value of a look's record."""
    return codec.encode_as(look, *_written())


def decode_look(value: bytes) -> Look:
    """The look in a record's value. Raises Undecodable."""
    head, written = _written()
    if value[:HEAD_BYTES] != head:
        raise Undecodable("no schema of this version")
    look: Look = codec.read_as(value, Look, written, None)
    return look
