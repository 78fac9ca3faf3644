"""Makes seals: opaque strings that only this server can create and that contain their payload.

Like real signatures, seals are self-contained, so a restarted server recognizes its seals without
any state. This file also makes the deterministic ids. The key is a constant, because this test
server detects mistakes and does not provide security.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from ...schemas.canonical import compact_ascii_sorted

_KEY = b"foldlog scripted Messages API"
_MAC_BYTES = 16
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# The length of the random part of the API's ids.
_ID_CHARS = 24
_CHECK_CHARS = 6


def canonical(value: Any) -> bytes:
    """The value as canonical JSON, independent of key order and format, without nulls and cache
    marks.
    """
    text = compact_ascii_sorted(value)
    if ":null" in text or '"cache_control":' in text:
        text = compact_ascii_sorted(_by_value(value))
    return text.encode()


def _by_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _by_value(item)
            for key, item in value.items()
            if item is not None and key != "cache_control"
        }
    if isinstance(value, list | tuple):
        return [_by_value(item) for item in value]
    return value


def digest(*parts: bytes, length: int = 12) -> str:
    """A hex digest of `length` bytes of the parts."""
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[: 2 * length]


def seal(payload: Mapping[str, Any]) -> str:
    """An opaque string that carries the payload."""
    data = canonical(payload)
    return base64.b64encode(_mac(data) + data).decode()


def unseal(sealed: Any) -> dict[str, Any] | None:
    """The payload; None if the seal was changed or is not from this server."""
    try:
        raw = base64.b64decode(sealed, validate=True)
    except (binascii.Error, ValueError, TypeError):
        return None
    mac, data = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
    return json.loads(data) if hmac.compare_digest(mac, _mac(data)) else None


def _mac(data: bytes) -> bytes:
    return hmac.digest(_KEY, data, "sha256")[:_MAC_BYTES]


def make_id(prefix: str, *parts: Any) -> str:
    """An id in the API's format (`msg_01...`), derived from the parts; see `is_ours`."""
    seed = "\0".join(map(str, parts)).encode()
    head = "01" + _base62(hmac.digest(_KEY, seed, "sha256"), _ID_CHARS - 2 - _CHECK_CHARS)
    return f"{prefix}_{head}{_check(head)}"


def is_ours(id: str) -> bool:
    """Whether `make_id` generated this id."""
    head, check = id.rpartition("_")[2][:-_CHECK_CHARS], id[-_CHECK_CHARS:]
    return check == _check(head)


def _check(head: str) -> str:
    return _base62(_mac(head.encode()), _CHECK_CHARS)


def _base62(data: bytes, length: int) -> str:
    number, chars = int.from_bytes(data, "big"), []
    for _ in range(length):
        number, digit = divmod(number, len(_BASE62))
        chars.append(_BASE62[digit])
    return "".join(chars)
