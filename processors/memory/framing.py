"""Memory as a model is shown it: quoted lines, with whose they are and where they came from.

Whatever an entry says, also that it is a system instruction, it stands behind a quote mark on every
one of its lines, so that it can neither close the frame around it nor pass for the prompt. What
frames the static prefix, and says there that memory is data, is processors/request/. Pure, and the
same bytes for the same memory: no clock, no session's id, no counter of requests.
"""

import unicodedata
from collections.abc import Sequence

from ...schemas.memory_paths import CORE, DECISIONS, PREFERENCE_CHARS_MAX, Tier, tier_of
from .fold import Kept, MemoryView, entries_of, paths_of

CORE_LINES_MAX = 100
"""Mission row S3.2: what is in every prompt is paid in every turn."""

INDEX_LINES_MAX = 200
"""Mission row S1.A."""

TEXT_BYTES_MAX = 15 * 1024
"""Of each, whatever its lines: the prompt's own limit for a part of the memory is 16 KiB."""

LINE_CHARS_MAX = 400  # a longer line is a paragraph: it is cut here and whole in load_memory
QUOTE = "| "
LOAD, SEARCH = "load_memory", "search_memory"

WHO = {
    "producer": "written by a person",
    "tools": "written by an agent",
    "background": "extracted from a conversation",
}


def quoted(text: str, *, clip: bool = False) -> list[str]:
    """The lines of a text, each behind the quote mark; what breaks lines elsewhere is shown."""
    return [QUOTE + (_clipped(line) if clip else line) for line in _lines(text)]


def _lines(text: str) -> list[str]:
    """Lines as files have them: at \\n only. Other breaks, such as \\r or U+2028, are spelled."""
    lines = text.split("\n")
    return [line if line.isprintable() else "".join(map(_shown, line)) for line in lines]


# Control characters, line and paragraph separators; and the marks that turn the direction of what
# follows, our own frame included. Joiners stay: emoji and several scripts need them.
_ODD = frozenset(("Cc", "Zl", "Zp", "Cs"))
_TURNS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def _shown(char: str) -> str:
    if char == "\t" or (unicodedata.category(char) not in _ODD and char not in _TURNS):
        return char
    return f"\\u{ord(char):04x}"


def _clipped(line: str) -> str:
    if len(line) <= LINE_CHARS_MAX:
        return line
    return f"{line[:LINE_CHARS_MAX]} [{len(line) - LINE_CHARS_MAX} more characters]"


def framed(name: str, lines: Sequence[str]) -> str:
    """Lines in a frame; `name` says what they are and is ours, never an entry's."""
    return "\n".join([f"<memory {name}>", *lines, "</memory>"])


# -- the static prefix -----------------------------------------------------------------------------


def core_text(views: Sequence[MemoryView]) -> str:
    """The HOT tier of these scopes: CORE_LINES_MAX lines of core.md in all; '' where none is.

    Each line begins with whose it is, as in `user| likes tea`. Scopes share the room evenly, and
    what one does not need goes to the others. Lines beyond are not in the prompt but kept, and the
    text says so.
    """
    parts = [(view, _core_lines(view)) for view in views]
    return _fitted(parts, CORE_LINES_MAX, f"{CORE} of {{scope}}", f"all by {LOAD}")[0]


def core_left_out(view: MemoryView) -> str:
    """What of core.md enters no prompt, by which limit and what to do; '' where all of it does."""
    lines = _core_lines(view)
    _, shares = _fitted([(view, lines)], CORE_LINES_MAX, f"{CORE} of {{scope}}", f"all by {LOAD}")
    if sum(shares) == len(lines):
        return ""
    # With one line that says so the limit is full.
    too_many = len(lines) > CORE_LINES_MAX and sum(shares) == CORE_LINES_MAX - 1
    limit = f"{CORE_LINES_MAX} lines" if too_many else f"{TEXT_BYTES_MAX // 1024} KiB"
    return (
        f"{sum(shares)} of {len(lines)} lines of {CORE} enter a prompt, which takes {limit} at "
        "most, of a user and a project together. The others are kept, and loaded when an agent "
        f"asks for the file. Put first what matters most, shorten it, or move the rest to "
        f"{DECISIONS} or archive/NAME"
    )


def _core_lines(view: MemoryView) -> list[str]:
    """The lines of core.md, and behind what no person wrote, who did."""
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
    """As many lines of each part as fit, in words what does not, and how many lines they are."""
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
    """How much each gets of `whole`: evenly, but no more than it wants; earlier ones the rest."""
    given = [0] * len(wanted)
    left = whole
    while left and any(w > g for w, g in zip(wanted, given, strict=True)):
        for n, want in enumerate(wanted):
            if left and want > given[n]:
                given[n], left = given[n] + 1, left - 1
    return given


def index_text(views: Sequence[MemoryView]) -> str:
    """Preferences and WARM files, INDEX_LINES_MAX lines in all; '' where there are none.

    A line of a file: its path, its size and how it begins. COLD files are not listed: only search
    reaches them, so what is archived costs no prompt anything.
    """
    parts = [(view, _index_lines(view)) for view in views]
    return _fitted(parts, INDEX_LINES_MAX, "memory of {scope}", f"the rest by {SEARCH}")[0]


def _index_lines(view: MemoryView) -> list[str]:
    lines = [
        f"{QUOTE}preference {name} = {flat(value, PREFERENCE_CHARS_MAX)}"
        for name, value in view.preferences
    ]
    by_path: dict[str, list[Kept]] = {}
    for kept in view.entries:
        if tier_of(kept.path) is Tier.WARM:
            by_path.setdefault(kept.path, []).append(kept)
    # Decisions first, then the newest day: what is likeliest to be wanted is not cut off.
    warm = sorted(by_path, reverse=True)
    warm.sort(key=lambda path: path != DECISIONS)
    for path in warm:
        entries = by_path[path]
        count = sum(kept.text.count("\n") + 1 for kept in entries)
        first = next((t for t in (flat(kept.text) for kept in entries) if t), "")
        lines.append(f"{QUOTE}{path} ({lines_of(count)}): {first}")
    return lines


def lines_of(count: int) -> str:
    """A number of lines in words."""
    return "1 line" if count == 1 else f"{count} lines"


def flat(text: str, chars: int = 100) -> str:
    """A text on one line, and cut after so many characters."""
    line = " ".join("".join(_shown(c) for c in text.replace("\n", " ")).split())
    return line if len(line) <= chars else f"{line[:chars]}..."


# -- what tools answer -----------------------------------------------------------------------------


def file_text(view: MemoryView, path: str) -> str:
    """A whole file, each entry with its id and where it came from."""
    lines = []
    for kept in entries_of(view, path):
        lines.append(f"[entry {kept.entry_id}, {source_of(kept)}]")
        lines += quoted(kept.text)
    return framed(f"scope={view.scope} file={path}", lines)


def source_of(kept: Kept) -> str:
    """Where an entry came from, in words: who wrote it, in which session and where there."""
    said = f"{WHO.get(kept.by, kept.by)} for {kept.by_user}"
    if kept.source_session is not None:
        said += f", session {kept.source_session}"
    if kept.source_offset is not None:
        said += f" at offset {kept.source_offset}"
    return said


def loadable_paths(view: MemoryView) -> str:
    """The files of a scope that load_memory gives, for a model that named another one."""
    paths = [path for path in paths_of(view) if tier_of(path) is not Tier.COLD]
    more = f" and {len(paths) - 50} more" if len(paths) > 50 else ""
    return (", ".join(paths[:50]) or "nothing") + more
