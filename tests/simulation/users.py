"""People and other programs: what they ask of sessions, in every order, legal or not.

Each person looks at the views as a client does, perhaps a little late, and asks for something that
fits, or does not. Each session's producer is its own. It must not know the workers.
"""

from typing import Any

from foldlog.log.door import Delivered
from foldlog.log.partition import partition_for
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode, headers_for
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.simulation import commands
from foldlog.tests.simulation.witness import Seen

AGAIN_MS = 200  # a client that got no answer asks again with the same id
PAUSES_MS = (0, 10, 100, 600, 3_000, 3_000, 15_000)
WATCHED = (
    ev.LlmCalled,
    ev.GenStart,
    ev.GenComplete,
    ev.ToolInvoked,
    ev.ToolStarted,
    ev.ToolResult,
    ev.ToolFailedUncertain,
    ev.TurnEnded,
    ev.CancelRequested,
)


class Person:
    """Somebody and his session."""

    def __init__(self, world: Any, number: int) -> None:
        self.world, self.rng = world, world.rng
        long = self.rng.random() < 0.1
        self.session_id = f"s{number}" + "x" * (126 if long else 0)
        self.user_id = f"user-{number}" + "y" * (100 if long else 0)
        self.producer = world.log.producer(name=self.session_id)
        self.left = self.rng.choice(world.scenario.commands)
        self.next_at = world.now + self.rng.choice(PAUSES_MS)
        self.messages = self.asked = 0
        self.said: list[ev.MessageReceived] = []
        self.opened = False
        self.agentless = self.rng.random() < 0.03  # no worker has the agent of this session

    @property
    def views(self) -> Any:
        """The session as he sees it: now, or some records ago."""
        history = self.world.witness.history.get(self.session_id)
        if not history:
            return None
        back = self.rng.choice((1, 1, 1, 1, 2, 4))
        return history[-min(back, len(history))][1]

    def act(self) -> None:
        """Ask for one thing."""
        rng = self.rng
        self.next_at = self.world.now + rng.choice(PAUSES_MS)
        if not self.opened and rng.random() < 0.95:
            self.opened = True
            self.send(commands.opened(self))
            return
        self.left -= 1
        name = commands.chosen(self)
        self.world.stats[f"command {name}"] += 1
        for event in commands.COMMANDS[name](self):
            self.send(event)

    def send(self, event: Any, writer: str = "producer") -> None:
        """Append until it is acknowledged."""
        value = encode(event)
        headers = headers_for(event, writer)

        def answered(answer: Any) -> None:
            if isinstance(answer, Delivered):
                self.world.users.acknowledged.append((answer, value))
            elif not isinstance(event, commands.UNREPEATED):
                self.world.users.again.append((self.world.now + AGAIN_MS, self, event))

        self.producer.append(SESSION_EVENTS, self.session_id, value, headers, on_delivery=answered)

    def append_raw(self, value: bytes, headers: list[tuple[str, bytes]], key: Any = None) -> None:
        """Append what no client of ours would."""
        key = self.session_id if key is None else key
        place = partition_for(self.session_id, self.world.partitions)
        self.producer.append(SESSION_EVENTS, key, value, headers, partition=place)


class Users:
    """Everybody."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.acknowledged: list[tuple[Delivered, bytes]] = []
        self.again: list[tuple[int, Person, Any]] = []
        self.people = [Person(world, n) for n in range(world.rng.choice(world.scenario.sessions))]
        self.by_session = {person.session_id: person for person in self.people}

    def done(self) -> bool:
        """Whether nobody wants anything more."""
        return not self.again and all(person.left <= 0 for person in self.people)

    def offers(self, offers: list) -> None:
        """Whoever wants something now."""
        now = self.world.now
        for again in self.again:
            if again[0] <= now:
                offers.append((1, lambda again=again: self._repeat(again)))
        for person in self.people:
            if person.left > 0 and person.next_at <= now:
                offers.append((1, person.act))

    def _repeat(self, again: tuple[int, Person, Any]) -> None:
        self.again.remove(again)
        again[1].send(again[2])

    def next_at(self) -> list[int]:
        """When somebody wants something."""
        times = [person.next_at for person in self.people if person.left > 0]
        return times + [again[0] for again in self.again]

    def saw(self, seen: Seen) -> None:
        """Somebody may react at once: that is how races are made."""
        person = self.by_session.get(seen.entry.session_id)
        if person is None or person.left <= 0 or not isinstance(seen.entry.event, WATCHED):
            return
        if self.world.rng.random() < self.world.scenario.reacts:
            person.next_at = self.world.now

    # -- after the faults ------------------------------------------------------------------------

    def answer_everything(self) -> None:
        """Every doubt is resolved as it was, every question answered."""
        for person in self.people:
            views = self.world.witness.views.get(person.session_id)
            if views is not None:
                for event in commands.answers(person, views):
                    person.send(event)
        self.world.settle()

    def say_last_words(self) -> None:
        """A session that is not bricked answers one more message."""
        for person in self.people:
            views = self.world.witness.views.get(person.session_id)
            known = views is not None and views.turn.known and not views.frozen
            if known and not views.turn.terminated and not person.agentless:
                person.send(commands.a_message(person, "queue", message_id="last-words"))
        self.world.settle()
