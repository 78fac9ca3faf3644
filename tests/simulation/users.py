"""People and other programs, which send commands to sessions in every order, legal or not.

Each person reads the views as a client does, and may lag some records behind. The person then sends
a command that fits these views, or one that does not. Each session has its own producer.
"""

from typing import Any

from foldlog.log.door import Delivered
from foldlog.log.partition import partition_for
from foldlog.schemas import events as ev
from foldlog.schemas.codec import encode, headers_for
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.simulation import commands
from foldlog.tests.simulation.witness import Seen

RETRY_MS = 200  # a client without an acknowledgement sends the event again with the same id
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
    """A person and their session."""

    def __init__(self, world: Any, number: int) -> None:
        self.world, self.rng = world, world.rng
        long = self.rng.random() < 0.1
        self.session_id = f"s{number}" + "x" * (126 if long else 0)
        self.user_id = f"user-{number}" + "y" * (100 if long else 0)
        self.producer = world.log.producer(name=self.session_id)
        self.left = self.rng.choice(world.scenario.commands)
        self.next_at = world.now + self.rng.choice(PAUSES_MS)
        self.messages = self.commands = 0
        self.sent: list[ev.MessageReceived] = []
        self.opened = False
        self.agentless = self.rng.random() < 0.03  # no worker has the agent of this session

    @property
    def views(self) -> Any:
        """The session as the person sees it: the newest views, or the views some records ago."""
        history = self.world.witness.history.get(self.session_id)
        if not history:
            return None
        back = self.rng.choice((1, 1, 1, 1, 2, 4))
        return history[-min(back, len(history))][1]

    def act(self) -> None:
        """Send one command."""
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

    def send(self, event: Any, writer: str = "producer", to: str = "") -> None:
        """Append an event again and again, until the log acknowledges it. `to`: a session other
        than the person's."""
        value = encode(event)
        headers = headers_for(event, writer)

        def delivered(report: Any) -> None:
            if isinstance(report, Delivered):
                self.world.users.acknowledged.append((report, value))
            elif not isinstance(event, commands.UNREPEATED):
                self.world.users.retries.append((self.world.now + RETRY_MS, self, event, to))

        key = to or self.session_id
        self.producer.append(SESSION_EVENTS, key, value, headers, on_delivery=delivered)

    def append_raw(self, value: bytes, headers: list[tuple[str, bytes]], key: Any = None) -> None:
        """Append a record that foldlog's clients would never write."""
        key = self.session_id if key is None else key
        place = partition_for(self.session_id, self.world.partitions)
        self.producer.append(SESSION_EVENTS, key, value, headers, partition=place)


class Users:
    """All people of a world."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.acknowledged: list[tuple[Delivered, bytes]] = []
        self.retries: list[tuple[int, Person, Any, str]] = []
        self.people = [Person(world, n) for n in range(world.rng.choice(world.scenario.sessions))]
        self.by_session = {person.session_id: person for person in self.people}

    def done(self) -> bool:
        """Whether no person has a command left."""
        return not self.retries and all(person.left <= 0 for person in self.people)

    def offers(self, offers: list) -> None:
        """Add to `offers` the commands and the retries that are due."""
        now = self.world.now
        for retry in self.retries:
            if retry[0] <= now:
                offers.append((1, lambda retry=retry: self._retry(retry)))
        for person in self.people:
            if person.left > 0 and person.next_at <= now:
                offers.append((1, person.act))

    def _retry(self, retry: tuple[int, Person, Any, str]) -> None:
        self.retries.remove(retry)
        _, person, event, to = retry
        person.send(event, to=to)

    def next_at(self) -> list[int]:
        """The times of the next commands and retries."""
        times = [person.next_at for person in self.people if person.left > 0]
        return times + [retry[0] for retry in self.retries]

    def saw(self, seen: Seen) -> None:
        """Note a record. The session's person may react to it at once, so that races occur."""
        person = self.by_session.get(seen.entry.session_id)
        if person is None or person.left <= 0 or not isinstance(seen.entry.event, WATCHED):
            return
        if self.world.rng.random() < self.world.scenario.reacts:
            person.next_at = self.world.now

    # -- after the faults ------------------------------------------------------------------------

    def answer_everything(self) -> None:
        """Let people resolve every doubt truthfully, and answer every approval."""
        for person in self.people:
            views = self.world.witness.views.get(person.session_id)
            if views is not None:
                for event in commands.answers(person, views):
                    person.send(event)
        self.world.settle()

    def say_last_words(self) -> None:
        """Send one more message, which must be answered, to every session that still accepts
        messages."""
        for person in self.people:
            views = self.world.witness.views.get(person.session_id)
            known = views is not None and views.turn.known and not views.frozen
            if known and not views.turn.terminated and not person.agentless:
                person.send(commands.a_message(person, "queue", message_id="last-words"))
        self.world.settle()
