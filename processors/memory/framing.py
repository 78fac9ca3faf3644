"""Formats memory for a model: quoted lines in a frame, with owner and source.

Each line of an entry follows a quote mark (request/frames.py), so that an entry can neither close
the frame around it nor pass for the prompt. The frame of the static prefix, which states that
memory is data, is in processors/request/. Pure: equal memory gives equal bytes, which contain no
time, session id or counter.
"""

from collections.abc import Sequence

from ...schemas.memory_paths import CORE, DECISIONS, PREFERENCE_CHARS_MAX, Tier, tier_of
from ..request.frames import QUOTE, escaped, quoted
from .fold import MemoryEntry, MemoryView, entries_of, paths_of

CORE_LINES_MAX = 100
"""How many lines of core.md a prompt contains at most. Every prompt contains them."""

INDEX_LINES_MAX = 200
"""How many lines the memory index has at most. Every prompt contains the index."""

TEXT_BYTES_MAX = 15 * 1024
"""The size limit, in bytes, of the core text and of the index. It is below the prompt's limit for a
part of memory, which is 16 KiB.
"""

LOAD, SEARCH = "load_memory", "search_memory"

WHO = {
    "producer": "written by a person",
    "tools": "written by an agent",
    "background": "extracted from a conversation",
}


def framed(name: str, lines: Sequence[str]) -> str:
    """Puts lines into a frame. `name` describes the lines and never comes from an entry."""
    return "\n".join([f"<memory {name}>", *lines, "</memory>"])


# -- the static prefix -----------------------------------------------------------------------------


def core_text(views: Sequence[MemoryView]) -> str:
    """The HOT tier of these scopes: up to CORE_LINES_MAX lines of all core.md files;
    '' without lines.

    Each line begins with the owner, as in `user| likes tea`. Scopes share the space evenly, and the
    space that one scope does not need goes to the other scopes. Further lines stay in memory but
    are not in the prompt; the text notes how many.
    """
    parts = [(view, _core_lines(view)) for view in views]
    return _fitted(parts, CORE_LINES_MAX, f"{CORE} of {{scope}}", f"all by {LOAD}")[0]


def core_left_out(view: MemoryView) -> str:
    """A message about the lines of core.md that do not fit into a prompt, with the remedy; '' if
    all lines fit."""
    lines = _core_lines(view)
    _, shares = _fitted([(view, lines)], CORE_LINES_MAX, f"{CORE} of {{scope}}", f"all by {LOAD}")
    if sum(shares) == len(lines):
        return ""
    # The line that reports the number counts against the limit.
    too_many = len(lines) > CORE_LINES_MAX and sum(shares) == CORE_LINES_MAX - 1
    limit = f"{CORE_LINES_MAX} lines" if too_many else f"{TEXT_BYTES_MAX // 1024} KiB"
    return (
        f"{sum(shares)} of {len(lines)} lines of {CORE} enter a prompt, whose limit is {limit} for "
        "a user and a project together. The others are kept, and loaded when an agent asks for the "
        "file. Put the most important lines first, shorten them, or move the rest to "
        f"{DECISIONS} or archive/NAME"
    )


def _core_lines(view: MemoryView) -> list[str]:
    """The lines of core.md. An entry that was not written by a person is followed by its author."""
    lines = []
    for kept in entries_of(view, CORE):
        shown = quoted(kept.text, clip=True)
        if kept.by != "producer":
            shown[-1] += f"  [{WHO.get(kept.by, kept.by)}]"
        lines += shown
    return lines


def _fitted(
    parts: Sequence[tuple[MemoryView, list[str]]], lines_max: int, name: str, rest: str
) -> tuple[str, list[int]]:
    """Returns (text, counts). The text contains as many lines of each part as fit, and a note for
    each part that does not fit whole. counts: how many lines of each part the text contains.
    """
    parts = [
        (view, [view.scope.partition(":")[0] + line for line in lines])
        for view, lines in parts
        if lines
    ]
    shown: list[str] = []
    shares: list[int] = []
    for room in range(lines_max, -1, -1):
        shown = []
        shares = shared([len(lines) for _, lines in parts], room)
        for (view, lines), share in zip(parts, shares, strict=True):
            shown += lines[:share]
            if share < len(lines):
                what = name.format(scope=view.scope)
                shown.append(f"[{what}: {share} of {len(lines)} lines are here, {rest}]")
        if len(shown) <= lines_max and len("\n".join(shown).encode()) <= TEXT_BYTES_MAX:
            break
    return "\n".join(shown), shares


def shared(wanted: Sequence[int], whole: int) -> list[int]:
    """Divides `whole` into even shares, none larger than wanted.
    Earlier shares get the remainder."""
    given = [0] * len(wanted)
    left = whole
    while left and any(w > g for w, g in zip(wanted, given, strict=True)):
        for n, want in enumerate(wanted):
            if left and want > given[n]:
                given[n], left = given[n] + 1, left - 1
    return given


def index_text(views: Sequence[MemoryView]) -> str:
    """The memory index: preferences and WARM files, up to INDEX_LINES_MAX lines;
    '' if there are none.

    The line of a file has its path, its size and its beginning. COLD files are not listed, so the
    archive costs no tokens in prompts: only a search finds them.
    """
    parts = [(view, _index_lines(view)) for view in views]
    return _fitted(parts, INDEX_LINES_MAX, "memory of {scope}", f"the rest by {SEARCH}")[0]


def _index_lines(view: MemoryView) -> list[str]:
    lines = [
        f"{QUOTE}preference {name} = {flat(value, PREFERENCE_CHARS_MAX)}"
        for name, value in view.preferences
    ]
    by_path: dict[str, list[MemoryEntry]] = {}
    for kept in view.entries:
        if tier_of(kept.path) is Tier.WARM:
            by_path.setdefault(kept.path, []).append(kept)
    # Decisions come first, then the newest day, so that the most useful files are not cut off.
    warm = sorted(by_path, reverse=True)
    warm.sort(key=lambda path: path != DECISIONS)
    for path in warm:
        entries = by_path[path]
        count = sum(kept.text.count("\n") + 1 for kept in entries)
        first = next((t for t in (flat(kept.text) for kept in entries) if t), "")
        lines.append(f"{QUOTE}{path} ({lines_of(count)}): {first}")
    return lines


def lines_of(count: int) -> str:
    """A number of lines as text."""
    return "1 line" if count == 1 else f"{count} lines"


def flat(text: str, chars: int = 100) -> str:
    """A text on one line, cut after `chars` characters."""
    line = " ".join("".join(escaped(c) for c in text.replace("\n", " ")).split())
    return line if len(line) <= chars else f"{line[:chars]}..."


# -- results of tools ------------------------------------------------------------------------------


def file_text(view: MemoryView, path: str) -> str:
    """The text of a whole file for a model, each entry with its id and its source."""
    lines = []
    for kept in entries_of(view, path):
        lines.append(f"[entry {kept.entry_id}, {source_of(kept)}]")
        lines += quoted(kept.text)
    return framed(f"scope={view.scope} file={path}", lines)


def source_of(kept: MemoryEntry) -> str:
    """The source of an entry as text: who wrote it, in which session and at which offset."""
    source = f"{WHO.get(kept.by, kept.by)} for {kept.by_user}"
    if kept.source_session is not None:
        source += f", session {kept.source_session}"
    if kept.source_offset is not None:
        source += f" at offset {kept.source_offset}"
    return source


def loadable_paths(view: MemoryView) -> str:
    """The files of a scope that load_memory can read, for a model that named a missing file."""
    paths = [path for path in paths_of(view) if tier_of(path) is not Tier.COLD]
    more = f" and {len(paths) - 50} more" if len(paths) > 50 else ""
    return (", ".join(paths[:50]) or "nothing") + more
