"""Makes JSON that every client reads alike: a number that would change is sent as a string.

JavaScript parses numbers as doubles, and other readers refuse numbers that they cannot represent;
Python reads 1e400 as infinity and writes it as invalid JSON. So a number that no double represents
exactly becomes a string here.
"""

import json
from decimal import Decimal, InvalidOperation
from typing import Any

from ...client import printable
from ...processors.effects.models.json_bytes import depth

INT_MAX = 2**53 - 1
"""Doubles represent every integer up to this one exactly."""

DEPTH_MAX = 128
"""The deepest nesting that is parsed, because our JSON writers recurse."""


def value_of(data: bytes) -> Any:
    """The value of a JSON text. Raises ValueError for invalid JSON (including NaN), and for nesting
    so deep that some readers fail.
    """
    try:
        value = _DECODER.decode(data.decode())
    except RecursionError:
        raise ValueError(f"nested deeper than {DEPTH_MAX} levels") from None
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX and depth(data) > DEPTH_MAX:
        raise ValueError(f"nested deeper than {DEPTH_MAX} levels")
    return value


def blocks_of(content: bytes) -> list[dict[str, Any]]:
    """The content blocks of a JSON array; JSON that `value_of` refuses is read as Python reads it.
    """
    try:
        found = value_of(content)
        found = printable.encodable(found) if b"\\u" in content else found
    except ValueError:
        return printable.blocks_of(content)
    return [block for block in found if isinstance(block, dict)] if isinstance(found, list) else []


def _int(text: str) -> int | str:
    fits = len(text) <= len(str(-INT_MAX)) and abs(int(text)) <= INT_MAX
    return int(text) if fits else text


def _float(text: str) -> float | str:
    value = float(text)
    try:
        return value if Decimal(text) == Decimal(repr(value)) else text
    except InvalidOperation:  # the exponent itself is out of range
        return text


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(parse_int=_int, parse_float=_float, parse_constant=_refuse_constant)
