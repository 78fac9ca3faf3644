"""The folds of written durable streams that a gateway keeps ready: a cache of the log.

This file must not know HTTP.
"""

import json
from collections import OrderedDict

from ...processors.session import SessionViews
from ..contents import whole
from ..protocols.durable_written import Written

KEPT_MAX = 1_024
"""Streams kept folded: those that were used last."""


class Streams:
    """Folds of sessions' items, each as far as somebody asked."""

    def __init__(self, gateway) -> None:
        self._gateway = gateway
        self._folds: OrderedDict[str, Written] = OrderedDict()

    def fold(self, views: SessionViews) -> Written:
        """The stream with every item of these views folded."""
        name = views.session_id
        written = self._folds.setdefault(name, Written())
        self._folds.move_to_end(name)
        if len(self._folds) > KEPT_MAX:
            self._folds.popitem(last=False)
        for batch in views.items.batches.since(written.batches):
            (op,) = json.loads(whole(batch.content, self._gateway.read_blob))
            written.take(op, batch.offset, batch.at)
        return written

    def expiry(self, session_id: str) -> dict[str, str]:
        """What HEAD says of a stream's life, as it was asked for."""
        life = self._folds[session_id].life if session_id in self._folds else None
        if life is None:
            return {}
        said = {"stream-ttl": life.ttl, "stream-expires-at": life.expires}
        return {header: value for header, value in said.items() if value is not None}
