"""JSON as every reader of it has it: what would arrive as something else arrives as its text.

A reader in JavaScript holds numbers as doubles, and others refuse what they can not hold; Python
reads 1e400 as infinity and writes it as no JSON. So a number that no double holds is a text here.
This file must not know what a value is for.
"""

import json
from decimal import Decimal, InvalidOperation
from typing import Any

from ...processors.effects.models.json_bytes import depth
from .. import contents

INT_MAX = 2**53 - 1
"""The largest of the integers that doubles hold each by itself."""

DEPTH_MAX = 128
"""Levels of nesting that may be taken apart and put together again: our writers recurse."""


def value_of(data: bytes) -> Any:
    """The value of some JSON. Raises ValueError for what is none (NaN is not), or is nested so
    deeply that not everybody can read it."""
    try:
        value = _DECODER.decode(data.decode())
    except RecursionError:
        raise ValueError(f"nested deeper than {DEPTH_MAX} levels") from None
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX and depth(data) > DEPTH_MAX:
        raise ValueError(f"nested deeper than {DEPTH_MAX} levels")
    return value


def blocks_of(content: bytes) -> list[dict[str, Any]]:
    """The content blocks of a JSON array; what is nothing everywhere as Python has it."""
    try:
        found = value_of(content)
        found = contents.encodable(found) if b"\\u" in content else found
    except ValueError:
        return contents.blocks_of(content)
    return [block for block in found if isinstance(block, dict)] if isinstance(found, list) else []


def _int(text: str) -> int | str:
    fits = len(text) <= len(str(-INT_MAX)) and abs(int(text)) <= INT_MAX
    return int(text) if fits else text


def _float(text: str) -> float | str:
    value = float(text)
    try:
        return value if Decimal(text) == Decimal(repr(value)) else text
    except InvalidOperation:  # an exponent that is itself beyond all bounds
        return text


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")


_DECODER = json.JSONDecoder(parse_int=_int, parse_float=_float, parse_constant=_no_number)
