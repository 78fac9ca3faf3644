"""The status of a session and its reason, which every list, page and export shows."""

from operator import attrgetter

import pytest

from foldlog.client.log_client import LogClient
from foldlog.client.status import Reason, Situation, Status, situation_of, turn_situation
from foldlog.client.waiting import what_it_waits_for, who_lacks
from foldlog.schemas import events as ev
from foldlog.schemas.events.parts import AgentDigest
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.tests.kit.played import memory_log, opened, settings_in

RETRY_AT = 4_000_000_000_000
SHOP, BANK = ((AgentDigest(name=name, digest="0" * 32),) for name in ("shop", "bank"))


class Story:
    """A session, the commands of its user, and its worker."""

    def __init__(self, directory):
        self.sessions, self.played = opened(memory_log(), settings_in(directory))

    def now(self):
        return situation_of(self.played.views, self.played.fold.holders)

    def say(self):
        self.sessions.say("s1", "hi")

    def stop(self):
        turn = self.played.views.turn.number
        self.sessions.cancel("s1", turn=turn)

    def fail(self, error):
        self.played.call()
        self.played.start()
        self.played.fail(error=error, retry_at=RETRY_AT)

    def gone(self):
        self.played.append(ev.OwnerGone(owner=self.played.owner), "sessions", PARTITION_KEY)

    def ask(self):
        self.played.propose("", ("charge", {}))
        self.played.invoke(approval="ask")

    def allow(self):
        (call,) = self.played.views.turn.calls
        self.sessions.decide("s1", call.key, "allow", args_sha256=call.args_sha256)


BEGUN = ("say", "played.take")
STORIES = [
    ((), Status.IDLE, Reason.NEW),
    (("say",), Status.UNSERVED, Reason.NOT_TAKEN),
    (BEGUN, Status.BUSY, Reason.WORKER),
    ((*BEGUN, "gone"), Status.UNSERVED, Reason.WORKER_ENDED),
    (("say", ("played.take", "w1/1", BANK)), Status.UNSERVED, Reason.OTHER_AGENTS),
    (("say", ("played.take", "w1/1", SHOP), "played.call", "played.start"),
     Status.BUSY, Reason.MODEL),
    ((*BEGUN, ("fail", "rate_limit")), Status.BUSY, Reason.RATE_LIMIT),
    ((*BEGUN, ("fail", "overloaded")), Status.BUSY, Reason.RETRY),
    ((*BEGUN, "ask"), Status.ASKS, Reason.OWN),
    ((*BEGUN, "ask", "gone"), Status.ASKS, Reason.OWN),
    ((*BEGUN, "ask", "stop"), Status.BUSY, Reason.CLOSING),
    ((*BEGUN, "ask", "allow", "played.tool_start"), Status.BUSY, Reason.TOOL),
    ((*BEGUN, "ask", "allow", "played.tool_start", "played.uncertain"), Status.DOUBT, Reason.OWN),
    ((*BEGUN, ("played.answer", "ok")), Status.IDLE, Reason.DONE),
    ((*BEGUN, "stop", ("played.end", "cancelled")), Status.IDLE, Reason.STOPPED),
    ((*BEGUN, ("played.propose", "ok"), ("played.end", "budget_exceeded")),
     Status.IDLE, Reason.OVER_BUDGET),
    ((*BEGUN, ("played.propose", "ok"), ("played.end", "max_steps")), Status.IDLE, Reason.FAILED),
    ((*BEGUN, ("played.answer", "ok"), ("sessions.terminate", "s1")),
     Status.TERMINATED, Reason.OWN),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "status", "reason"), STORIES)
def test_every_status_has_its_reason(tmp_path, steps, status, reason):
    story = Story(tmp_path)
    for step in steps:
        name, *arguments = (step,) if isinstance(step, str) else step
        attrgetter(name)(story)(*arguments)
    assert story.now()[:2] == (status, reason)
    unknown = situation_of(story.played.views)
    assert unknown.status is (Status.BUSY if status is Status.UNSERVED else status)


def test_every_reason_is_decided_somewhere():
    told = {reason for _, _, reason in STORIES}
    assert set(Reason) - told == {Reason.SUMMARY}, "tests/engine/test_compaction.py has this one"


def test_the_end_of_a_wait_is_known(tmp_path):
    story = Story(tmp_path)
    story.say()
    story.fail("rate_limit")
    assert story.now() == Situation(Status.BUSY, Reason.RATE_LIMIT, RETRY_AT)
    text = what_it_waits_for(story.played.views).text
    assert text.startswith("the model call failed (rate_limit) and will be retried at ")
    story.played.start()
    story.played.complete("", [("charge", {})])
    story.played.invoke(approval="ask")
    (call,) = story.played.views.turn.calls
    assert story.now() == Situation(Status.ASKS, until=call.expires_at)
    assert turn_situation(story.played.views).reason is Reason.WORKER


def test_a_session_that_no_worker_serves_says_so(tmp_path):
    story = Story(tmp_path)
    story.say()
    holders = story.played.fold.holders
    waits = what_it_waits_for(story.played.views, holders)
    assert waits.lacks and "none has taken the session's partition. Start a" in waits.text
    story.played.take()
    assert what_it_waits_for(story.played.views, story.played.fold.holders).text == ""
    story.gone()
    ended = who_lacks("shop", story.played.fold.holders)
    assert "w1 had its partition and has ended. Start a worker with agent shop: `foldlog." in ended


def test_the_end_of_a_parents_turn_is_not_the_forks(tmp_path):
    story = Story(tmp_path)
    story.say()
    story.played.propose("ok")
    story.played.end("max_steps")
    assert story.now().has_failed
    client = LogClient(settings_in(tmp_path), story.played.log)
    name = client.branching("ana").fork("s1").session_id
    with client.fold(name) as fork:
        assert situation_of(fork.to_end()) == Situation(Status.IDLE, Reason.NEW)


def test_a_log_without_the_record_that_names_the_worker_is_no_proof_that_none_runs(tmp_path):
    story = Story(tmp_path)
    story.say()
    nobody = story.played.fold.holders
    story.played.call()
    assert situation_of(story.played.views, nobody) == Situation(Status.BUSY, Reason.WORKER)
