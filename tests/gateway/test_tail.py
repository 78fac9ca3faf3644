"""The tail: its store is a cache; whatever becomes of it, the gateway shows what the log says."""

import threading
import time

import pytest

from foldlog.consumers.gateway.tail import Tail
from foldlog.processors.runtime import owned
from foldlog.processors.runtime.store import RocksBackend
from foldlog.producers.sessions import Sessions
from foldlog.tests.consumers.played import Played, memory_log, settings_in

PATIENCE_S = 20


@pytest.fixture
def log():
    return memory_log(threaded=True)


class Following:
    """A tail that runs, and everything it said and handed on."""

    def __init__(self, log, directory):
        self.said, self.batches, self._news = [], [], threading.Condition()
        self.tail = Tail(log, directory, self.said.append)
        self.tail.listen = self._take
        self.tail.start()

    def _take(self, batch):
        with self._news:
            self.batches.append(batch)
            self._news.notify_all()

    def until(self, holds):
        end = time.monotonic() + PATIENCE_S
        with self._news:  # chunks that nobody watches are no news
            while not self._news.wait_for(lambda: holds(self.tail), 0.05):
                assert time.monotonic() < end

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tail.close()


def talk(log, tmp_path, text="hi"):
    sessions = Sessions(log, settings_in(tmp_path))
    sessions.open("s1", agent="default")
    sessions.say("s1", text)
    played = Played(log, "s1")
    played.call()
    played.start()
    played.complete("hello")
    return played


def has_answer(tail):
    views = tail.views("s1")
    return views is not None and any(line.kind == "answer" for line in views.transcript.lines)


def test_it_begins_where_its_store_ends(log, tmp_path):
    played = talk(log, tmp_path)
    with Following(log, tmp_path / "gw") as first:
        first.until(has_answer)
    with Following(log, tmp_path / "gw") as second:
        assert has_answer(second.tail) and second.tail.caught_up
        assert [line["session_id"] for line in second.tail.summaries()] == ["s1"]
        played.end()
        second.until(lambda tail: not tail.views("s1").turn.open)
        assert not second.said


def test_a_damaged_store_is_made_anew_and_said(log, tmp_path):
    talk(log, tmp_path)
    with Following(log, tmp_path / "gw") as first:
        first.until(has_answer)
        partition, _ = first.tail.cursor("s1")
    backend = RocksBackend(tmp_path / "gw" / str(partition))
    backend.write([(b"h\0s1", b"nonsense")], [])
    backend.close()
    with Following(log, tmp_path / "gw") as second:
        second.until(has_answer)
        assert any("damaged" in text for text in second.said)


def test_what_producers_asked_for_is_told_with_the_folds_word(log, tmp_path):
    sessions = Sessions(log, settings_in(tmp_path))
    with Following(log, tmp_path / "gw") as following:
        sessions.open("s1", agent="default")
        receipt = sessions.trigger("s1", "publish")
        following.until(lambda tail: tail.cursor("s1")[1] > receipt.offset)
        told = [d for batch in following.batches for d in batch.decided]
        assert [(d.verdict, d.offset) for d in told] == [
            ("accepted", receipt.offset - 1), ("refused", receipt.offset),
        ]


def test_chunks_are_decoded_for_sessions_that_are_watched_and_for_no_other(log, tmp_path):
    played = talk(log, tmp_path)
    played.end()
    Sessions(log, settings_in(tmp_path)).say("s1", "more")
    played.call()
    played.start()
    with Following(log, tmp_path / "gw") as following:
        following.until(lambda tail: tail.caught_up)
        played.chunk("unseen")
        following.until(lambda tail: tail.views("s1").stream.chunks == 1)
        assert not any(batch.seen for batch in following.batches)
        following.tail.watch("s1")
        played.chunk("seen")
        following.until(lambda tail: tail.views("s1").stream.chunks == 2)
        seen = [s.entry.event.delta for batch in following.batches for s in batch.seen]
        assert seen == ["seen"]


def test_to_look_at_many_sessions_keeps_few_of_them(log, tmp_path, monkeypatch):
    monkeypatch.setattr(owned, "HOT_SESSIONS_MAX", 2)
    sessions, names = Sessions(log, settings_in(tmp_path)), [f"s{n}" for n in range(40)]
    for name in names:
        sessions.open(name, agent="default")
    with Following(log, tmp_path / "tail") as following:
        following.until(lambda tail: tail.caught_up)
        assert all(following.tail.views(name) for name in names)
        held = [place.hot(name) for place in following.tail._owned.values() for name in names]
        assert len(list(filter(None, held))) <= 2 * len(following.tail._owned)
