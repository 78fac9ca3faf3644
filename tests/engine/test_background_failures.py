"""Background work fails: the session continues, and nothing is lost or counted twice."""

import json
import threading
from dataclasses import replace

import pytest

from foldlog.local.messages_api import Reply, Rule, compaction, text, tool_use
from foldlog.processors.agent import Agent, Compaction
from foldlog.processors.effects import background
from foldlog.processors.fold.projections.background import MEMORY_WAIT_MS
from foldlog.processors.limits import Limits
from foldlog.processors.tools.tool import tool
from foldlog.schemas import events as ev
from foldlog.tests.engine.driven import Driven

MODEL, CHEAP = "claude-opus-5-5", "claude-haiku-4-5"
PAGE = "All work and no play makes a dull log. "
SMALL = Limits(soft_tokens=4_000, hard_tokens=12_000, resume_tokens=20_000, short_tokens=600)
HANG = threading.Event()


@tool(effect="pure")
def read(ctx) -> str:
    """Reads a page."""
    return PAGE * 60


@tool(effect="pure", compactor=lambda whole: str(HANG.wait(5)))
def slow(ctx) -> str:
    """Reads a page, with a compactor that hangs."""
    return PAGE * 60


def answers(request):
    """Calls the tool that the message names once, otherwise answers."""
    for name in ("read", "slow"):
        if name in request.last_user_text and not request.turn_results:
            return Reply([tool_use(name, {})])
    return Reply([text("Yes. " + PAGE * 5)])


def is_cheap(request) -> bool:
    return request.model == CHEAP


def cheap(*blocks, **more) -> Rule:
    return Rule(reply=Reply(list(blocks), **more), when=is_cheap)


def agent(**more) -> Agent:
    fields = {"limits": SMALL, "compaction": Compaction(model=CHEAP), **more}
    return Agent(name="helper", model=MODEL, system="Be brief.", tools=(read, slow), **fields)


@pytest.fixture
def drive(start_session):
    def start(*rules, **more) -> Driven:
        rules = rules or (cheap(text("In short.")),)
        return start_session(agent(**more), *rules, Rule(reply=answers))

    yield start
    HANG.set()


def talk(session: Driven, times: int) -> Driven:
    for number in range(times):
        session.say(f"Question {number}. " + PAGE * 12).run()
        session.check()
    return session


def reasons(session: Driven) -> list[str]:
    return [turn.reason for turn in session.events(ev.TurnEnded)]


def test_S1_E_a_refusal_of_the_model_is_not_used_as_a_short_form(drive):
    session = drive(cheap(text("I cannot help with that."), stop_reason="refusal"))
    session.say("read").run()
    (done,) = session.events(ev.BackgroundDone)
    assert not done.ok and "refused" in done.why
    assert session.events(ev.ResultCompacted) == []


def test_lane_B_work_that_hangs_fails_at_its_deadline(drive):
    HANG.clear()
    limits = Limits(short_tokens=600, background_timeout_ms=50)
    session = drive(limits=limits)
    session.say("slow").run()
    (done,) = session.events(ev.BackgroundDone)
    assert not done.ok and "50 ms" in done.why
    assert reasons(session) == ["end_turn"]


def session_with_signed_summary(drive) -> Driven:
    """Returns a session that continues from a summary with the provider's signature."""
    session = drive(compaction=Compaction(model=CHEAP, provider=True))
    session.server.add(
        Rule(reply=Reply([compaction("SIGNED RECORD")]), when=lambda r: r.body.get("compaction"))
    )
    talk(session, 1)
    while session.views.compaction.checkpoint is None:
        talk(session, 1)
    return session


def test_S3_4_another_model_builds_on_a_summary_that_the_provider_signed(drive):
    session = session_with_signed_summary(drive)
    session.restart(agent())
    session.server.add(cheap(text("In short.")))
    summaries = len(session.events(ev.ContextCompacted))
    while len(session.events(ev.ContextCompacted)) == summaries:
        talk(session, 1)
    (request,) = [body for body in bodies(session) if body["model"] == CHEAP]
    assert "SIGNED RECORD" in json.dumps(request)


def test_S1_H_an_extraction_that_was_aborted_is_repeated_after_the_next_turn(drive):
    session = drive(memory=True)
    session.hold = {"memory"}
    session.say("I like tea.").run()
    (first,) = session.held
    session.say("Go on.")
    session.read()
    stop = ev.CancelRequested(cancel_id="c1", mode="now", reason="enough", by_user="u")
    session.put("producer", stop)
    session.run()
    session.held = []
    place = {"kind": "memory", "upto": first.upto, "attempt": 1}
    session.put("background", ev.BackgroundDone(**place, ok=False, why="it was stopped"))
    session.run()
    (second,) = session.held
    assert "I like tea." in second.task.request.decode()


def test_S1_H_a_failed_extraction_is_retried_when_it_is_due(drive):
    """The worker is restarted between the failures, so it knows the due time only from the log."""
    session = drive(memory=True)
    session.hold = {"memory"}
    session.say("I like tea.").run()
    for wait_ms in (MEMORY_WAIT_MS, 10 * MEMORY_WAIT_MS):
        (begin,) = session.held
        place = {"kind": "memory", "upto": begin.upto, "attempt": 1}
        session.put("background", ev.BackgroundDone(**place, ok=False, why="overloaded"))
        session.held = []
        session.run()
        assert session.held == [], "it is not retried at once"
        session.restart()
        session.ms += wait_ms
        session.run()
    (last,) = session.held
    assert "I like tea." in last.task.request.decode()
    assert session.views.background.memory_missed == 2


def test_the_ledger_counts_an_attempt_that_ended_after_another_had_finished(drive):
    session = drive()
    session.hold = {"result"}
    session.say("read").run()
    (begin,) = session.held
    session.restart()
    session.hold = set()
    session.run()
    (spent,) = [row for row in session.views.ledger.spent if row.work == "result"]
    assert spent.attempt == 2
    usage = ev.Usage(
        input_tokens=7, cache_read_tokens=0, cache_write_5m_tokens=0, cache_write_1h_tokens=0,
        output_tokens=3, raw=b"{}",
    )
    late = ev.BackgroundDone(
        kind="result", upto=begin.upto, attempt=1, ok=True, usage=usage, model=CHEAP, why=""
    )
    for _ in range(2):
        session.put("background", late)
    session.run()
    rows = [row for row in session.views.ledger.spent if row.work == "result"]
    assert sorted(row.attempt for row in rows) == [1, 2]


async def at_once(*_) -> bool:
    """Waits for no retry."""
    return False


def test_S1_H_each_billed_request_of_background_work_is_a_row_of_the_ledger(drive, monkeypatch):
    """The first attempt fails after it was billed, the second fails before that, and the third
    succeeds."""
    monkeypatch.setattr(background, "_wait_until_due", at_once)
    broken = {"name": "error_event", "k": 3}
    rules = (
        cheap(text("In sh"), fault=broken, usage={"input_tokens": 101}),
        cheap(text(""), fault={"name": "status", "status": 500}),
        cheap(text("In short."), usage={"input_tokens": 103}),
    )
    session = drive(*(replace(rule, times=1) for rule in rules))
    session.say("read").run()
    (done,) = session.events(ev.BackgroundDone)
    assert done.ok and [one.usage is None for one in done.earlier] == [False, True]
    rows = [row for row in session.views.ledger.spent if row.work == "result"]
    listed = [(row.request, row.outcome, row.input_tokens) for row in rows]
    assert listed == [(1, "failed", 101), (3, "complete", 103)]
    assert {row.model for row in rows} == {CHEAP} and {row.attempt for row in rows} == {1}
    answers = [row.input_tokens for row in session.views.ledger.spent if not row.work]
    session.put("background", done)  # an outbox may repeat it
    session.run()
    assert session.views.ledger.input_tokens == sum(answers) + 101 + 103
    assert [body["model"] for body in bodies(session)].count(CHEAP) == 3


def test_a_request_for_a_provider_summary_contains_everything_it_summarizes(drive):
    """The session had a sliding window, so its last request lacks messages that the summary must
    cover."""
    session = drive(strategy="sliding_window_4", compaction=Compaction(model=CHEAP, provider=True))
    session.server.add(
        Rule(reply=Reply([compaction("Signed.")]), when=lambda r: r.body.get("compaction"))
    )
    talk(session, 24)
    limits = Limits(soft_tokens=4_000, hard_tokens=12_000, resume_tokens=2_000)
    session.restart(agent(limits=limits, compaction=Compaction(model=CHEAP, provider=True)))
    session.run()
    talk(session, 1)
    (made,) = [body for body in bodies(session) if body["model"] == CHEAP or "compaction" in body]
    assert "Question 0." in json.dumps(made)


def bodies(session: Driven) -> list[dict]:
    return [json.loads(session.server.body(n + 1)) for n in range(session.server.calls())]


def test_a_request_to_the_cheap_model_never_exceeds_its_window(drive):
    """One summary must cover all messages that a sliding window had left out."""
    session = drive(strategy="sliding_window_4")
    for number in range(45):
        session.say(f"Question {number}. " + PAGE * 200).run()
    session.restart(agent(limits=Limits(resume_tokens=2_000)))
    session.run()
    (made,) = [body for body in bodies(session) if body["model"] == CHEAP]
    assert len(json.dumps(made)) < 330_000
    assert all(f"Question {number}." in json.dumps(made) for number in range(38))


@pytest.mark.parametrize("code", ["compaction_signature_invalid", "compaction_content_mismatch"])
def test_S3_4_the_cheap_model_replaces_a_summary_whose_signature_is_rejected(drive, code):
    """Every request begins with the signed summary, so the provider rejects every request after a
    change of the key."""
    session = session_with_signed_summary(drive)
    signed = session.views.compaction.checkpoint_at
    refused = {"name": "bad_request", "error_code": code, "message": "not ours"}
    session.server.add(Rule(reply=Reply([], fault=refused), when=begins_signed))
    session.server.add(cheap(text("In short.")))
    talk(session, 1)
    assert reasons(session)[-1] == "end_turn", reasons(session)
    assert session.views.compaction.checkpoint_at != signed
    (request,) = [body for body in bodies(session) if body["model"] == CHEAP]
    assert "SIGNED RECORD" in json.dumps(request)


def begins_signed(request) -> bool:
    first = request.body["messages"][0]["content"]
    return isinstance(first, list) and first[0]["type"] == "compaction"


@pytest.mark.parametrize("damage", ["missing", "other bytes"])
def test_S1_H_work_whose_blob_is_lost_fails_with_the_reason_and_the_session_continues(
    drive, damage
):
    """The defect: the worker stopped serving the session until the worker's next start."""
    session = drive(memory=True, limits=Limits())
    session.hold.add("memory")
    long = PAGE * 2_000
    session.say(long).run()
    (ref,) = [e.content.ref for e in session.events(ev.MessageReceived)]
    path = session.blobs.directory / ref.sha256[:2] / ref.sha256
    whole = path.read_bytes()
    path.unlink()
    if damage == "other bytes":
        path.write_bytes(b"?")
    assert session.held and not session.events(ev.BackgroundDone)
    session.held.clear()
    session.restart()
    session.run()
    done = session.events(ev.BackgroundDone)[-1]
    assert (done.kind, done.ok) == ("memory", False) and "is lost: blob" in done.why
    assert session.worker.owned[0].stuck == {}
    path.write_bytes(whole)
    assert session.say("go on").run().events(ev.TurnEnded)[-1].reason == "end_turn"
