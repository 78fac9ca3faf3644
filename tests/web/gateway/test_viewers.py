"""Row beyond 1: a viewer that leaves and returns at any point sees the same as a viewer that
stays."""

import random

import pytest

from foldlog.client.history import Place
from foldlog.client.transcript_stream import Dropped, LineAdded, Settled, Token
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.sessions import FoldedEvent
from foldlog.processors.fold.views import initial
from foldlog.schemas.codec import entry_of
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.simulation import runner
from foldlog.tests.simulation.scenarios import BY_NAME
from foldlog.web.gateway import subscriptions
from foldlog.web.gateway.cursors import place_of
from foldlog.web.gateway.subscriptions import Subscription, WatchedSession

SCHEDULES = [
    *((seed, None) for seed in range(1, 25)),
    *((seed, BY_NAME["resumed"]) for seed in range(28)),
]
VIEWERS = 20
LEAVES = 0.15  # the chance that a viewer leaves after reading its frames
RETURNS = 0.3  # the chance that a viewer that left returns with the next event
RETURNS_MIN = 2_000
EARLIER = 7  # events, at most, that arrive while a history is built in a thread


class Screen:
    """What one viewer sees: settled texts, lines, and the text that is streaming."""

    def __init__(self):
        self.items, self.open, self.attempt = [], [], None

    def draw(self, frames):
        for frame in frames:
            match frame.shown:
                case Token() as token:
                    assert self.attempt in (None, token.of), "two attempts at once"
                    self.attempt = token.of
                    self.open.append((token.kind, token.text))
                case Dropped() as dropped:
                    assert self.attempt == dropped.of, "the dropped attempt was never shown"
                    self.open, self.attempt = [], None
                case Settled() as settled:
                    # A viewer that returns later has the calls from the settled line only.
                    self.items.append((settled.line.offset, self.text()[:2]))
                    self.open, self.attempt = [], None
                case LineAdded() as added:
                    self.items.append((added.line.offset, added.line.kind))

    def text(self):
        """The streaming text of each kind, joined: the place of the cuts does not matter."""
        kinds = ("text", "thinking", "tool_name", "tool_input")
        return tuple("".join(text for k, text in self.open if k == kind) for kind in kinds)


class Audience:
    """A session that is played event by event, and the viewers of the session."""

    def __init__(self, name, history, read):
        self.history, self.read = history, read
        self.session = WatchedSession(name, initial(name), 0)
        self.earlier = self.session.snapshot()

    def events(self):
        for number, folded in enumerate(self.history):
            if number % EARLIER == 0:
                self.earlier = self.session.snapshot()
            self.session.apply(folded, self.read)
            yield

    def subscribe(self, cursor=None):
        place = Place() if cursor is None else place_of(self.session.session_id, cursor)
        subscription = Subscription(self.session, place, "ana")
        now = self.session.snapshot()
        # As if the history had been built since the earlier snapshot.
        reached = self.earlier.offset - bool(place.lines) >= place.offset
        for snapshot in (self.earlier, now) if reached else (now,):
            subscription.put_history(snapshot.missed_since(subscription.place, self.read))
        self.session.subscriptions.add(subscription)
        return subscription


class Viewer:
    """Subscribes, reads for a while, disconnects, and returns with the last cursor."""

    def __init__(self, audience, chance):
        self.audience, self.chance = audience, chance
        self.screen, self.cursor, self.returns = Screen(), None, 0
        self.left_in, self.resumed = None, 0  # the attempt when it left; its returns to a later one
        self.subscription = audience.subscribe()

    def step(self):
        """Read what is queued; a viewer that has left may return. Reports a return to an open
        attempt."""
        if self.subscription is None:
            if self.chance.random() >= RETURNS:
                return False
            self.subscription = self.audience.subscribe(self.cursor)
            self.returns += 1
            viewer = self.audience.session.viewer
            is_resumed = viewer.resumed_by not in (None, self.left_in)
            self.resumed += is_resumed and self.screen.attempt == viewer.open
            return bool(self.screen.open)
        if frames := self.subscription.drain():
            leaves = self.chance.random() < LEAVES
            count = self.chance.randint(0, len(frames)) if leaves else len(frames)
            self.draw(frames[:count])
            if leaves:
                self.audience.session.subscriptions.discard(self.subscription)
                self.subscription, self.left_in = None, self.audience.session.viewer.resumed_by
        return False

    def draw(self, frames):
        self.screen.draw(frames)
        if frames:
            self.cursor = frames[-1].cursor


def audiences(seed, scenario=None):
    """The sessions of a simulated schedule that has crashes, takeovers, cancels, and late and
    repeated chunks."""
    world = runner.run(seed, scenario, invariants=()).world  # the simulation checks them
    histories = {}
    for partition in world.log.topic(SESSION_EVENTS).partitions:
        for record in partition.records:
            entry = entry_of(record, chunks=True)
            if entry.session_id == PARTITION_KEY:
                continue
            history = histories.setdefault(entry.session_id, [])
            before = history[-1].views if history else initial(entry.session_id)
            views, ruling = fold(before, entry)
            history.append(FoldedEvent(entry, ruling, before, views))
    return [Audience(name, history, world.blobs.read) for name, history in histories.items()]


@pytest.mark.timeout(240)  # 52 simulated schedules
def test_beyond_1_a_viewer_that_returns_has_the_same_as_one_that_stayed():
    returns, midway, resumed = 0, 0, 0
    for seed, scenario in SCHEDULES:
        chance = random.Random(seed)
        for audience in audiences(seed, scenario):
            stayed, subscription = Screen(), audience.subscribe()
            viewers = [Viewer(audience, chance) for _ in range(VIEWERS)]
            for _ in audience.events():
                stayed.draw(subscription.drain())
                midway += sum(viewer.step() for viewer in viewers)
            for viewer in viewers:
                viewer.draw((viewer.subscription or audience.subscribe(viewer.cursor)).drain())
                assert viewer.screen.items == stayed.items, (seed, audience.session.session_id)
                assert viewer.screen.text() == stayed.text()
                returns, resumed = returns + viewer.returns, resumed + viewer.resumed
            late = Screen()
            late.draw(audience.subscribe().drain())
            assert (late.items, late.text()) == (stayed.items, stayed.text())
    assert returns >= RETURNS_MIN, f"only {returns}: more seeds are needed"
    assert midway >= 100, f"only {midway} returned in the middle of an attempt"
    assert resumed >= 20, f"only {resumed} left a lost attempt and returned to its resumption"


def test_beyond_1_a_viewer_that_does_not_keep_up_is_disconnected_and_loses_nothing(monkeypatch):
    audience = max(audiences(7), key=lambda found: len(found.history))
    stayed, subscription, slow = Screen(), audience.subscribe(), audience.subscribe()
    with monkeypatch.context() as patch:
        patch.setattr(subscriptions, "QUEUE_MAX", 40)
        for _ in audience.events():
            stayed.draw(subscription.drain())
    assert slow.ended and not slow.drain()
    returned = Screen()
    returned.draw(audience.subscribe().drain())
    assert returned.items == stayed.items
