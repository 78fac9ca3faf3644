"""Detects five kinds of mistakes that waste tokens. Each finding names the culprit (a tool or a
part of the prompt) and the number of tokens concerned.

The functions are pure functions over views. They run in the worker during development (`Watch`) and
in `doctor`. Findings are advice; no decision depends on them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from itertools import pairwise
from typing import NamedTuple

from ...schemas.events.parts import Body, ReadBlob
from ...schemas.tokens import NEW, estimate
from ...schemas.value import replace
from ..fold.projections.context_view import ContextView
from ..fold.projections.prefixes import Prefix as PrefixRow
from ..fold.projections.transcript import Line
from ..fold.rows import Rows
from ..fold.views import SessionViews
from ..request.prefix import Prefix
from ..tools.log_text import LOG_LINES_MAX, looks_like_log
from ..tools.tiers import FIND, SCHEMA_TOKENS, USE
from .prefix_drift import changed_parts, parts, unstable_parts
from .prompt_growth import GROWTH_TOKENS_MAX, Group, GrownPart, Growth
from .tool_echo import ECHO_LINES_BACK, ECHO_SHARE, EarlierTexts, echo, leaves

RESULT_TOKENS_MIN = 500  # smaller results are not worth a finding
OWN_LINES = 5  # further lines that a cut log may have: a head, a notice, an exit code
TOOL_TOKENS_MAX = 1_000  # 40 tools of this size are 40,000 tokens in every request
TOOLS_TOKENS_MAX = SCHEMA_TOKENS  # an agent's default limit
SEARCH_TOKENS_MAX = 4_000  # half of a result's limit: 100 rows of 40 tokens
HIT_TOKENS_MAX = 800  # one hit: 200 tokens on each side of a match, times two
SEARCHES = re.compile(r"(?:^|[_-])(search|find|grep|lookup|query|retrieve)", re.IGNORECASE)
OURS = (FIND, USE)  # users can neither shorten these nor put them behind the search
CHANGES_MAX = 5  # changes of one session's prefix, each of which loses the whole cache

KINDS = {
    "log": f"a raw log of more than {LOG_LINES_MAX} lines: its last {LOG_LINES_MAX} are enough",
    "echo": f"more than {ECHO_SHARE:.0%} of a result repeats its own arguments or earlier text",
    "schema": f"the schema of a tool has more than {TOOL_TOKENS_MAX:,} tokens, or all tools have "
    f"more than {TOOLS_TOKENS_MAX:,}",
    "search": f"a search returns more than {SEARCH_TOKENS_MAX:,} tokens, or one hit of more than "
    f"{HIT_TOKENS_MAX}: whole files instead of the text around a match",
    "prompt": f"a part of the static prefix grew by more than {GROWTH_TOKENS_MAX} tokens, in a "
    f"session or from session to session, or changed more than {CHANGES_MAX} times in a session, "
    "or contains what looks like a clock or id",
}

# The notices of tools/results.py if it shows less than a tool returned: a raw log that was cut to
# its end, or to the limit of a result, is still a raw log. A page may contain the same text with
# any number, so numbers with more digits are not taken as a size.
_SERVED = f"[a log: its last {LOG_LINES_MAX} lines]\n"
_LEFT_OUT = re.compile(
    r"^\[(?P<missing>\d{1,15}) of (?P<whole>\d{1,15}) bytes\b.* left out here", re.M
)



class Mistake(NamedTuple):
    """One finding. kind: one of KINDS; culprit: a tool, a part of the prefix, or `all tools`; call:
    the key of the call, or ''; tokens: the size of the culprit, or for growth the increase of its
    size, in tokens; do: the remedy.
    """

    kind: str
    culprit: str
    call: str
    tokens: int
    text: str
    do: str

    def __str__(self) -> str:
        place = f"{self.culprit} ({self.call})" if self.call else self.culprit
        return f"{place}: {self.tokens} tokens, {self.text}; {self.do}"


def mistakes(
    views: SessionViews, read: ReadBlob | None = None, today: date | None = None
) -> list[Mistake]:
    """All findings in a session. Without `read`, content in the blob store is skipped; without
    `today`, prefixes are not searched for dates. Tokens are counted for the session's model."""
    counts = views.context.counts
    return [
        *in_results(views.transcript.lines.since(0), counts=counts),
        *in_prefixes(prefixes_of(views.context, read), today, counts),
    ]


def prefixes_of(view: ContextView, read: ReadBlob | None = None) -> list[Prefix]:
    """The readable static prefixes that a session has had, oldest first."""
    found = (whole_prefix(row, read) for row in view.prefixes)
    return [prefix for prefix in found if prefix is not None]


def whole_prefix(row: PrefixRow, read: ReadBlob | None = None) -> Prefix | None:
    """A static prefix with its text; None if the text is in the blob store and `read` is None."""
    system, tools = _whole(row.system, read), _whole(row.tools, read)
    return None if system is None or tools is None else Prefix(system, tools)


def _whole(body: Body, read: ReadBlob | None) -> bytes | None:
    if body.ref is None:
        return body.inline or b"[]"
    return None if read is None else read(body.ref)


# -- the static prefix -----------------------------------------------------------------------------


def in_prefixes(
    prefixes: Sequence[Prefix], today: date | None = None, counts: str = NEW
) -> Iterator[Mistake]:
    """Findings on the newest prefix: large schemas, growth, and parts that are likely to change."""
    if not prefixes:
        return
    yield from in_schemas(prefixes[-1], counts)
    yield from in_growth(prefixes, counts)
    texts, all_of_it = parts(prefixes[-1]), _weight(prefixes[-1], counts)
    for found in unstable_parts(prefixes[-1], today):
        yield Mistake(
            "prompt", found.part, "", estimate(texts[found.part], counts),
            f"{found.part} contains what looks like a {found.kind}: {found.text}",
            f"if it changes, every request pays for all {all_of_it} tokens of the prefix: put it "
            "in a message instead",
        )


def _weight(prefix: Prefix, counts: str) -> int:
    return estimate(prefix.system, counts) + estimate(prefix.tools, counts)


def in_schemas(prefix: Prefix, counts: str = NEW) -> Iterator[Mistake]:
    """Finds tools whose schema is too large, and schemas that are too large all together."""
    tools = ((name, text) for name, text in parts(prefix).items() if name.startswith("tool "))
    sizes = {name: estimate(text, counts) for name, text in tools}
    ours = [f"tool {name}" for name in OURS]
    for name, tokens in sizes.items():
        if tokens > TOOL_TOKENS_MAX and name not in ours:
            yield Mistake(
                "schema", name, "", tokens, f"the schema of {name} is in every request",
                f"describe it in {TOOL_TOKENS_MAX} tokens, or put it behind a tool search",
            )
    total = sum(sizes.values())
    if total > TOOLS_TOKENS_MAX:
        most = ", ".join(sorted(sizes.keys() - ours, key=lambda name: (-sizes[name], name))[:3])
        yield Mistake(
            "schema", "all tools", "", total, f"{len(sizes)} tools; the largest are {most}",
            "put rarely used ones behind a tool search",
        )


def in_sessions(grown: Iterable[GrownPart]) -> Iterator[Mistake]:
    """Parts of an agent's prompt that have grown from session to session."""
    for each in grown:
        later = "1 session" if each.sessions == 1 else f"{each.sessions} sessions"
        yield Mistake(
            "prompt", each.part, "", each.tokens,
            f"{each.part} has grown by {each.tokens} tokens from session to session: {each.was} in "
            f"session {each.since}, {each.now} now, {later} later",
            "retire or archive what most turns do not use"
            if each.part.startswith("memory") else "take out what most turns do not use",
        )


def grown_in(
    views: SessionViews, growth: Growth, read: ReadBlob | None = None
) -> dict[Group, list[GrownPart]]:
    """The parts of a session's prompt that are larger than in the earlier sessions in `growth`."""
    rows = views.context.prefixes
    prefix = whole_prefix(rows[-1], read) if len(rows) and views.turn.known else None
    return {} if prefix is None else growth.add(views, prefix, views.context.counts)


def in_growth(prefixes: Sequence[Prefix], counts: str = NEW) -> Iterator[Mistake]:
    """Finds a prefix that has grown since the session began, or changes repeatedly."""
    had = [parts(prefix) for prefix in prefixes]
    first, last = had[0], had[-1]
    grown = {
        name: estimate(text, counts) - estimate(first.get(name, ""), counts)
        for name, text in last.items()
    }
    for name, tokens in grown.items():
        if tokens > GROWTH_TOKENS_MAX and not name.startswith("tool "):
            since = "since the session began" if name in first else "and did not exist at first"
            yield Mistake(
                "prompt", name, "", tokens, f"{name} has grown by {tokens} tokens {since}",
                "take out what most turns do not use",
            )
    changes = len(prefixes) - 1
    if changes > CHANGES_MAX:
        names = [name for a, b in pairwise(prefixes) for name in changed_parts(a, b)]
        most = max(dict.fromkeys(names), key=names.count, default="prefix")
        own = next((texts[most] for texts in reversed(had) if most in texts), "")
        yield Mistake(
            "prompt", most, "", estimate(own, counts),
            f"the prefix changed {changes} times in this session, {names.count(most)} times by "
            f"{most}; each time all {_weight(prefixes[-1], counts)} tokens were paid for again",
            f"keep {most} stable: put what changes into a message",
        )


# -- results of tools ------------------------------------------------------------------------------


def in_results(
    lines: Sequence[Line], since: int = 0, counts: str = NEW
) -> Iterator[Mistake]:
    """Finds log output, repetitions and whole files in the results from line `since` on."""
    args = {line.call: line.body for line in lines if line.kind in ("call", "asks")}
    earlier = EarlierTexts(lines)
    for place in range(since, len(lines)):
        line = lines[place]
        if line.kind != "result" or line.body is None or line.name in OURS:
            continue
        text = (line.body.inline or b"").decode("utf-8", "replace")
        tokens = estimate(text, counts)
        if tokens < RESULT_TOKENS_MIN:
            continue
        for kind, found in (
            ("log", _log(text)),
            ("echo", echo(text, args.get(line.call), earlier.before(place))),
            ("search", _search(line.name, text, tokens, counts)),
        ):
            if found is not None:
                yield Mistake(kind, line.name, line.call, tokens, *found)


_Found = tuple[str, str] | None


def _log(text: str) -> _Found:
    left_out = _LEFT_OUT.search(text)
    if text.startswith(_SERVED) and left_out:
        what = f"a raw log of {left_out['whole']} bytes, of which the end was shown"
        return what, "let the tool filter it: the rest is never read"
    # Cut JSON is invalid, so the number of lines is estimated from the lines that are left and from
    # the size of the missing part.
    cut = text[:1] == "{" and left_out
    for part in (text.replace("\\n", "\n"),) if cut else leaves(text) or (text,):
        count, about = part.count("\n") + 1, ""
        if cut:
            whole, missing = int(cut["whole"]), int(cut["missing"])
            count, about = (count - 3) * whole // max(1, whole - missing), "about "  # the notice
        if count > LOG_LINES_MAX + OWN_LINES and looks_like_log(part, numbered=True):
            last = f"return its last {LOG_LINES_MAX} lines, or let the tool filter it"
            return f"{about}{count} lines of a raw log", last
    return None


def _search(name: str, text: str, tokens: int, counts: str) -> _Found:
    if not SEARCHES.search(name):
        return None
    snippets = "return 200 tokens on each side of a match, and name the place"
    if tokens > SEARCH_TOKENS_MAX:
        return f"a search that returned {tokens} tokens", snippets
    largest = max((estimate(leaf, counts) for leaf in leaves(text)), default=0)
    if largest > HIT_TOKENS_MAX:
        return f"one hit of the search has {largest} tokens", snippets
    return None


# -- while a worker runs ---------------------------------------------------------------------------


class Watch:
    """Checks sessions when they change, and reports each finding once per session, kind and
    culprit. A check reads only what is new since the last check. Only one thread may use it.

    since: the first offset to check in a session; an earlier watch has checked everything before
    it. growth: the prompt sizes of earlier sessions.
    """

    SESSIONS_MAX = 1_000
    """How many sessions are remembered. A finding on a forgotten session may be reported again."""

    def __init__(
        self,
        since: Callable[[str], int] = lambda _session_id: 0,
        growth: Growth | None = None,
    ) -> None:
        self._since = since
        self._growth = growth or Growth()
        self._seen: dict[str, _Progress] = {}

    def check(self, views: SessionViews, read: ReadBlob | None = None) -> list[Mistake]:
        """The new findings in a session."""
        seen = self._seen.pop(views.session_id, None) or self._first_seen(views, read)
        self._seen[views.session_id] = seen
        if len(self._seen) > self.SESSIONS_MAX:
            del self._seen[next(iter(self._seen))]
        rows = views.transcript.lines
        found: list[Mistake] = []
        counts = views.context.counts
        lines, prefixes = seen.lines, seen.prefixes
        # Set before the checks, so that an input that makes a check fail does not hide later input.
        seen.lines, seen.prefixes = len(rows), len(views.context.prefixes)
        if seen.lines > lines:
            start = max(0, lines - ECHO_LINES_BACK)
            found += in_results(rows.since(start), lines - start, counts)
        if seen.prefixes > prefixes:
            found += in_prefixes(prefixes_of(views.context, read), counts=counts)
            found += in_sessions(self._growth.news(grown_in(views, self._growth, read)))
        return list(seen.new(found))

    def _first_seen(self, views: SessionViews, read: ReadBlob | None) -> "_Progress":
        """The state of a session that this watch sees for the first time."""
        since, view = self._since(views.session_id), views.context
        seen = _Progress(_before(since, views.transcript.lines), _before(since, view.prefixes))
        old = replace(view, prefixes=view.prefixes.upto(seen.prefixes))
        list(seen.new(in_prefixes(prefixes_of(old, read))))  # not to be reported again
        self._growth.news(grown_in(replace(views, context=old), self._growth, read))
        return seen


def _before(offset: int, rows: Rows) -> int:
    """The number of rows with an offset below this one."""
    count = len(rows)
    while count and rows[count - 1].offset >= offset:
        count -= 1
    return count


class _Progress:
    """How far a session was checked, and which findings were reported."""

    def __init__(self, lines: int, prefixes: int) -> None:
        self.lines, self.prefixes = lines, prefixes
        self.reported: set[tuple[str, str]] = set()

    def new(self, found: Iterable[Mistake]) -> Iterator[Mistake]:
        for mistake in found:
            key = (mistake.kind, mistake.culprit)
            if key not in self.reported:
                self.reported.add(key)
                yield mistake


__all__ = [
    "KINDS", "Mistake", "Watch", "grown_in", "in_growth", "in_prefixes", "in_results",
    "in_schemas", "in_sessions", "mistakes", "prefixes_of",
    "whole_prefix",
]
