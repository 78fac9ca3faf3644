"""Detects system prompts that grow from session to session, and the part that grows.

The parts of each session's newest prefix are measured and compared with those of earlier sessions.
The agent's own parts (prompt, directive, managed instructions) are compared over all sessions of
the agent. Memory and the instruction files of a user or a project are compared only over sessions
of the same user and project, because they may be longer for another user. The state is small and
bounded; a process may save it, and can rebuild it from the sessions. Pure.
"""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from ...schemas.tokens import estimate
from ..fold.views import SessionViews
from ..request.prefix import Prefix
from .prefix_drift import parts

GROWTH_TOKENS_MAX = 500  # the size of one more feature in a prompt, which is rarely removed again
SESSIONS_BACK = 50  # finds a growth of 10 tokens per session; old deliberate changes are forgotten
GROUPS_MAX = 200  # groups of compared sessions; the least recently used are forgotten
_OWN = ("system prompt", "directive", "managed instructions")

Group = tuple[str, ...]
"""(agent,) or (agent, user, project): the sessions whose parts are compared."""


class GrownPart(NamedTuple):
    """A part that has grown. was: its tokens in the session `since`; now: its tokens in the checked
    session; sessions: the distance between the two sessions, which is 1 if the checked session
    comes right after `since`.
    """

    group: Group
    part: str
    was: int
    now: int
    since: str
    sessions: int

    @property
    def tokens(self) -> int:
        """The number of tokens by which it has grown."""
        return self.now - self.was


class _Sized(NamedTuple):
    """The tokens of each part of one session's prompt."""

    session_id: str
    tokens: Mapping[str, int]


class Growth:
    """The prompt sizes of the latest sessions, in the order in which they were checked.

    state: the result of an earlier object's `to_json()`; anything else is ignored.
    """

    def __init__(self, state: Any = None) -> None:
        self._sizes: OrderedDict[Group, list[_Sized]] = OrderedDict()
        self._reported: dict[Group, dict[str, int]] = {}
        self.checks = 0  # how often the state may have changed
        for row in _rows(state):
            group = tuple(row["group"])
            self._sizes[group] = [_Sized(id, sizes) for id, sizes in row["sessions"]]
            self._reported[group] = dict(row["told"])

    def to_json(self) -> list[dict[str, Any]]:
        """The state as JSON data."""
        return [
            {"group": [*group], "sessions": [[*one] for one in sizes],
             "told": self._reported.get(group, {})}
            for group, sizes in self._sizes.items()
        ]

    def add(
        self, views: SessionViews, prefix: Prefix, counts: str
    ) -> dict[Group, list[GrownPart]]:
        """Add a session's newest prefix. Returns the parts that have grown since earlier sessions,
        by the group of sessions with which they were compared."""
        self.checks += 1
        found: dict[Group, list[GrownPart]] = {}
        for group, sizes in _groups(views, prefix, counts).items():
            known = self._sizes.setdefault(group, [])
            self._sizes.move_to_end(group)
            one = _Sized(views.session_id, sizes)
            places = [n for n, had in enumerate(known) if had.session_id == one.session_id]
            if places:
                known[places[0]] = one
            else:
                known.append(one)
            del known[:-SESSIONS_BACK]
            found[group] = _compared(group, known, one)
        while len(self._sizes) > GROUPS_MAX:
            self._reported.pop(self._sizes.popitem(last=False)[0], None)
        return found

    def news(self, found: Mapping[Group, Sequence[GrownPart]]) -> list[GrownPart]:
        """The findings that were not reported before,
        or whose part has grown by the same amount again."""
        news = []
        for grown in chain.from_iterable(found.values()):
            reported = self._reported.setdefault(grown.group, {})
            before = reported.get(grown.part)
            if before is None or grown.now > before + GROWTH_TOKENS_MAX:
                reported[grown.part] = grown.now
                news.append(grown)
        return news


def _compared(group: Group, known: Sequence[_Sized], one: _Sized) -> list[GrownPart]:
    first = known[0]
    since = [had.session_id for had in known].index(one.session_id)
    return [
        GrownPart(group, part, first.tokens.get(part, 0), tokens, first.session_id, since)
        for part, tokens in one.tokens.items()
        if tokens - first.tokens.get(part, 0) > GROWTH_TOKENS_MAX
    ]


def _groups(views: SessionViews, prefix: Prefix, counts: str) -> dict[Group, dict[str, int]]:
    """The tokens of the parts of a prefix,
    by the group of sessions with which they are compared."""
    agent = views.turn.agent
    whose = (agent, views.state.user_id or "", views.state.project_id or "")
    found: dict[Group, dict[str, int]] = {}
    for part, text in parts(prefix).items():
        if not part.startswith("tool "):  # schemas have their own checks
            group = (agent,) if part.startswith(_OWN) else whose
            found.setdefault(group, {})[part] = estimate(text, counts)
    return found


def _rows(state: Any) -> list[dict[str, Any]]:
    """The rows of a state; [] if the value is not a state."""
    try:
        rows: list[dict[str, Any]] = json.loads(json.dumps(state or []))
        for row in rows:
            assert all(isinstance(name, str) for name in row["group"])
            for id, sizes in row["sessions"]:
                assert isinstance(id, str) and all(map(_is_size, sizes.items()))
            assert row["sessions"] and all(map(_is_size, row["told"].items()))
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError):
        return []
    return rows


def _is_size(item: tuple[Any, Any]) -> bool:
    return isinstance(item[0], str) and type(item[1]) is int
