"""Beyond-the-seeds 1: whoever leaves and comes back, anywhere, has what one has who never left."""

import random

from foldlog.consumers.gateway import watching
from foldlog.consumers.gateway.cursors import place_of
from foldlog.consumers.gateway.watching import Seat, Watching
from foldlog.consumers.history import Place
from foldlog.consumers.transcript_stream import Dropped, LineAdded, Settled, Token
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.sessions import FoldedEvent
from foldlog.processors.fold.views import initial
from foldlog.schemas.codec import entry_of
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.simulation import runner
from foldlog.tests.simulation.scenarios import BY_NAME

SCHEDULES = [
    *((seed, None) for seed in range(1, 25)),
    *((seed, BY_NAME["resumed"]) for seed in range(14)),
]
GUESTS = 20
LEAVES = 0.15  # of the looks of a guest
COMEBACKS_MIN = 2_000
EARLIER = 7  # events, at most, that come while a history is put together beside the loop


class Screen:
    """What stands on somebody's screen: settled words, lines, and what streams."""

    def __init__(self):
        self.done, self.open, self.of = [], [], None

    def draw(self, frames):
        for frame in frames:
            match frame.shown:
                case Token() as token:
                    assert self.of in (None, token.of), "two attempts at once"
                    self.of = token.of
                    self.open.append((token.kind, token.text))
                case Dropped() as dropped:
                    assert self.of == dropped.of, "what was dropped was never shown"
                    self.open, self.of = [], None
                case Settled() as settled:
                    self.done.append((settled.line.offset, self.words()))
                    self.open, self.of = [], None
                case LineAdded() as told:
                    self.done.append((told.line.offset, told.line.kind))

    def words(self):
        """What streams, by kind: how it was cut does not matter."""
        kinds = ("text", "thinking", "tool_name", "tool_input")
        return tuple("".join(text for k, text in self.open if k == kind) for kind in kinds)


class Audience:
    """A session that is played event by event, and whoever looks at it."""

    def __init__(self, name, history, read):
        self.history, self.read = history, read
        self.watching = Watching(name, initial(name), 0)
        self.earlier = self.watching.moment()

    def events(self):
        for number, seen in enumerate(self.history):
            if number % EARLIER == 0:
                self.earlier = self.watching.moment()
            self.watching.take(seen, self.read)
            yield

    def seat(self, cursor=None):
        name = self.watching.session_id
        place = Place() if cursor is None else place_of(name, cursor)
        seat = Seat(self.watching, place, "ana")
        if self.earlier.offset >= place.offset:  # its history took that long to put together
            seat.show(self.earlier.lacking(seat.place, self.read))
        seat.show(self.watching.moment().lacking(seat.place, self.read))
        self.watching.seats.add(seat)
        return seat


class Guest:
    """Comes, sees for a while, leaves without a word, and comes back with its last cursor."""

    def __init__(self, audience, chance):
        self.audience, self.chance = audience, chance
        self.screen, self.cursor, self.comebacks = Screen(), None, 0
        self.left_in, self.resumed = None, 0  # by whom it was said when it left; then by another
        self.seat = audience.seat()

    def look(self):
        if self.seat is None:
            if self.chance.random() < 0.3:
                self.seat, self.comebacks = self.audience.seat(self.cursor), self.comebacks + 1
                viewer = self.audience.watching.viewer
                resumed_by = viewer.resumed_by not in (None, self.left_in)
                self.resumed += resumed_by and self.screen.of == viewer.open
            return
        frames = self.seat.ready()
        if not frames:
            return
        leaves = self.chance.random() < LEAVES
        kept = self.chance.randint(0, len(frames)) if leaves else len(frames)
        while kept and frames[kept - 1].cursor is None:
            kept -= 1  # what came since the last cursor comes again
        self.draw(frames[:kept])
        if leaves:
            self.audience.watching.seats.discard(self.seat)
            self.seat, self.left_in = None, self.audience.watching.viewer.resumed_by

    def draw(self, frames):
        self.screen.draw(frames)
        if frames:
            self.cursor = frames[-1].cursor


def audiences(seed, scenario=None):
    """The sessions of a simulated schedule: crashes, takeovers, cancels, late and double chunks."""
    world = runner.run(seed, scenario).world
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


def test_beyond_1_a_viewer_that_comes_back_has_what_one_has_that_never_left():
    comebacks, midway, resumed = 0, 0, 0
    for seed, scenario in SCHEDULES:
        chance = random.Random(seed)
        for audience in audiences(seed, scenario):
            stayed, stays = Screen(), audience.seat()
            guests = [Guest(audience, chance) for _ in range(GUESTS)]
            for _ in audience.events():
                stayed.draw(stays.ready())
                for guest in guests:
                    was_away = guest.seat is None
                    guest.look()
                    midway += was_away and guest.seat is not None and bool(guest.screen.open)
            for guest in guests:
                guest.draw((guest.seat or audience.seat(guest.cursor)).ready())
                assert guest.screen.done == stayed.done, (seed, audience.watching.session_id)
                assert guest.screen.words() == stayed.words()
                comebacks, resumed = comebacks + guest.comebacks, resumed + guest.resumed
            late = Screen()
            late.draw(audience.seat().ready())
            assert (late.done, late.words()) == (stayed.done, stayed.words())
    assert comebacks >= COMEBACKS_MIN, f"only {comebacks}: more seeds are needed"
    assert midway >= 100, f"only {midway} came back in the middle of an attempt"
    assert resumed >= 20, f"only {resumed} left in a lost attempt and came back in its resumption"


def test_beyond_1_a_viewer_that_does_not_keep_up_is_let_go_and_loses_nothing():
    audience = max(audiences(1), key=lambda found: len(found.history))
    stayed, stays, slow = Screen(), audience.seat(), audience.seat()
    bound = watching.QUEUE_MAX
    watching.QUEUE_MAX = 5
    try:
        for _ in audience.events():
            stayed.draw(stays.ready())
    finally:
        watching.QUEUE_MAX = bound
    assert slow.slow and not slow.ready()
    back = Screen()
    back.draw(audience.seat().ready())
    assert back.done == stayed.done
