"""Memory as files that people edit: converts an edited file into events. Pure.

A file consists of the entries of its path in order, each followed by a line end (`text_of`). An
edit is compared with the file as it was last written: entries whose lines are all present stay,
changed entries are retired, and the lines between become new entries, one per paragraph, at the
same place. Ids are derived from the edited version of the file and the new text, so that it is
harmless to apply an edit twice. Nothing is lost: entries that were changed elsewhere since the file
was written are kept next to the edit, and a conflict is reported.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher
from hashlib import sha256
from typing import NamedTuple

from ...schemas.memory import MemoryRetired, MemoryWritten
from ...schemas.memory_paths import LEGAL_PATHS, TEXT_BYTES_MAX, tier_of, why_not_text
from .fold import MemoryEntry, MemoryView, entries_of

FILE_BYTES_MAX = 1024 * 1024  # of one file: 300,000 tokens; people do not edit more by hand
LINES_MAX = 20_000  # of one file: comparing so many lines takes a second


class FileRefused(Exception):
    """A file's content cannot be memory. The error message has the reason and the remedy."""


class Edits(NamedTuple):
    """The events for an edited file. `conflicts`: messages for people about entries that were kept
    next to the edit."""

    events: list[MemoryWritten | MemoryRetired]
    conflicts: list[str]


def lines_in(path: str, data: bytes) -> list[str]:
    """The lines in a file's content. Raises FileRefused if they cannot be memory."""
    if tier_of(path) is None:
        raise FileRefused(f"{path[:200]} is not a path of memory; use {LEGAL_PATHS}")
    if len(data) > FILE_BYTES_MAX:
        raise FileRefused(f"{path} has {len(data)} bytes, the limit is {FILE_BYTES_MAX}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileRefused(
            f"{path} is not UTF-8 text, at byte {error.start}. Save it as UTF-8"
        ) from None
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    if len(lines) > LINES_MAX:
        raise FileRefused(f"{path} has {len(lines)} lines, the limit is {LINES_MAX}")
    for number, line in enumerate(lines, 1):
        wrong = why_not_text(line)
        if wrong is not None:
            raise FileRefused(f"{path}, line {number}: {wrong}; change the line, or break it up")
    return lines


def edits_of(
    path: str, lines: Sequence[str], base: MemoryView | None, now: MemoryView, user: str
) -> Edits:
    """The events that apply an edit of a file to the memory `now`.
    The file was last written from `base`.

    If `base` is None, the file's original content is unknown, and no entry counts as deleted.
    """
    had = entries_of(now if base is None else base, path)
    live = frozenset(now.ids)
    events: list[MemoryWritten | MemoryRetired] = []
    conflicts: list[str] = []
    known = frozenset(kept.entry_id for kept in had)
    # Entries that were added elsewhere since then, and that the file has too, are not added again.
    theirs = {kept.text for kept in entries_of(now, path) if kept.entry_id not in known}
    offset = now.offset if base is None else base.offset
    for before, touched, between in _gaps(had, lines):
        texts = [text for text in paragraphs(between) if text not in theirs]
        after = next((k.entry_id for k in reversed(before) if k.entry_id in live), "")
        for text in texts:
            entry_id = _id(path, offset, after, text)
            events.append(
                MemoryWritten(entry_id=entry_id, path=path, text=text, after=after, by_user=user)
            )
            after = entry_id
        lost = [kept for kept in touched if kept.entry_id not in live]
        if lost and texts:
            conflicts.append(
                f"{path}: {_shown(lost[0].text)} was changed here and elsewhere since it was last "
                "written; both are kept, remove what is wrong"
            )
        if base is None:
            if touched and texts:
                conflicts.append(
                    f"{path}: its content when it was last written is unknown; its own lines and "
                    "those of the log are both kept, remove what is wrong"
                )
            continue
        events += [
            MemoryRetired(entry_id=kept.entry_id, why=f"edited in {path}", by_user=user)
            for kept in touched
            if kept.entry_id in live
        ]
    return Edits(events, conflicts)


class _Gap(NamedTuple):
    """A place between unchanged entries: the entries before it, the entries removed from it, and
    its new lines."""

    before: Sequence[MemoryEntry]
    touched: Sequence[MemoryEntry]
    lines: Sequence[str]


def _gaps(had: Sequence[MemoryEntry], lines: Sequence[str]) -> list[_Gap]:
    """The places where a file differs from its entries."""
    gaps: list[_Gap] = []
    stayed: list[MemoryEntry] = []
    touched: list[MemoryEntry] = []
    end = 0
    for kept, place in zip(had, _places(had, lines), strict=True):
        if place is None:
            touched.append(kept)
            continue
        gaps.append(_Gap(tuple(stayed), tuple(touched), lines[end:place]))
        stayed.append(kept)
        touched = []
        end = place + kept.text.count("\n") + 1
    gaps.append(_Gap(tuple(stayed), tuple(touched), lines[end:]))
    return [gap for gap in gaps if gap.touched or gap.lines]


def _places(had: Sequence[MemoryEntry], lines: Sequence[str]) -> list[int | None]:
    """The index of each entry's first line in the edited file; None for an entry of which the file
    no longer contains every line.
    """
    mine = [line for kept in had for line in kept.text.split("\n")]
    same: dict[int, int] = {}
    head = 0
    while head < min(len(mine), len(lines)) and mine[head] == lines[head]:
        same[head] = head
        head += 1
    tail = 0
    while tail < min(len(mine), len(lines)) - head and mine[-1 - tail] == lines[-1 - tail]:
        tail += 1
        same[len(mine) - tail] = len(lines) - tail
    middle = SequenceMatcher(None, mine[head : len(mine) - tail], lines[head : len(lines) - tail])
    for block in middle.get_matching_blocks():
        same.update({head + block.a + n: head + block.b + n for n in range(block.size)})
    places: list[int | None] = []
    first = 0
    for kept in had:
        count = kept.text.count("\n") + 1
        place = same.get(first)
        whole = place is not None and all(
            same.get(first + n) == place + n for n in range(count)
        )
        places.append(place if whole else None)
        first += count
    return places


def paragraphs(lines: Sequence[str]) -> list[str]:
    """Splits lines into texts of entries: one per paragraph, with the blank lines after it, and
    none longer than the limit of an entry.

    If each text is followed by a line end, the joined texts are the same lines again.
    """
    texts: list[list[str]] = []
    size = 0
    for line in lines:
        bytes_of_line = len(line.encode()) + 1
        begins = not texts or (line.strip() and not texts[-1][-1].strip())
        if begins or size + bytes_of_line > TEXT_BYTES_MAX:
            texts.append([])
            size = 0
        texts[-1].append(line)
        size += bytes_of_line
    return ["\n".join(text) for text in texts]


def _id(path: str, offset: int, after: str, text: str) -> str:
    parts = "\0".join((path, str(offset), after, text))
    return f"f:{sha256(parts.encode()).hexdigest()[:20]}"


def _shown(text: str) -> str:
    line = next((line for line in text.split("\n") if line.strip()), "")
    return repr(line if len(line) <= 60 else f"{line[:60]}...")
