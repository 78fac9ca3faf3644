"""The cache of folded durable streams in a gateway's memory; the log is the source of truth.

The cache is bounded, in total and for each user. If a user is at the limit and all of their streams
are in use, a request for another stream gets an error. If the cache evicted one of them instead,
the streams would be evicted and refolded again and again, which would slow down other users.
"""

import json
from collections import Counter, OrderedDict
from time import monotonic
from typing import NamedTuple

from ...log.errors import Retry
from ...processors.fold.views import SessionViews
from ..contents import whole
from ..protocols.durable.writing import WrittenStream


class StreamLimits(NamedTuple):
    """Limits of the cache: bytes in total, and bytes and streams of one user."""

    all_bytes: int = 512 * 1024 * 1024
    user_bytes: int = 64 * 1024 * 1024
    user_streams: int = 1_024
    idle_s: float = 60.0
    """A stream that is unused for this long may be evicted for another stream of the same user."""


class TooManyStreams(Retry):
    """This user's streams have reached the gateway's limit for one user (429)."""


class CachedStream:
    """A stream in memory: its user, its size in bytes, and when it was last used."""

    def __init__(self, user: str) -> None:
        self.user, self.written, self.size, self.used = user, WrittenStream(), 0, monotonic()


class StreamCache:
    """The folded streams. Each is folded up to the views that were last passed to `fold` or
    `refold`.
    """

    def __init__(self, gateway, limits: StreamLimits | None = None) -> None:
        self._gateway, self.limits = gateway, limits or StreamLimits()
        self._folds: OrderedDict[str, CachedStream] = OrderedDict()  # least recently used first
        self.bytes: Counter[str] = Counter()
        self.streams: Counter[str] = Counter()

    def fold(self, views: SessionViews) -> WrittenStream:
        """Fold the items in these views that are not folded yet, and return the stream. Raises
        TooManyStreams.
        """
        if views.session_id not in self._folds:
            self.demand_room(views.state.user_id)
        return self.refold(views)

    def refold(self, views: SessionViews) -> WrittenStream:
        """Like `fold`, but without the limit, because a write that is in the log must get its
        response.
        """
        name, user = views.session_id, views.state.user_id
        if name not in self._folds:
            self._folds[name] = CachedStream(user)
            self.streams[user] += 1
        fold = self._folds[name]
        fold.used = monotonic()
        self._folds.move_to_end(name)
        try:
            for batch in views.items.batches.since(fold.written.batches):
                (op,) = json.loads(whole(batch.content, self._gateway.read_blob))
                fold.written.take(op, batch.offset, batch.at)
        finally:
            self.bytes[user] += fold.written.size - fold.size
            fold.size = fold.written.size
        while self.bytes.total() > self.limits.all_bytes and len(self._folds) > 1:
            self._forget(next(iter(self._folds)))
        return fold.written

    def demand_room(self, user: str) -> None:
        """If this user is at the limit, evict streams that they have not used for a while. Raises
        TooManyStreams if the user is still at the limit.
        """
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
        self.bytes[fold.user] -= fold.size
        self.streams[fold.user] -= 1
        self.bytes, self.streams = +self.bytes, +self.streams  # drops users whose count is zero

    def expiry(self, session_id: str) -> dict[str, str]:
        """The headers about a stream's expiry in the response to HEAD, as the stream's creator sent
        them.
        """
        fold = self._folds.get(session_id)
        life = None if fold is None else fold.written.life
        if life is None:
            return {}
        headers = {"stream-ttl": life.ttl, "stream-expires-at": life.expires}
        return {header: value for header, value in headers.items() if value is not None}
