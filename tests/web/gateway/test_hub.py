"""The hub: if one session or one viewer fails, no other is affected."""

import asyncio

import pytest

from foldlog.client.history import Place
from foldlog.client.session_fold import SessionFold
from foldlog.client.transcript_stream import Attempt, Token
from foldlog.log.errors import LogUnreachable
from foldlog.processors.fold.views import initial
from foldlog.processors.store.chunks_reader import chunks_reader
from foldlog.producers.sessions import Sessions
from foldlog.tests.kit.played import Played, memory_log, settings_in
from foldlog.tests.kit.waiting import PATIENCE_S
from foldlog.web.gateway import hub as hub_module, subscriptions
from foldlog.web.gateway.cursors import BadCursor, cursor_of, place_of
from foldlog.web.gateway.hub import Hub
from foldlog.web.gateway.subscriptions import QUEUE_MAX, Subscription, WatchedSession
from foldlog.web.gateway.tail import Batch


class Stage:
    """A hub, and the tail that feeds it: the test passes the events of the log on. `unreachable`:
    reading chunks fails."""

    def __init__(self, log, tmp_path):
        self.log, self.unreachable, self.end_reads = log, False, 0
        self.sessions = Sessions(log, settings_in(tmp_path))
        self.folds, self.watched = {}, set()
        self.hub = Hub(self, read=lambda _ref: b"[]", chunks=self._chunks, print_line=print)

    def streams(self, name):
        """A session with an answer that is streaming."""
        self.sessions.open(name, agent="default")
        self.sessions.say(name, "hi")
        played = Played(self.log, name)
        played.call()
        played.start()
        played.chunk("one ")
        self.folds[name] = SessionFold(self.log, name, chunks=True)
        self.folds[name].to_end()
        return played

    def pass_on(self, *names):
        """Pass the new events of these sessions to the hub, if it watches them."""
        new = [f for n in names for f in self.folds[n].upto(self.folds[n].end())]
        self.hub._take(Batch([f for f in new if f.entry.session_id in self.watched], [], {}))

    # as the tail of the hub

    def watch(self, name):
        self.watched.add(name)
        return self.folds[name].views, self.folds[name].cursor

    def unwatch(self, name):
        self.watched.discard(name)

    def cursor(self, name):
        return self.folds[name].partition, self.folds[name].cursor

    def end(self, name):
        self.end_reads += 1
        assert not _in_a_loop(), "the event loop waits for the log"
        return self.folds[name].end()

    def _chunks(self, *place):
        if self.unreachable:
            raise LogUnreachable("unreachable")
        return chunks_reader(self.log)(*place)


def _in_a_loop():
    try:
        return bool(asyncio.get_running_loop())
    except RuntimeError:
        return False


@pytest.fixture
def stage(tmp_path):
    return Stage(memory_log(), tmp_path)


def test_a_session_that_cannot_be_loaded_affects_no_other_and_is_loaded_again(stage):
    bad, good = stage.streams("bad"), stage.streams("good")

    async def play():
        subscription = await stage.hub.subscribe("good", since="now")
        subscription.drain()
        stage.unreachable = True
        with pytest.raises(LogUnreachable):
            await stage.hub.subscribe("bad")
        bad.chunk("two ")
        good.chunk("two ")
        stage.pass_on("bad", "good")
        assert [frame.shown.text for frame in subscription.drain()] == ["two "]
        assert stage.watched == {"good"}
        stage.unreachable = False
        assert (await stage.hub.subscribe("bad")).drain()

    asyncio.run(play())


def test_a_session_that_was_dropped_during_a_subscription_is_watched_again(stage, monkeypatch):
    """The other viewers leave after the session was loaded and before the new viewer is added, so
    the session is idle for a moment."""
    monkeypatch.setattr(hub_module, "IDLE_SESSIONS_MAX", 0)
    played, _ = stage.streams("one"), stage.streams("other")

    async def play():
        leaves = await stage.hub.subscribe("other", since="now")
        subscribing = asyncio.ensure_future(stage.hub.subscribe("one", since="now"))
        async with asyncio.timeout(PATIENCE_S):  # each round of the loop is looked at
            while "one" not in stage.hub._sessions or not stage.hub._sessions["one"].done():
                await asyncio.sleep(0)
        stage.hub.unsubscribe(leaves)
        subscription = await subscribing
        subscription.drain()
        played.chunk("two ")
        stage.pass_on("one")
        assert [frame.shown.text for frame in subscription.drain()] == ["two "]

    asyncio.run(play())


def test_a_cursor_ahead_of_the_gateway_is_checked_in_a_thread(stage):
    stage.streams("one")
    end = stage.folds["one"].end()

    async def play():
        await stage.hub.subscribe("one", cursor_of("one", Place(end)))
        with pytest.raises(BadCursor):
            await stage.hub.subscribe("one", cursor_of("one", Place(end + 1)))

    asyncio.run(play())
    assert stage.end_reads == 1 and stage.hub.viewers == 1


def test_a_viewer_in_the_middle_of_an_event_waits_for_a_gateway_that_has_not_folded_it(stage):
    """The defect: the gateway showed the event from its beginning again."""
    played = stage.streams("one")
    at = stage.folds["one"].end()
    played.fail(permanent=True)
    stage.sessions.say("one", "more")

    async def play():
        inside = cursor_of("one", Place(at, lines=1))  # another gateway has shown the failure
        subscribing = asyncio.ensure_future(stage.hub.subscribe("one", inside))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not subscribing.done()
        stage.pass_on("one")
        async with asyncio.timeout(PATIENCE_S):
            frames = (await subscribing).drain()
        assert [frame.shown.line.kind for frame in frames] == ["message"]

    asyncio.run(play())


def test_a_viewer_that_subscribes_during_an_answer_gets_all_of_it(stage):
    played = stage.streams("one")

    async def play():
        subscription = await stage.hub.subscribe("one", since="now")
        played.chunk("two ")
        stage.pass_on("one")
        assert [frame.shown.text for frame in subscription.drain()] == ["one ", "two "]

    asyncio.run(play())


def test_a_viewer_with_a_long_history_is_not_slow():
    subscription = Subscription(WatchedSession("s", initial("s"), 0), Place(), "ana")
    tokens = [Token(Attempt(1, 1, 1), 0, "text", "x")] * (QUEUE_MAX + 1)
    subscription.put(1, tokens, past=0)
    subscription.put(2, tokens[:1])
    assert not subscription.ended and len(subscription.drain()) == QUEUE_MAX + 2
    subscription.put(3, [*tokens, *tokens])
    assert subscription.ended


def test_the_viewers_of_a_session_share_their_frames(stage):
    """So that an item is encoded once, and not once for each viewer."""
    played = stage.streams("one")

    async def play():
        early = [await stage.hub.subscribe("one", since="now") for _ in range(2)]
        for subscription in early:
            subscription.drain()
        played.chunk("two ")
        stage.pass_on("one")
        late = await stage.hub.subscribe("one", since="now")
        assert [frame.shown.text for frame in late.drain()] == ["one ", "two "]
        played.chunk("three ")
        stage.pass_on("one")
        first, second = (subscription.drain() for subscription in early)
        assert [frame.shown.text for frame in first] == ["two ", "three "]
        assert [id(frame) for frame in first] == [id(frame) for frame in second]
        assert [frame.cursor for frame in late.drain()] == [first[1].cursor]

    asyncio.run(play())


def test_a_viewer_at_another_place_gets_its_own_cursors():
    session, attempt = WatchedSession("s", initial("s"), 0), Attempt(1, 1, 1)
    behind, ahead = (Subscription(session, place, "ana") for place in (Place(), Place(lines=1)))
    shown = [Token(attempt, 0, "text", "x")]
    for subscription in (behind, ahead):
        subscription.put(1, shown)
    (one,), (two,) = behind.drain(), ahead.drain()
    assert one.shown == two.shown
    assert place_of("s", one.cursor) == behind.place and place_of("s", two.cursor) == ahead.place


@pytest.mark.parametrize("is_waiting", (True, False))
def test_a_viewer_is_told_of_an_event_that_shows_nothing(stage, monkeypatch, is_waiting):
    """The defect: a page still showed that a call waits for its retry while the retry ran."""
    monkeypatch.setattr(subscriptions, "HEARTBEAT_S", 1_000)
    played = stage.streams("one")

    async def play():
        subscription = await stage.hub.subscribe("one", since="now")
        played.fail(retry_at=played.now_ms())
        stage.pass_on("one")
        assert await subscription.next_frames()
        waiting = asyncio.ensure_future(subscription.next_frames())
        if is_waiting:
            await asyncio.sleep(0)
        played.start()
        stage.pass_on("one")
        async with asyncio.timeout(PATIENCE_S):
            assert await waiting == []
        waiting = asyncio.ensure_future(subscription.next_frames())
        await asyncio.sleep(0)
        assert not waiting.done()  # once for each event
        subscription.end()
        assert await waiting is None

    asyncio.run(play())


def test_a_viewer_takes_what_is_queued_at_once_and_is_told_of_pauses(stage, monkeypatch):
    monkeypatch.setattr(subscriptions, "HEARTBEAT_S", 0.01)
    played = stage.streams("one")

    async def play():
        subscription = await stage.hub.subscribe("one", since="now")
        subscription.drain()
        assert await subscription.next_frames() == [] and await anext(subscription) is None
        waiting = asyncio.ensure_future(subscription.next_frames())
        await asyncio.sleep(0)
        for text in ("two ", "three "):
            played.chunk(text)
        stage.pass_on("one")
        assert [frame.shown.text for frame in await waiting] == ["two ", "three "]
        played.chunk("four ")
        stage.pass_on("one")
        assert (await anext(subscription)).shown.text == "four "
        subscription.end()
        assert await subscription.next_frames() is None

    asyncio.run(play())
