"""Finds the differences between two states of a session's views. Each difference has a path in the
views, and both values.

Rows that both values share are skipped without a comparison, so comparing two moments of a long
session costs only what was added between them.
"""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from ...client.printable import DIGESTS, plain
from ...processors.fold.rows import Rows
from ...processors.fold.views import SessionViews
from ...schemas.value import field_names

VALUE_CHARS = 400  # characters shown of a value
DIFFERENCES_MAX = 500


class Difference(NamedTuple):
    """One difference. kind: changed, added, removed. Values are JSON texts, '' for none."""

    path: str
    kind: str
    before: str
    after: str


def differences(before: SessionViews, after: SessionViews) -> list[Difference]:
    """The differences between two views, in the order of their fields; the first 500."""
    return list(islice(_walk("", before, after), DIFFERENCES_MAX))


def _walk(path: str, before: Any, after: Any) -> Iterator[Difference]:
    if before is after:
        return
    if isinstance(before, Rows) and isinstance(after, Rows):
        yield from _rows(path, before, after)
        return
    names = field_names(before)
    if names and type(before) is type(after):
        for name in names:
            one, other = getattr(before, name), getattr(after, name)
            yield from _walk(f"{path}.{name}" if path else name, one, other)
    elif before != after:
        yield from _json_differences(path, _plain(path, before), _plain(path, after))


def _rows(path: str, before: Rows[Any], after: Rows[Any]) -> Iterator[Difference]:
    shared = min(len(before), len(after))
    if not (after.extends(before) or before.extends(after)):
        for place in range(shared):
            yield from _walk(f"{path}[{place}]", before[place], after[place])
    for place in range(shared, len(after)):
        yield Difference(f"{path}[{place}]", "added", "", _text(plain(after[place])))
    for place in range(shared, len(before)):
        yield Difference(f"{path}[{place}]", "removed", _text(plain(before[place])), "")


def _plain(path: str, value: Any) -> Any:
    is_digest = isinstance(value, bytes) and path.rpartition(".")[2] in DIGESTS
    return value.hex() if is_digest else plain(value)


def _json_differences(path: str, before: Any, after: Any) -> Iterator[Difference]:
    """The differences between two JSON values."""
    if before == after:
        return
    if not isinstance(before, dict | list) or type(before) is not type(after):
        yield Difference(path, "changed", _text(before), _text(after))
        return
    one, other = _children(path, before), _children(path, after)
    for at in {**one, **other}:
        if at not in one:
            yield Difference(at, "added", "", _text(other[at]))
        elif at not in other:
            yield Difference(at, "removed", _text(one[at]), "")
        else:
            yield from _json_differences(at, one[at], other[at])


def _children(path: str, value: dict[str, Any] | list[Any]) -> dict[str, Any]:
    """The values in an object or array, by their paths."""
    if isinstance(value, dict):
        return {f"{path}.{name}": inner for name, inner in value.items()}
    return {f"{path}[{place}]": inner for place, inner in enumerate(value)}


def _text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}…"
