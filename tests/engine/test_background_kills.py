"""Background work of a worker that is killed after it wrote the product, or that releases its work
at its end."""

from collections import Counter

import pytest

from foldlog.local.messages_api import Reply, Rule, ScriptedServer, text, thinking, tool_use
from foldlog.processors.agent import Agent, Compaction
from foldlog.processors.limits import Limits
from foldlog.processors.tools.tool import tool
from foldlog.schemas import events as ev
from foldlog.tests.engine.driven import Driven, DrivenEffects

CHEAP = "claude-cheapest"
PAGE = "All work and no play makes a dull log. " * 12
SMALL = Limits(soft_tokens=4_000, hard_tokens=60_000, resume_tokens=20_000, short_tokens=600)


@tool(effect="pure")
def read(ctx) -> str:
    """Reads some pages."""
    return PAGE * 6


AGENT = Agent(
    name="helper",
    model="claude-opus-5-5",
    tools=(read,),
    limits=SMALL,
    compaction=Compaction(model=CHEAP),
)


class Killed(Driven):
    """A worker that is killed after each candidate is written and before the BACKGROUND_DONE."""

    kills = True

    def new_effects(self):
        return KilledEffects(self)


class KilledEffects(DrivenEffects):
    async def outcome(self, session_id, event):
        if not self._engine.kills or not isinstance(event, ev.BackgroundDone):
            await super().outcome(session_id, event)


@pytest.fixture
def session(tmp_path):
    rules = [
        Rule(reply=Reply([text("In short.")]), when=lambda request: request.model == CHEAP),
        Rule(reply=Reply([tool_use("read")]), contains="read it", tool_results=0),
        Rule(reply=Reply([thinking("hm"), text("Read. " + PAGE)])),
    ]
    with ScriptedServer(rules) as server:
        driven = Killed(AGENT, server, tmp_path)
        yield driven
        driven.close()


def talk_until_summary(session: Killed) -> ev.ContextCompacted:
    while not session.events(ev.ContextCompacted):
        session.say(PAGE).run()
    return session.events(ev.ContextCompacted)[0]


def test_S2_9_a_summary_in_the_log_is_not_written_again(session):
    summary = talk_until_summary(session)
    calls = session.server.journal.count("accepted", model=CHEAP)
    session.restart()
    session.kills = False
    session.run()
    (done,) = session.events(ev.BackgroundDone)
    assert (done.upto, done.attempt, done.ok) == (summary.upto, 2, True)
    assert session.events(ev.ContextCompacted) == [summary]
    assert session.server.journal.count("accepted", model=CHEAP) == calls


def test_S1_E_a_short_form_in_the_log_is_not_written_again(session):
    session.say("read it").run()
    (short,) = session.events(ev.ResultCompacted)
    calls = session.server.journal.count("accepted", model=CHEAP)
    session.restart()
    session.kills = False
    session.run()
    (done,) = session.events(ev.BackgroundDone)
    assert (done.kind, done.attempt, done.ok) == ("result", 2, True)
    assert session.events(ev.ResultCompacted) == [short]
    assert session.server.journal.count("accepted", model=CHEAP) == calls


def test_lane_B_an_adopted_summary_is_not_repeated_for_the_same_offset(session):
    """The worker is killed after it wrote the candidate, and a request adopts the candidate before
    the restart."""
    talk_until_summary(session)
    for _ in range(6):
        session.say(PAGE).run()
    assert session.views.compaction.checkpoint is not None
    session.restart()
    session.kills = False
    session.say(PAGE).run()
    counts = Counter(summary.upto for summary in session.views.compaction.summaries)
    assert max(counts.values()) == 1


def test_B3_work_released_by_a_worker_that_ends_is_taken_over_at_once(session):
    """The defect: an upgrade ended a turn that was waiting for its summary (N2)."""
    session.hold = {"context"}
    while not session.held:
        session.say(PAGE).run()
    (begin,) = session.held
    place = {"kind": begin.kind, "upto": begin.upto, "attempt": 1}
    left = ev.BackgroundDone(**place, ok=False, why="it was stopped", released=True)
    session.put("background", left)
    session.put("background", left)
    session.run()
    assert [begin.attempt for begin in session.held] == [1, 2]
    session.held, session.kills = session.held[1:], False
    session.release().run()
    assert session.events(ev.BackgroundDone)[-1].ok and session.views.background.works == ()


def test_law_6_a_worker_that_regains_a_partition_starts_what_it_had_claimed(session):
    """The defect: the answer started only after the claim's deadline, so a short outage delayed it
    by 70 s."""
    session.say("hello")
    session.read()
    while not session.events(ev.GenStart):
        session.read()
    session.worker.revoked([0])
    session.reader.seek(0, session.worker.assigned([0])[0])
    session.run()
    assert [turn.reason for turn in session.events(ev.TurnEnded)] == ["end_turn"]
    assert len(session.events(ev.GenStart)) == 1 and session.events(ev.GenResumed) == []
