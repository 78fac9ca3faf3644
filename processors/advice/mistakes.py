"""Detects five kinds of mistakes that waste tokens. Each finding names the culprit (a tool or a
part of the prompt) and the number of tokens concerned.

The functions are pure functions over views. They run in the worker during development (`Watch`) and
in `doctor`. Findings are advice; no decision depends on them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple

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
from ..tools.results import is_log_tail, left_out_in
from ..tools.tiers import FIND, SCHEMA_TOKENS, USE
from .prefix_drift import changed_parts, parts, unstable_parts
from .prompt_growth import GROWTH_TOKENS_MAX, Group, GrownPart, Growth
from .tool_echo import ECHO_LINES_BACK, ECHO_SHARE, EarlierTexts, Echo, echo, leaves

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


class MistakeCode(StrEnum):
    """What was found."""

    LOG = "log"
    LOG_ESTIMATED = "log_estimated"
    LOG_END_SHOWN = "log_end_shown"
    ECHO_OF_ARGUMENTS = "echo_of_arguments"
    ECHO_OF_CALL = "echo_of_call"
    ECHO_OF_MESSAGE = "echo_of_message"
    SCHEMA_LARGE = "schema_large"
    SCHEMAS_LARGE = "schemas_large"
    SEARCH_LARGE = "search_large"
    HIT_LARGE = "hit_large"
    PART_UNSTABLE = "part_unstable"
    PART_GREW = "part_grew"
    PART_ADDED = "part_added"
    PART_CHANGES = "part_changes"
    PART_GREW_OVER_SESSIONS = "part_grew_over_sessions"
    MEMORY_GREW_OVER_SESSIONS = "memory_grew_over_sessions"


class Words(NamedTuple):
    """A mistake in words. kind: one of KINDS; do: the remedy. `text` and `do` have names of the
    mistake's values in braces."""

    kind: str
    text: str
    do: str


_LAST_LINES = f"return its last {LOG_LINES_MAX} lines, or let the tool filter it"
_ONLY_NEW = "return only what is new, and refer to what is known"
_SNIPPETS = "return 200 tokens on each side of a match, and name the place"
_TAKE_OUT = "take out what most turns do not use"
_OVER_SESSIONS = (
    "{culprit} has grown by {tokens} tokens from session to session: {was} in session {since}, "
    "{now} now, {sessions} later"
)

WORDS: dict[MistakeCode, Words] = {
    MistakeCode.LOG: Words("log", "{lines} lines of a raw log", _LAST_LINES),
    MistakeCode.LOG_ESTIMATED: Words("log", "about {lines} lines of a raw log", _LAST_LINES),
    MistakeCode.LOG_END_SHOWN: Words(
        "log", "a raw log of {whole} bytes, of which the end was shown",
        "let the tool filter it: the rest is never read",
    ),
    MistakeCode.ECHO_OF_ARGUMENTS: Words(
        "echo", "{percent} % of the result are its own arguments", _ONLY_NEW
    ),
    MistakeCode.ECHO_OF_CALL: Words(
        "echo", "{percent} % of the result repeats {name} {call}", _ONLY_NEW
    ),
    MistakeCode.ECHO_OF_MESSAGE: Words(
        "echo", "{percent} % of the result repeats the {kind} of turn {turn}", _ONLY_NEW
    ),
    MistakeCode.SCHEMA_LARGE: Words(
        "schema", "the schema of {culprit} is in every request",
        f"describe it in {TOOL_TOKENS_MAX} tokens, or put it behind a tool search",
    ),
    MistakeCode.SCHEMAS_LARGE: Words(
        "schema", "{count} tools; the largest are {largest}",
        "put rarely used ones behind a tool search",
    ),
    MistakeCode.SEARCH_LARGE: Words(
        "search", "a search that returned {tokens} tokens", _SNIPPETS
    ),
    MistakeCode.HIT_LARGE: Words("search", "one hit of the search has {hit} tokens", _SNIPPETS),
    MistakeCode.PART_UNSTABLE: Words(
        "prompt", "{culprit} contains what looks like a {kind}: {found}",
        "if it changes, every request pays for all {prefix} tokens of the prefix: put it in a "
        "message instead",
    ),
    MistakeCode.PART_GREW: Words(
        "prompt", "{culprit} has grown by {tokens} tokens since the session began", _TAKE_OUT
    ),
    MistakeCode.PART_ADDED: Words(
        "prompt", "{culprit} has grown by {tokens} tokens and did not exist at first", _TAKE_OUT
    ),
    MistakeCode.PART_CHANGES: Words(
        "prompt",
        "the prefix changed {changes} times in this session, {own} times by {culprit}; each time "
        "all {prefix} tokens were paid for again",
        "keep {culprit} stable: put what changes into a message",
    ),
    MistakeCode.PART_GREW_OVER_SESSIONS: Words("prompt", _OVER_SESSIONS, _TAKE_OUT),
    MistakeCode.MEMORY_GREW_OVER_SESSIONS: Words(
        "prompt", _OVER_SESSIONS, "retire or archive what most turns do not use"
    ),
}
SHOWN: dict[str, Callable[[Any], str]] = {
    "largest": ", ".join,
    "sessions": lambda count: "1 session" if count == 1 else f"{count} sessions",
}
"""The values that are not shown as they are."""


class Mistake(NamedTuple):
    """One finding.

    culprit: a tool, a part of the prefix, or `all tools`.
    call: the key of the call, or ''.
    tokens: the size of the culprit, or for growth the increase of its size.
    values: further facts, which its words name.
    """

    code: MistakeCode
    culprit: str
    call: str
    tokens: int
    values: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """One of KINDS."""
        return WORDS[self.code].kind

    @property
    def text(self) -> str:
        """What was found, for people."""
        return self._filled(WORDS[self.code].text)

    @property
    def do(self) -> str:
        """The remedy, for people."""
        return self._filled(WORDS[self.code].do)

    def _filled(self, words: str) -> str:
        values = {"culprit": self.culprit, "tokens": self.tokens, **self.values}
        return words.format_map({name: SHOWN.get(name, str)(x) for name, x in values.items()})

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
            MistakeCode.PART_UNSTABLE, found.part, "", estimate(texts[found.part], counts),
            {"kind": found.kind, "found": found.text, "prefix": all_of_it},
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
            yield Mistake(MistakeCode.SCHEMA_LARGE, name, "", tokens, {})
    total = sum(sizes.values())
    if total > TOOLS_TOKENS_MAX:
        largest = sorted(sizes.keys() - ours, key=lambda name: (-sizes[name], name))[:3]
        yield Mistake(
            MistakeCode.SCHEMAS_LARGE, "all tools", "", total,
            {"count": len(sizes), "largest": largest},
        )


def in_sessions(grown: Iterable[GrownPart]) -> Iterator[Mistake]:
    """Parts of an agent's prompt that have grown from session to session."""
    for each in grown:
        code = MistakeCode.PART_GREW_OVER_SESSIONS
        if each.part.startswith("memory"):
            code = MistakeCode.MEMORY_GREW_OVER_SESSIONS
        yield Mistake(code, each.part, "", each.tokens, each._asdict())


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
            code = MistakeCode.PART_GREW if name in first else MistakeCode.PART_ADDED
            yield Mistake(code, name, "", tokens, {})
    changes = len(prefixes) - 1
    if changes > CHANGES_MAX:
        names = [name for a, b in pairwise(prefixes) for name in changed_parts(a, b)]
        most = max(dict.fromkeys(names), key=names.count, default="prefix")
        own = next((texts[most] for texts in reversed(had) if most in texts), "")
        weight = _weight(prefixes[-1], counts)
        yield Mistake(
            MistakeCode.PART_CHANGES, most, "", estimate(own, counts),
            {"changes": changes, "own": names.count(most), "prefix": weight},
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
        for found in (
            _log(text),
            _echo(echo(text, args.get(line.call), earlier.before(place))),
            _search(line.name, text, tokens, counts),
        ):
            if found is not None:
                code, values = found
                yield Mistake(code, line.name, line.call, tokens, values)


_Found = tuple[MistakeCode, dict[str, Any]] | None


def _log(text: str) -> _Found:
    left_out = left_out_in(text)
    if is_log_tail(text) and left_out:
        return MistakeCode.LOG_END_SHOWN, {"whole": left_out.whole}
    # Cut JSON is invalid, so the number of lines is estimated from the lines that are left and from
    # the size of the missing part.
    cut = left_out if text[:1] == "{" else None
    for part in (text.replace("\\n", "\n"),) if cut else leaves(text) or (text,):
        count, code = part.count("\n") + 1, MistakeCode.LOG
        if cut:
            count = (count - 3) * cut.whole // max(1, cut.whole - cut.missing)  # 3: the notice
            code = MistakeCode.LOG_ESTIMATED
        if count > LOG_LINES_MAX + OWN_LINES and looks_like_log(part, numbered=True):
            return code, {"lines": count}
    return None


def _echo(found: Echo | None) -> _Found:
    if found is None:
        return None
    line, percent = found.line, found.percent
    if line is None:
        return MistakeCode.ECHO_OF_ARGUMENTS, {"percent": percent}
    if line.call:
        values = {"percent": percent, "name": line.name, "call": line.call}
        return MistakeCode.ECHO_OF_CALL, values
    values = {"percent": percent, "kind": line.kind, "turn": line.turn}
    return MistakeCode.ECHO_OF_MESSAGE, values


def _search(name: str, text: str, tokens: int, counts: str) -> _Found:
    if not SEARCHES.search(name):
        return None
    if tokens > SEARCH_TOKENS_MAX:
        return MistakeCode.SEARCH_LARGE, {}
    largest = max((estimate(leaf, counts) for leaf in leaves(text)), default=0)
    return (MistakeCode.HIT_LARGE, {"hit": largest}) if largest > HIT_TOKENS_MAX else None


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
    "KINDS", "WORDS", "Mistake", "MistakeCode", "Watch", "Words", "grown_in", "in_growth",
    "in_prefixes", "in_results", "in_schemas", "in_sessions", "mistakes", "prefixes_of",
    "whole_prefix",
]
