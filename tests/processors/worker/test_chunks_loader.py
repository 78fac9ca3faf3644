"""What lost answers had said is read beside the poll thread: few at once, nothing left behind."""

import threading

from foldlog.processors.worker.resumption import READS_MAX, ChunksLoader

PATIENCE_S = 20
SESSIONS = READS_MAX + 6


def test_after_a_takeover_few_sessions_are_read_at_once_and_all_of_them_in_the_end():
    news, read, running = threading.Condition(), [], []
    peak = 0

    def reading(session_id, _partition, _offset):
        nonlocal peak
        with news:
            running.append(session_id)
            peak = max(peak, len(running))
            news.notify_all()
            assert news.wait_for(lambda: may_end, PATIENCE_S)
            running.remove(session_id)
            read.append(session_id)
            news.notify_all()
        return []

    may_end, aside = False, ChunksLoader(reading)
    for number in range(SESSIONS):
        assert aside.since(f"s{number}", 0, 0, 1) is None
    with news:
        assert news.wait_for(lambda: len(running) >= READS_MAX, PATIENCE_S)
        may_end = True
        news.notify_all()
        assert news.wait_for(lambda: len(read) == SESSIONS, PATIENCE_S)
    assert peak == READS_MAX


def test_what_nobody_comes_back_for_is_not_kept():
    aside = ChunksLoader(lambda *_place: ["said"], begin=lambda run: run())
    for attempt in range(1, 50):
        assert aside.since("s1", 0, 10 * attempt, attempt) is None
    assert len(aside._results) == 1
    assert aside.since("s1", 0, 490, 49) == ["said"]
    assert not aside._results
