"""Names the parts of a prefix, and finds the parts that are likely to change.

The provider's cache is useless if the prefix changes from request to request, so a prefix must not
contain a time, an id or a counter. `changed_parts` compares two prefixes and names the parts that
differ. `unstable_parts` checks one prefix and names the parts that are likely to change. Pure.
"""

import json
import re
from collections.abc import Iterator
from datetime import date
from itertools import chain, count
from typing import NamedTuple

from ...schemas.canonical import compact
from ..request.frames import unframed
from ..request.prefix import FILES_PREFACE, MEMORY_PREFACE, Prefix

SHOWN_CHARS = 60  # of the text found: enough to recognize it
_PREFACES = (FILES_PREFACE, MEMORY_PREFACE)


class Unstable(NamedTuple):
    """A text that is likely to change. part: the part's name in `parts`; kind: time, date, id or
    address; text: the text that was found."""

    part: str
    kind: str
    text: str


PATTERNS = {
    "time": r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\b\d\d:\d\d:\d\d\b|\b1[6-9]\d{8}(?:\d{3})?\b",
    "id": r"(?i:\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b)",
    "address": r" at 0x[0-9a-f]{6,}\b",  # Python's repr of an object, often of a default value
}
"""The patterns to search for. 1[6-9]... are Unix seconds and milliseconds from 2020 to 2033."""


def parts(prefix: Prefix) -> dict[str, str]:
    """The texts of a prefix by name: system prompt, files, memory, directive and tools."""
    found: dict[str, str] = {}
    for block in json.loads(prefix.system):
        text = block.get("text", "")
        if text not in _PREFACES:
            found[_free(_name(text, found), found)] = text
    for tool in json.loads(prefix.tools):
        text = compact(tool)
        found[_free(f"tool {tool.get('name', '?')}", found)] = text
    return found


def _name(text: str, found: dict[str, str]) -> str:
    frame = unframed(text)
    if frame is None:
        return "directive" if found else "system prompt"
    if frame.tag != "instruction_file":
        return frame.tag.replace("_", " ")
    return f"{frame.more.get('layer', '?')} instructions ({frame.more.get('name', '?')})"


def _free(name: str, found: dict[str, str]) -> str:
    """The name, or a numbered variant if the name is taken."""
    same = (f"{name} {number}" for number in count(2))
    return next(free for free in chain([name], same) if free not in found)


def changed_parts(before: Prefix, after: Prefix) -> tuple[str, ...]:
    """The names of the parts in which two prefixes differ; () if they have the same bytes."""
    if before == after:
        return ()
    old, new = parts(before), parts(after)
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return tuple(names) or ("order",)


def unstable_parts(prefix: Prefix, today: date | None = None) -> tuple[Unstable, ...]:
    """The parts of a prefix that contain a time, an id, an address, or the date `today`.

    Memory is skipped, because it may contain the date of an event, which does not change.
    """
    found = []
    for name, text in parts(prefix).items():
        if name.startswith("memory"):
            continue
        for kind, pattern in {**PATTERNS, **_today(today)}.items():
            hit = re.search(pattern, text)
            if hit is not None:
                found.append(Unstable(name, kind, hit[0].strip()[:SHOWN_CHARS]))
                break  # one finding per part is enough
    return tuple(found)


def _today(today: date | None) -> dict[str, str]:
    if today is None:
        return {}
    return {"date": "|".join(re.escape(text) for text in _spellings(today))}


def _spellings(day: date) -> Iterator[str]:
    """A date in the spellings that are common in prompts."""
    month = "January February March April May June July August September October November December"
    name = month.split()[day.month - 1]
    yield day.isoformat()
    for word in (name, name[:3]):
        yield f"{day.day} {word} {day.year}"
        yield f"{word} {day.day}, {day.year}"
    yield f"{day.month:02}/{day.day:02}/{day.year}"
    yield f"{day.day:02}.{day.month:02}.{day.year}"


__all__ = ["PATTERNS", "Unstable", "changed_parts", "parts", "unstable_parts"]
