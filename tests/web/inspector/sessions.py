"""Sessions for the tests of the inspector: long ones, hostile ones, and ones that wait for
people."""

import json
from typing import NamedTuple

from foldlog.log import MemoryLog, Settings
from foldlog.processors.fold.views import SessionViews
from foldlog.producers import Sessions
from foldlog.schemas import events as ev
from foldlog.schemas.topics import topics
from foldlog.tests.kit import answers
from foldlog.tests.kit.played import PARTITIONS, Played, opened, settings_in
from foldlog.web.inspector.runs import Run
from foldlog.web.inspector.timeline import Timeline

HOSTILE = (
    "<script>window.pwned = 1</script>",
    "<img src=x onerror=\"window.pwned = 1\">",
    "[press me](javascript:window.pwned=1) <a href=\"javascript:window.pwned=1\">here</a>",
    "${window.pwned = 1} </textarea><svg onload=window.pwned=1> \u202egnp.exe",
)


class Place(NamedTuple):
    """One installation: a log, and the settings."""

    log: MemoryLog
    settings: Settings

    def open(self, session_id: str, text: str = "") -> tuple[Sessions, Played]:
        """Open a session, and send it a message with this text."""
        sessions, played = opened(self.log, self.settings, session_id)
        if text:
            sessions.say(session_id, text, message_id="m1")
        return sessions, played

    def talk(self, session_id: str, answers: int = 2, chunks: int = 2) -> Played:
        """Play turns of a message, a tool and two answers in a new session."""
        sessions, played = self.open(session_id)
        for number in range(1, answers + 1):
            sessions.say(session_id, f"question {number}", message_id=f"m{number}")
            turn(played, number, chunks)
        return played


class Timed:
    """A session on a log whose clock the test advances."""

    def __init__(self, directory) -> None:
        self.ms = 1_800_000_000_000
        self.log = MemoryLog(topics(PARTITIONS), clock_ms=lambda: self.ms, threaded=True)
        self.settings = settings_in(directory)
        self.sessions = Sessions(self.log, self.settings)
        self.sessions.open("s1", agent="shop")
        self.played = Played(self.log, "s1")
        self.played.now_ms = lambda: self.ms
        self.sessions.say("s1", "Refund order 17", message_id="m1")

    def after(self, ms: int) -> Played:
        self.ms += ms
        return self.played

    def remember(self) -> None:
        """Begin the extraction of memory from the newest ended turn."""
        self.work = ev.BackgroundStarted(
            kind="memory", upto=self.played.views.background.idle_at, attempt=1,
            owner=self.played.owner, epoch=0, deadline=self.ms + 60_000,
        )  # fmt: skip
        self.played.append(self.work, "background")

    def remembered(self) -> None:
        """End the work that `remember` began."""
        done = answers.done(self.work.kind, self.work.upto, self.work.attempt)
        self.played.append(done, "background")

    @property
    def runs(self) -> list[Run]:
        found = Timeline(self.log, "s1").extend().runs
        return sorted([*found.closed, *found.open], key=lambda run: (run.at, run.offset))

    def of(self, lane: str) -> list[tuple]:
        """The (kind, ms, outcome) of each run in a lane; ms is None while the run lasts."""
        return [
            (run.kind, None if run.end_at is None else run.end_at - run.at, run.outcome)
            for run in self.runs if run.lane == lane
        ]


def turn(played: Played, number: int, chunks: int) -> None:
    """Play one turn: a tool call, then an answer in this many chunks."""
    played.propose("Let me look.", ("read_file", {"path": f"notes/{number}.md"}))
    played.run_tool(f"contents of note {number}")
    played.call()
    played.start()
    words = [f"word{place} " for place in range(chunks)]
    for word in words:
        played.chunk(word)
    played.complete("".join(words))
    played.end()


def asking(place: Place, session_id: str = "asks") -> Played:
    """A session with a call that waits for approval."""
    _, played = place.open(session_id, "charge it")
    played.propose("I would charge.", ("charge", {"amount_cents": 900}))
    played.invoke(approval="ask")
    return played


def doubting(place: Place, session_id: str = "doubts") -> Played:
    """A session with a call in doubt."""
    _, played = place.open(session_id, "charge it")
    played.propose("Charging.", ("charge", {"amount_cents": 900}))
    played.invoke()
    played.tool_start()
    played.uncertain()
    return played


def hostile(place: Place, session_id: str = "hostile") -> Played:
    """A session in which every text attacks the page."""
    _, played = place.open(session_id, HOSTILE[0])
    played.call()
    played.start()
    played.chunk(HOSTILE[1])
    played.complete(HOSTILE[1], [("read", {"path": HOSTILE[0], HOSTILE[1]: HOSTILE[2]})])
    played.run_tool(json.dumps([{"type": "text", "text": "".join(HOSTILE)}]))
    played.propose("\n".join(HOSTILE))
    played.end()
    return played


def long(place: Place, session_id: str = "long", events: int = 10_000) -> Played:
    """A session of at least this many events, most of them chunks."""
    sessions, played = place.open(session_id)
    number = 0
    while length(played.views) < events:
        number += 1
        sessions.say(session_id, f"question {number}", message_id=f"m{number}")
        turn(played, number, 90)
    return played


def length(views: SessionViews) -> int:
    """The approximate number of events in these views: each turn of `long` has 101."""
    return 101 * views.turn.number
