"""The folds of written durable streams that a gateway holds ready: a cache of the log.

It is bounded, in all and by user. Whoever is past the limit is refused while their streams are in
use: to fold them in turns would cost others more than the memory. This file must not know HTTP.
"""

import json
from collections import Counter, OrderedDict
from time import monotonic
from typing import NamedTuple

from ...log.errors import Retry
from ...processors.fold.views import SessionViews
from ..contents import whole
from ..protocols.durable.writing import Written


class StreamLimits(NamedTuple):
    """How much lies in memory: bytes in all, bytes and streams of one user."""

    all_bytes: int = 512 * 1024 * 1024
    user_bytes: int = 64 * 1024 * 1024
    user_streams: int = 1_024
    idle_s: float = 60.0
    """After so long unused, a stream gives its place to another of its user."""


class TooManyStreams(Retry):
    """This user's streams hold as much as the gateway keeps for one user (429)."""


class Fold:
    """A stream in memory: whose it is, what it weighs, when it was used."""

    def __init__(self, user: str) -> None:
        self.user, self.written, self.weight, self.used = user, Written(), 0, monotonic()


class Streams:
    """Folds of sessions' items, each as far as somebody asked."""

    def __init__(self, gateway, limits: StreamLimits | None = None) -> None:
        self._gateway, self.limits = gateway, limits or StreamLimits()
        self._folds: OrderedDict[str, Fold] = OrderedDict()  # the last used one is last
        self.bytes: Counter[str] = Counter()
        self.streams: Counter[str] = Counter()

    def fold(self, views: SessionViews) -> Written:
        """The stream with every item of these views folded. Raises TooManyStreams."""
        if views.session_id not in self._folds:
            self.demand_room(views.state.user_id)
        return self.refold(views)

    def refold(self, views: SessionViews) -> Written:
        """As `fold`, whatever there is of this user: what was written must be answered."""
        name, user = views.session_id, views.state.user_id
        if name not in self._folds:
            self._folds[name] = Fold(user)
            self.streams[user] += 1
        fold = self._folds[name]
        fold.used = monotonic()
        self._folds.move_to_end(name)
        try:
            for batch in views.items.batches.since(fold.written.batches):
                (op,) = json.loads(whole(batch.content, self._gateway.read_blob))
                fold.written.take(op, batch.offset, batch.at)
        finally:
            self.bytes[user] += fold.written.weight - fold.weight
            fold.weight = fold.written.weight
        while self.bytes.total() > self.limits.all_bytes and len(self._folds) > 1:
            self._forget(next(iter(self._folds)))
        return fold.written

    def demand_room(self, user: str) -> None:
        """Forget what this user has not used for a while, where there is too much. Raises
        TooManyStreams if that is not enough."""
        idle_since = monotonic() - self.limits.idle_s
        for name, fold in list(self._folds.items()) if self._is_full(user) else ():
            if fold.user == user and fold.used <= idle_since and self._is_full(user):
                self._forget(name)
        if self._is_full(user):
            raise TooManyStreams(
                f"your durable streams in use hold {self.bytes[user]:,} bytes in "
                f"{self.streams[user]:,} streams; this gateway keeps {self.limits.user_bytes:,} "
                f"bytes and {self.limits.user_streams:,} streams for one user. Nothing was "
                "changed. Delete a stream, or use fewer at a time and try again in a minute"
            )

    def _is_full(self, user: str) -> bool:
        is_heavy = self.bytes[user] >= self.limits.user_bytes
        return is_heavy or self.streams[user] >= self.limits.user_streams

    def _forget(self, name: str) -> None:
        fold = self._folds.pop(name)
        self.bytes[fold.user] -= fold.weight
        self.streams[fold.user] -= 1
        self.bytes, self.streams = +self.bytes, +self.streams  # forgets who has none

    def expiry(self, session_id: str) -> dict[str, str]:
        """What HEAD says of a stream's life, as it was asked for."""
        fold = self._folds.get(session_id)
        life = None if fold is None else fold.written.life
        if life is None:
            return {}
        said = {"stream-ttl": life.ttl, "stream-expires-at": life.expires}
        return {header: value for header, value in said.items() if value is not None}
