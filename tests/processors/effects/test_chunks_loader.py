"""The chunks of lost attempts are read outside the poll thread, for a few sessions at a time."""

import threading

from foldlog.processors.effects.resumption import READS_MAX, ChunksLoader

PATIENCE_S = 90
SESSIONS = READS_MAX + 6


def test_after_a_takeover_reads_are_bounded_and_every_session_is_read():
    changed, read, running = threading.Condition(), [], []
    peak = 0

    def reading(session_id, _partition, _offset):
        nonlocal peak
        with changed:
            running.append(session_id)
            peak = max(peak, len(running))
            changed.notify_all()
            assert changed.wait_for(lambda: may_end, PATIENCE_S)
            running.remove(session_id)
            read.append(session_id)
            changed.notify_all()
        return []

    may_end, loader = False, ChunksLoader(reading)
    for number in range(SESSIONS):
        assert loader.since(f"s{number}", 0, 0, 1) is None
    with changed:
        assert changed.wait_for(lambda: len(running) >= READS_MAX, PATIENCE_S)
        may_end = True
        changed.notify_all()
        assert changed.wait_for(lambda: len(read) == SESSIONS, PATIENCE_S)
    assert peak == READS_MAX


def test_a_result_that_nobody_polls_for_is_dropped():
    loader = ChunksLoader(lambda *_place: ["chunk"], begin=lambda run: run())
    for attempt in range(1, 50):
        assert loader.since("s1", 0, 10 * attempt, attempt) is None
    assert len(loader._results) == 1
    assert loader.since("s1", 0, 490, 49) == ["chunk"]
    assert not loader._results
