"""The hub: what goes wrong with one session, or one viewer, is nobody else's."""

import asyncio

import pytest

from foldlog.consumers.gateway import hub as hubs
from foldlog.consumers.gateway.cursors import BadCursor, cursor_of
from foldlog.consumers.gateway.hub import Hub
from foldlog.consumers.gateway.subscriptions import QUEUE_MAX, Subscription, WatchedSession
from foldlog.consumers.gateway.tail import Batch
from foldlog.consumers.history import Place
from foldlog.consumers.session_fold import SessionFold
from foldlog.consumers.transcript_stream import Attempt, Token
from foldlog.log.errors import LogUnreachable
from foldlog.processors.fold.views import initial
from foldlog.processors.store.chunks_reader import chunks_reader
from foldlog.producers.sessions import Sessions
from foldlog.tests.consumers.played import Played, memory_log, settings_in


class Stage:
    """A hub over a log whose events are handed to it by hand. `away`: its chunks can't be read."""

    def __init__(self, log, tmp_path):
        self.log, self.away, self.ends = log, False, 0
        self.sessions = Sessions(log, settings_in(tmp_path))
        self.folds, self.watched = {}, set()
        self.hub = Hub(self, read=lambda _ref: b"[]", chunks=self._chunks, print_line=print)

    def streams(self, name):
        """A session with an answer that streams."""
        self.sessions.open(name, agent="default")
        self.sessions.say(name, "hi")
        played = Played(self.log, name)
        played.call()
        played.start()
        played.chunk("one ")
        self.folds[name] = SessionFold(self.log, name, chunks=True)
        self.folds[name].to_end()
        return played

    def news(self, *names):
        """What has come of some sessions, to whoever looks."""
        seen = [s for n in names for s in self.folds[n].upto(self.folds[n].end())]
        self.hub._take(Batch([one for one in seen if one.entry.session_id in self.watched], [], {}))

    # what a hub asks of its tail

    def watch(self, name):
        self.watched.add(name)
        return self.folds[name].views, self.folds[name].cursor

    def unwatch(self, name):
        self.watched.discard(name)

    def cursor(self, name):
        return self.folds[name].partition, self.folds[name].cursor

    def end(self, name):
        self.ends += 1
        assert not _in_a_loop(), "the log is asked in the event loop"
        return self.folds[name].end()

    def _chunks(self, *place):
        if self.away:
            raise LogUnreachable("away")
        return chunks_reader(self.log)(*place)


def _in_a_loop():
    try:
        return bool(asyncio.get_running_loop())
    except RuntimeError:
        return False


@pytest.fixture
def stage(tmp_path):
    return Stage(memory_log(), tmp_path)


def test_a_look_that_fails_is_nobody_elses_and_the_next_one_is_new(stage):
    bad, good = stage.streams("bad"), stage.streams("good")

    async def play():
        subscription = await stage.hub.subscribe("good", since="now")
        subscription.drain()
        stage.away = True
        with pytest.raises(LogUnreachable):
            await stage.hub.subscribe("bad")
        bad.chunk("two ")
        good.chunk("two ")
        stage.news("bad", "good")
        assert [frame.shown.text for frame in subscription.drain()] == ["two "]
        assert stage.watched == {"good"}
        stage.away = False
        assert (await stage.hub.subscribe("bad")).drain()

    asyncio.run(play())


def test_a_session_that_was_let_go_while_somebody_sat_down_is_watched_again(stage, monkeypatch):
    """Between the look at a session and its viewer's turn others leave, and it looks idle."""
    monkeypatch.setattr(hubs, "IDLE_SESSIONS_MAX", 0)
    played, _ = stage.streams("one"), stage.streams("other")

    async def play():
        leaves = await stage.hub.subscribe("other", since="now")
        sitting = asyncio.ensure_future(stage.hub.subscribe("one", since="now"))
        while "one" not in stage.hub._sessions or not stage.hub._sessions["one"].done():
            await asyncio.sleep(0)
        stage.hub.unsubscribe(leaves)
        subscription = await sitting
        subscription.drain()
        played.chunk("two ")
        stage.news("one")
        assert [frame.shown.text for frame in subscription.drain()] == ["two "]

    asyncio.run(play())


def test_a_cursor_ahead_of_the_gateway_is_looked_at_beside_the_loop(stage):
    stage.streams("one")
    end = stage.folds["one"].end()

    async def play():
        await stage.hub.subscribe("one", cursor_of("one", Place(end)))
        with pytest.raises(BadCursor):
            await stage.hub.subscribe("one", cursor_of("one", Place(end + 1)))

    asyncio.run(play())
    assert stage.ends == 1 and stage.hub.viewers == 1


def test_who_comes_amid_an_answer_misses_nothing_of_it(stage):
    played = stage.streams("one")

    async def play():
        subscription = await stage.hub.subscribe("one", since="now")
        played.chunk("two ")
        stage.news("one")
        assert [frame.shown.text for frame in subscription.drain()] == ["one ", "two "]

    asyncio.run(play())


def test_a_long_history_is_not_taken_for_a_slow_viewer():
    subscription = Subscription(WatchedSession("s", initial("s"), 0), Place(), "ana")
    words = [Token(Attempt(1, 1, 1), 0, "text", "x")] * (QUEUE_MAX + 1)
    subscription.put(1, words, live=False)
    subscription.put(2, words[:1])
    assert not subscription.slow and len(subscription.drain()) == QUEUE_MAX + 2
    subscription.put(3, [*words, *words])
    assert subscription.slow
