"""fold, replay and bytes_per_turn: measure the worker's loop with its store, on an existing log.

fold: events per second of poll, fold, batch and wake, divided by those of a bare loop that consumes
and decodes every record. replay: events per second of refolding a whole log, divided by those of
the same loop. bytes_per_turn: bytes written to log and store in turn 200 of a long session, divided
by those in turn 20.
"""

import shutil
import time
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from foldlog.bench.history import Session
from foldlog.bench.measure import PARTITIONS, Installation, Ratio, paired
from foldlog.consumers.replay import Replay
from foldlog.log import partition_for
from foldlog.log.door import Reader
from foldlog.processors.effects.slots import Slots
from foldlog.processors.fold.session import fold
from foldlog.processors.store.store import Belongs, DictBackend, RocksBackend, Store
from foldlog.processors.worker.actions import Actions
from foldlog.processors.worker.assemble import SystemClock
from foldlog.processors.worker.loop import tune_gc
from foldlog.processors.worker.worker import Identity, Worker
from foldlog.schemas.codec import Entry, encode, entry_of, headers_for
from foldlog.schemas.topics import SESSION_EVENTS

SESSIONS, TURNS = 200, 12  # 200 sessions of 12 turns: about 62,000 events
BELONGS = Belongs("bench", "bench", "bench")


def write_log(here: Installation) -> int:
    """Produce the sessions with interleaved turns, and return the number of records."""
    producer = here.log.producer()
    offsets = [count() for _ in range(PARTITIONS)]
    names = [f"bench-{n}" for n in range(SESSIONS)]
    sessions = [Session(name, offsets[partition_for(name, PARTITIONS)]) for name in names]
    records = 0

    def put(session: Session, events: Any) -> None:
        nonlocal records
        for writer, event in events:
            name = session.views.session_id
            producer.append(SESSION_EVENTS, name, encode(event), headers_for(event, writer))
            records += 1

    for session in sessions:
        put(session, session.opened())
    for _ in range(TURNS):
        for session in sessions:
            put(session, session.turn())
        producer.flush(30)
    producer.close()
    return records


def _reader(here: Installation) -> Reader:
    return here.log.reader(SESSION_EVENTS, here.log.first_offsets(SESSION_EVENTS))


def _consume(here: Installation, records: int, take) -> float:
    """Events per second of a loop over the whole log."""
    reader = _reader(here)
    try:
        consumed, first = 0, 0.0
        while consumed < records:
            batch = reader.poll(1.0)
            first = first or time.perf_counter()  # excludes the time to connect
            take(batch)
            consumed += len(batch)
        return consumed / (time.perf_counter() - first)
    finally:
        reader.close()


def _nothing(*_: Any, **__: Any) -> None:
    """An action that this bench never needs."""


def _worker(store_dir: Path) -> Worker:
    """A worker that folds and stores, without effects."""
    slots = Slots(1)
    actions = Actions(
        "bench/1", _nothing, None, _nothing, _nothing, slots, slots, SystemClock(), _nothing
    )

    def open_store(partition: int, *, fresh: bool) -> Store:
        store = Store(RocksBackend(store_dir / str(partition)))
        store.claim(BELONGS)
        return store

    return Worker(
        Identity("bench", "1"),
        ("sessions", "models", "tools"),
        (),
        open_store,
        actions,
        SystemClock(),
        _nothing,
    )


def _decode(here: Installation, records: int) -> float:
    """The bare loop: consumes and decodes every record."""

    def take(batch) -> None:
        for record in batch:
            entry_of(record, chunks=True)

    return _consume(here, records, take)


def fold_ratio(here: Installation, runs: int) -> Ratio:
    """The fold bench on this installation."""
    records = write_log(here)
    tune_gc()  # like a worker's process, for both sides

    def ours() -> float:
        directory = here.home / "stores"
        worker = _worker(directory)
        worker.assigned(here.log.first_offsets(SESSION_EVENTS))

        def take(batch) -> None:
            worker.consume(batch)
            worker.tick()

        try:
            return _consume(here, records, take)
        finally:
            worker.close()
            shutil.rmtree(directory)

    bare = partial(_decode, here, records)
    return paired("fold", ours, bare, unit="events/s", runs=runs, aim="at least 0.7, aim above 1")


def replay(here: Installation, runs: int) -> Ratio:
    """Events per second of refolding a whole log into every view of every session."""
    records = write_log(here)
    tune_gc()

    def ours() -> float:
        began = time.perf_counter()
        steps = sum(1 for _ in Replay(here.log).steps())
        assert steps == records, f"{steps} events of {records} were folded"
        return steps / (time.perf_counter() - began)

    note = f"{records:,} events of {SESSIONS} sessions; over reading and decoding every one of them"
    bare = partial(_decode, here, records)
    return paired("replay", ours, bare, unit="events/s", runs=runs, aim="at least 0.5", note=note)


class _Counting(DictBackend):
    """Counts the bytes written."""

    written = 0

    def write(self, puts, deletes) -> None:
        puts = list(puts)
        self.written += sum(len(key) + len(value) for key, value in puts)
        super().write(puts, deletes)


def bytes_per_turn(runs: int = 1) -> Ratio:
    """The bytes of log and store in turn 200 divided by those in turn 20, with one batch per turn.

    The bench is deterministic, so one run is enough.
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
