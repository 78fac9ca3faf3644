"""Background work that goes wrong: the session goes on, and nothing is lost or taken for more."""

import json
import threading
from dataclasses import replace

import pytest

from foldlog.local.messages_api import Reply, Rule, ScriptedServer, compaction, text, tool_use
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
    """Reads a page, which nobody can say in short."""
    return PAGE * 60


def answers(request):
    """Calls the tool that it is told to, once; else answers in a word."""
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
def drive(tmp_path):
    servers, driven = [], []

    def start(*rules, **more) -> Driven:
        rules = rules or (cheap(text("In short.")),)
        servers.append(ScriptedServer([*rules, Rule(reply=answers)]).start())
        driven.append(Driven(agent(**more), servers[-1], tmp_path))
        return driven[-1]

    yield start
    HANG.set()
    for session in driven:
        session.close()
    for server in servers:
        server.stop()


def talk(session: Driven, times: int) -> Driven:
    for number in range(times):
        session.say(f"Question {number}. " + PAGE * 12).run()
        session.check()
    return session


def reasons(session: Driven) -> list[str]:
    return [turn.reason for turn in session.events(ev.TurnEnded)]


def test_S1_E_a_refusal_is_no_short_form(drive):
    session = drive(cheap(text("I can not help with that."), stop_reason="refusal"))
    session.say("read").run()
    (done,) = session.events(ev.BackgroundDone)
    assert not done.ok and "refused" in done.why
    assert session.events(ev.ResultCompacted) == []


def test_lane_B_work_that_never_ends_is_given_up_at_its_deadline(drive):
    HANG.clear()
    limits = Limits(short_tokens=600, background_timeout_ms=50)
    session = drive(limits=limits)
    session.say("slow").run()
    (done,) = session.events(ev.BackgroundDone)
    assert not done.ok and "50 ms" in done.why
    assert reasons(session) == ["end_turn"]


def signed_by_the_provider(drive) -> Driven:
    """A session that goes on from a summary of the provider's."""
    session = drive(compaction=Compaction(model=CHEAP, provider=True))
    session.server.add(
        Rule(reply=Reply([compaction("SIGNED RECORD")]), when=lambda r: r.body.get("compaction"))
    )
    talk(session, 1)
    while session.views.compaction.checkpoint is None:
        talk(session, 1)
    return session


def test_S3_4_a_summary_that_the_provider_signed_is_carried_on_by_another_model(drive):
    session = signed_by_the_provider(drive)
    session.agent = agent()
    session.restart()
    session.server.add(cheap(text("In short.")))
    asked = len(session.events(ev.ContextCompacted))
    while len(session.events(ev.ContextCompacted)) == asked:
        talk(session, 1)
    (request,) = [body for body in bodies(session) if body["model"] == CHEAP]
    assert "SIGNED RECORD" in json.dumps(request)


def test_S1_H_what_an_abort_took_from_the_memory_is_extracted_after_the_next_turn(drive):
    session = drive(memory=True)
    session.hold = {"memory"}
    session.say("I like tea.").run()
    (first,) = session.held
    session.say("Go on.")
    session.worker.consume(session.reader.poll(0, 1000))
    stop = ev.CancelRequested(cancel_id="c1", mode="now", reason="enough", by_user="u")
    session.write("producer", stop)
    session.run()
    session.held = []
    place = {"kind": "memory", "upto": first.upto, "attempt": 1}
    session.write("background", ev.BackgroundDone(**place, ok=False, why="it was stopped"))
    session.run()
    (second,) = session.held
    assert "I like tea." in second.task.request.decode()


def test_S1_H_a_worker_tries_an_extraction_again_when_its_time_has_come(drive):
    """Also one that was killed in between and knows only the log."""
    session = drive(memory=True)
    session.hold = {"memory"}
    session.say("I like tea.").run()
    for wait_ms in (MEMORY_WAIT_MS, 10 * MEMORY_WAIT_MS):
        (begin,) = session.held
        place = {"kind": "memory", "upto": begin.upto, "attempt": 1}
        session.write("background", ev.BackgroundDone(**place, ok=False, why="overloaded"))
        session.held = []
        session.run()
        assert session.held == [], "not at once"
        session.restart()
        session.ms += wait_ms
        session.run()
    (last,) = session.held
    assert "I like tea." in last.task.request.decode()
    assert session.views.background.memory_missed == 2


def test_the_ledger_counts_an_attempt_that_ended_after_its_work_was_done(drive):
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
        session.write("background", late)
    session.run()
    rows = [row for row in session.views.ledger.spent if row.work == "result"]
    assert sorted(row.attempt for row in rows) == [1, 2]


def test_S1_H_each_request_of_one_work_is_a_row_of_the_ledger(drive, monkeypatch):
    """One breaks off after it was billed, one never gets that far, and the third answers."""
    monkeypatch.setattr(background, "WAIT_S_MAX", 0.0)
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
    told = [(row.request, row.outcome, row.input_tokens) for row in rows]
    assert told == [(1, "failed", 101), (3, "complete", 103)]
    assert {row.model for row in rows} == {CHEAP} and {row.attempt for row in rows} == {1}
    answers = [row.input_tokens for row in session.views.ledger.spent if not row.work]
    session.write("background", done)  # as an outbox may that does not know it was written
    session.run()
    assert session.views.ledger.input_tokens == sum(answers) + 101 + 103
    assert [body["model"] for body in bodies(session)].count(CHEAP) == 3


def test_the_provider_summarizes_only_what_its_request_says(drive):
    """The session had a sliding window: its last request lacks what the summary stands for."""
    session = drive(strategy="sliding_window_4", compaction=Compaction(model=CHEAP, provider=True))
    session.server.add(
        Rule(reply=Reply([compaction("Signed.")]), when=lambda r: r.body.get("compaction"))
    )
    talk(session, 24)
    session.agent = agent(
        limits=Limits(soft_tokens=4_000, hard_tokens=12_000, resume_tokens=2_000),
        compaction=Compaction(model=CHEAP, provider=True),
    )
    session.restart()
    session.run()
    talk(session, 1)
    (made,) = [body for body in bodies(session) if body["model"] == CHEAP or "compaction" in body]
    assert "Question 0." in json.dumps(made)


def bodies(session: Driven) -> list[dict]:
    return [json.loads(session.server.body(n + 1)) for n in range(session.server.calls())]


def test_a_cheap_model_is_never_asked_to_read_more_than_it_can(drive):
    """Long messages that a sliding window had left out are summarized at once."""
    session = drive(strategy="sliding_window_4")
    for number in range(45):
        session.say(f"Question {number}. " + PAGE * 200).run()
    session.agent = agent(limits=Limits(resume_tokens=2_000))
    session.restart()
    session.run()
    (made,) = [body for body in bodies(session) if body["model"] == CHEAP]
    assert len(json.dumps(made)) < 330_000
    assert all(f"Question {number}." in json.dumps(made) for number in range(38))


@pytest.mark.parametrize("code", ["compaction_signature_invalid", "compaction_content_mismatch"])
def test_S3_4_a_summary_whose_signature_is_refused_is_made_anew_by_the_cheap_model(drive, code):
    """As after a change of the key: every request begins with it, and each would be refused."""
    session = signed_by_the_provider(drive)
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


@pytest.mark.parametrize("damage", ["gone", "other bytes"])
def test_S1_H_work_whose_material_is_lost_is_told_and_the_session_goes_on(drive, damage):
    """The session was left alone until the next start."""
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
