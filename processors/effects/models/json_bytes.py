"""Lossless JSON: values that foldlog need not understand keep the bytes as received.

A number, an escape or an unknown field may change when it is parsed and serialized again, but a
thinking signature is bound to the bytes that the provider sent. So this file splits an object into
raw values, and decodes only strings that are streamed in pieces.
"""

import json
from typing import Any

import msgspec

from ....schemas import canonical

DIGITS_MAX = 20  # enough for more than an Avro long
_CUT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


class Malformed(ValueError):
    """Bytes that are not the expected JSON."""


def fields(raw: bytes | str) -> dict[str, bytes]:
    """The members of a JSON object in their order, each value as the bytes received.

    A lone surrogate is accepted, because the other half of the pair may come with the next delta.
    Raises Malformed if the JSON is not an object.
    """
    try:
        return strict_fields(raw)
    except Malformed:
        # msgspec rejects an escaped lone surrogate, the standard library does not. It re-serializes
        # numbers, but only those of an object with a lone surrogate.
        value = parsed(raw)
        if not isinstance(value, dict):
            raise Malformed(f"not a JSON object: {_shown(raw)}") from None
        texts = {name: canonical.compact(each) for name, each in value.items()}
        return {name: text.encode("utf-8", "backslashreplace") for name, text in texts.items()}


def strict_fields(raw: bytes | str) -> dict[str, bytes]:
    """Like `fields`, but also raises Malformed for a lone surrogate, as most JSON readers do."""
    try:
        return {key: bytes(value) for key, value in _CUT.decode(raw).items()}
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise Malformed(f"{error}: {_shown(raw)}") from error


def members(raw: bytes) -> list[dict[str, bytes]]:
    """The objects in a JSON array, each as `fields` returns it; none if it is not an array."""
    try:
        items = map(bytes, _ITEMS.decode(raw))
        return [strict_fields(item) for item in items if item.startswith(b"{")]
    except (msgspec.DecodeError, Malformed):
        return []


def parsed(raw: bytes | str) -> Any:
    """The value of a JSON text. Raises Malformed, also for NaN and Infinity."""
    try:
        return json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{type(error).__name__}: {error}: {_shown(raw)}") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def string(raw: bytes | None) -> str:
    """The text of a JSON string; "" for anything else or None."""
    is_text = raw is not None and raw.startswith(b'"')
    return str(parsed(raw)) if is_text and raw else ""


def text(raw: bytes | None) -> str:
    """The text of a JSON string; "" for null or None. Raises Malformed for anything else."""
    value = parsed(raw) if raw else None
    if value is not None and not isinstance(value, str):
        raise Malformed(f"not a JSON string: {_shown(raw or b'')}")
    return value or ""


def demand_shallow(raw: bytes | str, most: int) -> None:
    """Raise Malformed if a JSON text is nested deeper than `most` levels."""
    brackets = (b"{", b"[") if isinstance(raw, bytes) else ("{", "[")
    if sum(map(raw.count, brackets)) > most and depth(raw) > most:  # type: ignore[arg-type]
        raise Malformed(f"nested deeper than {most} levels: {_shown(raw)}")


def count(raw: bytes | None) -> int:
    """The value of a JSON count, clamped to an Avro long; 0 for anything else or None."""
    if raw is None or not raw.isdigit():
        return 0
    return min(int(raw[:DIGITS_MAX]), 2**63 - 1)  # Python cannot read a number of 5,000 digits


def compact(raw: bytes) -> bytes:
    """The same JSON without white space between tokens; strings and numbers stay unchanged."""
    try:
        return msgspec.json.format(raw, indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return encodable(canonical.compact(parsed(raw))).encode()


def quoted(text: str) -> bytes:
    """The text as a JSON string. A lone surrogate is replaced, because UTF-8 cannot encode it and
    the API would reject every later request that contains the surrogate's escape sequence.
    """
    return encodable(canonical.compact(text)).encode()


def depth(raw: bytes | str) -> int:
    """The nesting depth of objects and arrays. Raises Malformed if the text is not JSON."""
    levels, layer = 0, [parsed(raw)]
    while layer := [value for value in layer if isinstance(value, dict | list)]:
        levels += 1
        lists = (value.values() if isinstance(value, dict) else value for value in layer)
        layer = [member for members in lists for member in members]
    return levels


def obj(members: dict[str, bytes]) -> bytes:
    """A compact JSON object of raw values."""
    return b"{" + b",".join(quoted(key) + b":" + raw for key, raw in members.items()) + b"}"


def array(items: list[bytes]) -> bytes:
    """A compact JSON array of raw values."""
    return b"[" + b",".join(items) + b"]"


def whole_pairs(text: str) -> str:
    """Join surrogate halves, which may have come in two pieces, into one character."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def encodable(text: str) -> str:
    """The text in a form that UTF-8 can encode: surrogate pairs are joined, and every lone
    surrogate is replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _shown(raw: bytes | str) -> str:
    return ascii(raw[:60])  # enough to recognize it in a message for people
