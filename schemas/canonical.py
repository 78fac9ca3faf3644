"""Compact JSON as it is stored, hashed and sent: one value gives the same bytes everywhere.

The output has no spaces and no line breaks, and keeps the order of the keys unless the function's
name says otherwise. The output must never change, because hashes in old logs were computed from it.
"""

import json
from functools import partial
from typing import Any

_encoder = partial(json.JSONEncoder, separators=(",", ":"))
_PLAIN = _encoder(ensure_ascii=False)
_STRICT = _encoder(ensure_ascii=False, allow_nan=False)
_STRICT_SORTED = _encoder(ensure_ascii=False, allow_nan=False, sort_keys=True)
_ASCII = _encoder()
_ASCII_SORTED = _encoder(sort_keys=True)


def compact(value: Any) -> str:
    """Compact JSON with non-ASCII characters unescaped. If the value has a lone surrogate, so does
    the JSON text, which then cannot be encoded in UTF-8."""
    return _PLAIN.encode(value)


def compact_strict(value: Any) -> str:
    """Like `compact`, but raises ValueError for a number that JSON lacks (NaN, infinity)."""
    return _STRICT.encode(value)


def compact_strict_sorted(value: Any) -> str:
    """Like `compact_strict`, with sorted keys: equal values give equal text."""
    return _STRICT_SORTED.encode(value)


def compact_ascii(value: Any) -> str:
    """Compact JSON in ASCII: other characters, and lone surrogates, are escaped."""
    return _ASCII.encode(value)


def compact_ascii_sorted(value: Any) -> str:
    """Like `compact_ascii`, with sorted keys: for digests of values whose keys have no order."""
    return _ASCII_SORTED.encode(value)
