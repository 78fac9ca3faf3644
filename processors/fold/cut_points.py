"""Where a conversation may be cut: between two messages, never between a call and its result.

A cut is the ordinal of the first fragment that is kept. A parallel group stays whole because its
results lie in one run of fragments, and what is kept of a run that is cut has no results.
Pure; it must not know tokens, summaries or how a request is written.
"""

from functools import lru_cache
from typing import Any, Protocol

from ...schemas.nesting import parsed
from .projections.context_view import Fragment, Request

KEPT_MESSAGES = 12  # S3.4: compaction leaves the newest of them as they are
SPOKEN = ("assistant", "partial")
SLIDING = "sliding_window_"
STRATEGIES = ("full", "compacted", f"{SLIDING}N")


class Fragments(Protocol):
    """Fragments by their place: the rows of a view, or a list."""

    def __len__(self) -> int: ...
    def __getitem__(self, place: int, /) -> Fragment: ...


def is_cut(fragments: Fragments, place: int) -> bool:
    """Whether what lies before `place` may be left out."""
    if place <= 0 or place >= len(fragments):
        return place == 0
    if fragments[place].kind in SPOKEN:
        return fragments[place - 1].kind not in SPOKEN  # a paused answer and its going on are one
    for later in range(place, len(fragments)):
        if fragments[later].kind in SPOKEN:
            return True
        if fragments[later].kind == "result":
            return False
    return True


def cut_keeping(fragments: Fragments, messages: int, after: int) -> int | None:
    """The newest cut that keeps so many messages and lies behind `after`, or None."""
    kept, role = 0, None
    for place in range(len(fragments) - 1, after, -1):
        speaker = fragments[place].kind in SPOKEN
        if speaker is not role:
            role, kept = speaker, kept + 1
        begins = (fragments[place - 1].kind in SPOKEN) is not speaker
        if kept >= messages and begins and is_cut(fragments, place):
            return place
    return None


def messages_from(fragments: Fragments, place: int) -> int:
    """How many messages lie at and after a place, as the roles alternate."""
    roles = [fragments[n].kind in SPOKEN for n in range(place, len(fragments))]
    return sum(1 for n, role in enumerate(roles) if n == 0 or role is not roles[n - 1])


@lru_cache(64)
def window_size(strategy: str) -> int | None:
    """N of `sliding_window_N`, or None for another strategy. Raises ValueError if it is unknown."""
    if strategy in ("full", "compacted"):
        return None
    number = strategy.removeprefix(SLIDING)
    if not strategy.startswith(SLIDING) or not number.isdecimal() or int(number) < 1:
        raise ValueError(f"no context strategy {strategy!r}: {', '.join(STRATEGIES)}")
    return int(number)


def window_start(fragments: Fragments, start: int, size: int) -> int:
    """Where a sliding window begins: as before while it holds `size` messages at most.

    Else it moves by a quarter more than it must, because every move costs the cached prefix.
    """
    if messages_from(fragments, start) <= size:
        return start
    moved = cut_keeping(fragments, max(1, size - size // 4), start)
    return start if moved is None else moved


def answers_calls(fragments: Fragments) -> bool:
    """Whether what is said next stands behind results of calls, with no word in between."""
    for place in range(len(fragments) - 1, -1, -1):
        if fragments[place].kind == "result":
            return True
        if fragments[place].kind in SPOKEN and _says_something(fragments[place]):
            return False
    return False


def must_think(request: Request | None, fragments: Fragments) -> bool:
    """Whether the next request can't leave out what was thought: with a fixed thinking budget the
    API demands it before a call whose result is said."""
    return request is not None and is_fixed(request.params) and answers_calls(fragments)


def _says_something(answer: Fragment) -> bool:
    """Whether a request surely says something of an answer; if not, what stands around it meets."""
    if answer.body is None:
        return True
    try:
        blocks: Any = parsed(answer.body.inline or b"[]")  # of what is elsewhere nothing is sure
        return any(_is_said(block, answer.stop_reason) for block in blocks)
    except (ValueError, AttributeError, TypeError):
        return True


def _is_said(block: Any, stop_reason: str) -> bool:
    match block:
        case {"type": "text", "text": text}:
            return bool(text.strip())
        case {"type": "tool_use"}:
            return stop_reason == "tool_use"
        case {"type": "thinking" | "redacted_thinking" | "server_tool_use" | "mcp_tool_use"}:
            return False
    return True


@lru_cache(64)  # of the few agents there are
def is_fixed(params: bytes) -> bool:
    """Whether request parameters fix how much is thought. Then the thinking before a call must be
    said again with its result, and as it is bound to its prefix nothing may move before that."""
    try:
        fields: Any = parsed(params)
        thinking = fields.get("thinking")
    except (ValueError, AttributeError):
        return False
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"
