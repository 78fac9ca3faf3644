"""Simulates the prompt cache: which tokens of a request are read, written or neither.

Numbers are plausible and repeatable, not exact: a token is a fixed number of characters of compact
JSON. Entries never expire, because no script may depend on a clock; if there are too many, the
oldest are evicted.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .models import facts_of
from .request import blocks_of
from .seal import canonical

# How many positions before a breakpoint are searched for an entry, as documented.
LOOK_BACK = 20
# Limits the memory of this process, because an entry takes about 100 bytes.
ENTRIES_MAX = 20_000
# The overhead of a message or block besides its text.
_FRAME_TOKENS = 4


def estimate(value: Any, chars_per_token: float) -> int:
    """The estimated tokens of a block, a tool or a text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return math.ceil(len(text) / chars_per_token) if text else 0


@dataclass(frozen=True, slots=True)
class Position:
    """The end of one tool, system block or message block in prompt order.

    key: the hash of the request up to this position.
    tokens: the estimated tokens up to this position.
    ttl: "5m" or "1h" if there is a breakpoint.
    """

    key: bytes
    tokens: int
    ttl: str | None


@dataclass(frozen=True, slots=True)
class CacheUse:
    """How a request uses the cache, in tokens."""

    read: int
    write_5m: int
    write_1h: int
    uncached: int
    keys: tuple[bytes, ...] = ()

    def usage(self) -> dict[str, Any]:
        """The input side of a `usage` object."""
        return {
            "input_tokens": self.uncached,
            "cache_creation_input_tokens": self.write_5m + self.write_1h,
            "cache_read_input_tokens": self.read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": self.write_5m,
                "ephemeral_1h_input_tokens": self.write_1h,
            },
        }


def positions_of(body: Mapping[str, Any]) -> list[Position]:
    """Every position of a request in prompt order: tools, system, messages."""
    chars_per_token = facts_of(body["model"]).chars_per_token
    parts = [("tools", "", tool) for tool in body.get("tools") or ()]
    parts += [("system", "", block) for block in blocks_of(body.get("system"))]
    for message in body["messages"]:
        blocks = blocks_of(message["content"])
        parts += [("messages", message["role"], block) for block in blocks]
    positions: list[Position] = []
    hasher, tokens = hashlib.sha256(body["model"].encode()), 0
    for part, role, value in parts:
        data = canonical(value)
        hasher.update(f"\0{part}\0{role}\0".encode() + data)
        tokens += math.ceil(len(data) / chars_per_token) + _FRAME_TOKENS
        mark = value.get("cache_control")
        ttl = mark.get("ttl", "5m") if mark else None
        positions.append(Position(hasher.digest(), tokens, ttl))
    automatic = body.get("cache_control")
    if automatic and positions:
        ttl = positions[-1].ttl or automatic.get("ttl", "5m")
        positions[-1] = replace(positions[-1], ttl=ttl)
    return positions


class PromptCache:
    """The cached prefixes, by hash."""

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, None] = OrderedDict()

    def use(self, body: Mapping[str, Any]) -> CacheUse:
        """How this request would use the cache now. It does not change the cache: see `store`."""
        positions = positions_of(body)
        total = positions[-1].tokens if positions else 0
        least = facts_of(body["model"]).cache_tokens_min
        marks = [i for i, p in enumerate(positions) if p.ttl and p.tokens >= least]
        if not marks:
            return CacheUse(0, 0, 0, total)
        hit = max((self._hit(positions, i) for i in marks), default=0)
        last = positions[marks[-1]].tokens
        long = max((positions[i].tokens for i in marks if positions[i].ttl == "1h"), default=0)
        write_1h = max(0, long - hit)
        write_5m = max(0, last - max(hit, long))
        keys = tuple(positions[i].key for i in marks)
        return CacheUse(hit, write_5m, write_1h, total - max(hit, last), keys)

    def _hit(self, positions: list[Position], mark: int) -> int:
        for i in range(mark, max(-1, mark - LOOK_BACK), -1):
            if positions[i].key in self._entries:
                return positions[i].tokens
        return 0

    def store(self, use: CacheUse) -> None:
        """Store the prefixes of a request. Called when the answer to the request has started."""
        for key in use.keys:
            self._entries[key] = None
            self._entries.move_to_end(key)
        while len(self._entries) > ENTRIES_MAX:
            self._entries.popitem(last=False)
