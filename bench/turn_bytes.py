"""bytes_per_turn: the bytes that turn 200 of a long session writes to log and store, divided by
those of turn 20."""

from itertools import count

from foldlog.bench.history import Session
from foldlog.bench.measure import Ratio
from foldlog.processors.fold.session import fold
from foldlog.processors.store.store import DictBackend, Store
from foldlog.schemas.codec import Entry, encode, headers_for


class _Counting(DictBackend):
    written = 0

    def write(self, puts, deletes) -> None:
        puts = list(puts)
        self.written += sum(len(key) + len(value) for key, value in puts)
        super().write(puts, deletes)


def bytes_per_turn(runs: int = 1) -> Ratio:
    """The bytes that turn 200 writes to log and store, divided by those of turn 20. Each turn is
    one batch.

    It is deterministic, so one run is enough.
    """
    session, backend = Session("long", count()), _Counting()
    store, logged, offset = Store(backend), 0, 0
    at: dict[int, int] = {}
    views = session.views
    events = list(session.opened())
    for turn in range(1, 201):
        events += list(session.turn())
        before = logged + backend.written
        for writer, event in events:
            logged += len(encode(event)) + sum(
                len(k) + len(v) for k, v in headers_for(event, writer)
            )
            views, _ = fold(views, Entry("long", 0, offset, offset, writer, event))
            offset += 1
        store.write({"long": views}, {}, lambda v: v.turn.open, store.partition, store.cursor)
        at[turn] = logged + backend.written - before
        events = []
    aim = "at most 1.2"
    return Ratio("bytes_per_turn", at[200], at[20], "bytes", at[200] / at[20], 1, aim)
