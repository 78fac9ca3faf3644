"""Where a conversation may be cut: between two messages, never between a call and its result.

A cut is the ordinal of the first fragment that is kept. The results of parallel calls are
consecutive fragments. A cut never separates a result from its call, so a group of parallel calls
stays whole. Pure, and independent of tokens and summaries.
"""

from functools import lru_cache
from typing import Any, Protocol

from ...schemas.nesting import parsed
from .projections.context_view import Fragment, Request

KEPT_MESSAGES = 12  # how many of the newest messages compaction keeps verbatim
SPOKEN = ("assistant", "partial")
SLIDING = "sliding_window_"
STRATEGIES = ("full", "compacted", f"{SLIDING}N")


class Fragments(Protocol):
    """Fragments by ordinal: the rows of a view, or a list."""

    def __len__(self) -> int: ...
    def __getitem__(self, place: int, /) -> Fragment: ...


def is_cut(fragments: Fragments, place: int) -> bool:
    """Whether the fragments before `place` may be left out."""
    if place <= 0 or place >= len(fragments):
        return place == 0
    if fragments[place].kind in SPOKEN:
        # A paused answer and its continuation are one answer.
        return fragments[place - 1].kind not in SPOKEN
    for later in range(place, len(fragments)):
        if fragments[later].kind in SPOKEN:
            return True
        if fragments[later].kind == "result":
            return False
    return True


def cut_keeping(fragments: Fragments, messages: int, after: int) -> int | None:
    """The newest cut after `after` that keeps this many messages, or None."""
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
    """The number of messages from `place` to the end. Consecutive fragments of the same role count
    as one message."""
    roles = [fragments[n].kind in SPOKEN for n in range(place, len(fragments))]
    return sum(1 for n, role in enumerate(roles) if n == 0 or role is not roles[n - 1])


@lru_cache(64)
def window_size(strategy: str) -> int | None:
    """N of `sliding_window_N`, or None for another strategy. Raises ValueError if the strategy is
    unknown."""
    if strategy in ("full", "compacted"):
        return None
    number = strategy.removeprefix(SLIDING)
    if not strategy.startswith(SLIDING) or not number.isdecimal() or int(number) < 1:
        raise ValueError(f"no context strategy {strategy!r}: {', '.join(STRATEGIES)}")
    return int(number)


def window_start(fragments: Fragments, start: int, size: int) -> int:
    """Where a sliding window begins. It begins at `start` while it has at most `size` messages.

    A longer window is cut to three quarters of `size`, so that its beginning moves rarely: each
    time it moves, the provider's cache of the request is lost.
    """
    if messages_from(fragments, start) <= size:
        return start
    moved = cut_keeping(fragments, max(1, size - size // 4), start)
    return start if moved is None else moved


def answers_calls(fragments: Fragments) -> bool:
    """Whether the next message follows results of calls, with no answer in between."""
    for place in range(len(fragments) - 1, -1, -1):
        if fragments[place].kind == "result":
            return True
        if fragments[place].kind in SPOKEN and _has_content(fragments[place]):
            return False
    return False


def must_think(request: Request | None, fragments: Fragments) -> bool:
    """Whether the next request must repeat the model's thinking. This is so if the thinking budget
    is fixed and the request sends results of calls: the API then requires the thinking with which
    the model proposed these calls."""
    return request is not None and is_fixed(request.params) and answers_calls(fragments)


def _has_content(answer: Fragment) -> bool:
    """Whether requests contain some part of this answer."""
    if answer.body is None:
        return True
    try:
        blocks: Any = parsed(answer.body.inline or b"[]")  # a blob is not read: it counts as empty
        return any(_is_sent(block, answer.stop_reason) for block in blocks)
    except (ValueError, AttributeError, TypeError):
        return True


def _is_sent(block: Any, stop_reason: str) -> bool:
    match block:
        case {"type": "text", "text": str(text)}:
            return bool(text.strip())
        case {"type": "text"}:
            return False
        case {"type": "tool_use"}:
            return stop_reason == "tool_use"
        case {"type": "thinking" | "redacted_thinking" | "server_tool_use" | "mcp_tool_use"}:
            return False
    return True


@lru_cache(64)  # there are few agents
def is_fixed(params: bytes) -> bool:
    """Whether the parameters fix the thinking budget. If so, a request with the result of a call
    must repeat the thinking with which the model proposed the call. The provider signs thinking for
    the request that led to it, so that request must be repeated unchanged, too."""
    try:
        fields: Any = parsed(params)
        thinking = fields.get("thinking")
    except (ValueError, AttributeError):
        return False
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"
