"""Every reader of the log gets the same decision on an event and the same answer to a message."""

import pytest

from foldlog.client import outcomes
from foldlog.client.events import TurnEnded, Waiting
from foldlog.client.log_client import LogClient
from foldlog.client.outcomes import NoAnswerYet, Patience, UnknownMessage, decision_on
from foldlog.client.session import Session, reply_from_now
from foldlog.client.session_fold import SessionFold
from foldlog.processors.fold.projections.transcript import Line
from foldlog.producers import Sessions
from foldlog.schemas.topics import SESSION_EVENTS
from foldlog.tests.kit.played import Played, memory_log, opened


def decide(log, receipt):
    with SessionFold(log, receipt.session_id) as folded:
        return decision_on(folded, receipt)


def answer(log, settings, message_id, **more):
    with LogClient(settings, log) as client, Session(client, "s1") as session:
        return reply_from_now(session, message_id).answer(**more)


def test_a_decision_is_read_from_the_log_without_a_worker(log, settings):
    sessions = Sessions(log, settings)
    first = decide(log, sessions.open("s1", agent="shop"))
    assert first.verdict == "accepted" and first.counted and first.views.turn.known
    again = decide(log, sessions.open("s1", agent="shop"))
    assert again.verdict == "duplicate" and again.counted and "nothing changed" in again.detail
    other = decide(log, sessions.open("s1", agent="other"))
    assert (other.verdict, other.code, other.counted) == ("refused", "already_open", False)


def test_a_decision_is_that_at_its_offset_whatever_came_later(log, settings):
    sessions, _ = opened(log, settings)
    locked = sessions.lock("s1", "p1")
    second = sessions.lock("s1", "p2")
    sessions.terminate("s1")
    assert decide(log, locked).verdict == "accepted"
    assert decide(log, second).detail == "project_id already locked"


def test_a_command_to_a_frozen_session_is_ignored_with_the_reason(log, settings):
    sessions, played = opened(log, settings)
    played.producer.append(
        SESSION_EVENTS, "s1", b"from the future", [("t", b"NEW"), ("w", b"producer"), ("m", b"1")]
    )
    ignored = decide(log, sessions.say("s1", "hi"))
    assert (ignored.verdict, ignored.counted) == ("ignored", False)
    assert "frozen at offset 1" in ignored.detail


def test_S0_10_both_senders_of_a_message_get_the_same_answer(log, settings):
    sessions, played = opened(log, settings)
    first = sessions.say("s1", "hi", message_id="m1")
    second = sessions.say("s1", "hi", message_id="m1")
    assert decide(log, first).verdict == "accepted"
    assert decide(log, second).verdict == "duplicate"
    ended = played.answer("hello")
    late = sessions.say("s1", "hi", message_id="m1")
    assert decide(log, late).verdict == "duplicate"
    answers = {answer(log, settings, receipt.id) for receipt in (first, second, late)}
    assert answers == {outcomes.Answer("s1", "m1", 1, "end_turn", "hello", ended)}
    assert played.views.turn.number == 1, "one turn"


def test_the_answer_is_the_last_text_of_the_turn(log, settings):
    sessions, played = opened(log, settings)
    sessions.say("s1", "look", message_id="m1")
    played.propose("I will look.", ("read", {"path": "a"}))
    played.run_tool("seen")
    played.answer("It is there.")
    assert answer(log, settings, "m1").text == "It is there."


def test_queued_messages_share_the_turn_that_owns_them(log, settings):
    sessions, played = opened(log, settings)
    sessions.say("s1", "one", message_id="m1")
    played.call()
    sessions.say("s1", "two", message_id="m2")
    sessions.say("s1", "three", message_id="m3")
    played.start()
    played.complete("first")
    played.end()
    played.answer("second")
    assert [answer(log, settings, m).turn for m in ("m1", "m2", "m3")] == [1, 2, 2]
    assert answer(log, settings, "m2")._replace(message_id="m3") == answer(log, settings, "m3")


def test_the_answer_of_a_cancelled_turn_is_its_text_so_far(log, settings):
    sessions, played = opened(log, settings)
    sessions.say("s1", "hi", message_id="m1")
    played.call()
    played.start()
    sessions.cancel("s1", turn=1)
    played.stopped("I was about to")
    played.end("cancelled")
    assert answer(log, settings, "m1")[3:5] == ("cancelled", "I was about to")


def test_the_answer_of_a_failed_turn_has_the_error(log, settings):
    sessions, played = opened(log, settings)
    sessions.say("s1", "hi", message_id="m1")
    played.call()
    played.start()
    played.fail(permanent=True)
    played.end("failed")
    assert answer(log, settings, "m1").reason == "failed"
    assert "overloaded: " in answer(log, settings, "m1").note


@pytest.mark.parametrize(
    ("reason", "used", "limit", "shown"),
    [
        ("failed", 1, 5, "1 attempt, 5 are allowed"),
        ("max_steps", 1, 1, "1 step, 1 is allowed"),
        ("max_steps", 21, 21, "21 steps, 21 are allowed"),
        ("budget_exceeded", 21_000, 20_000, "21,000 tokens, 20,000 are allowed"),
        ("end_turn", None, None, ""),
    ],
)
def test_the_limit_of_a_turn_is_a_phrase_with_right_numbers(reason, used, limit, shown):
    assert Line("ended", 1, 1, 9, 0, reason, used=used, limit=limit).text == shown


def test_messages_queued_in_a_terminated_session_are_answered_as_terminated(log, settings):
    sessions, played = opened(log, settings)
    sessions.say("s1", "one", message_id="m1")
    played.call()
    sessions.say("s1", "two", message_id="m2")
    sessions.terminate("s1")
    played.end("terminated")
    assert {answer(log, settings, m).reason for m in ("m1", "m2")} == {"terminated"}


def test_a_wait_without_a_worker_reports_it_and_times_out(log, settings, monkeypatch):
    monkeypatch.setattr("foldlog.client.session.PATIENCE_S", -1.0)
    sessions, _ = opened(log, settings)
    sessions.say("s1", "hi", message_id="m1")
    reports = []
    with pytest.raises(NoAnswerYet, match=r"It is kept: reply\('m1'\)"):
        answer(log, settings, "m1", timeout_s=0.05, report=reports.append)
    assert len(reports) == 1 and "foldlog worker" in reports[0] and "foldlog dev" in reports[0]


def test_whoever_waits_again_after_a_time_limit_is_told_the_reason_again(
    log, settings, monkeypatch
):
    monkeypatch.setattr("foldlog.client.session.PATIENCE_S", -1.0)
    sessions, _ = opened(log, settings)
    sessions.say("s1", "hi", message_id="m1")
    with LogClient(settings, log) as client, Session(client, "s1") as session:
        reply = session.reply("m1")
        with pytest.raises(NoAnswerYet, match="not answered"):
            reply.answer(timeout_s=0.05)
        assert "foldlog worker" in reply.until(Waiting, timeout_s=5).reason
        with pytest.raises(NoAnswerYet, match="no TurnEnded came"):
            reply.until(TurnEnded, timeout_s=0.05)
        assert "foldlog worker" in reply.until(Waiting, timeout_s=5).reason


def test_a_wait_for_approval_reports_the_command_at_once(log, settings):
    sessions, played = opened(log, settings)
    sessions.say("s1", "pay", message_id="m1")
    played.propose("", ("charge", {"cents": 5}))
    played.invoke(approval="ask")
    reports = []
    with pytest.raises(NoAnswerYet, match="charge waits for approval") as late:
        answer(log, settings, "m1", timeout_s=0, report=reports.append)
    assert late.value.waits.person
    assert reports == ["charge waits for approval: `foldlog approve s1 1.1.0` or `deny`"]


def test_a_wait_for_a_call_in_doubt_reports_the_command(log, settings):
    sessions, played = opened(log, settings)
    sessions.say("s1", "pay", message_id="m1")
    played.propose("", ("charge", {"cents": 5}))
    played.invoke()
    played.tool_start()
    played.uncertain()
    reports = []
    with pytest.raises(NoAnswerYet):
        answer(log, settings, "m1", timeout_s=0, report=reports.append)
    assert "foldlog resolve s1 1.1.0 --happened TEXT" in reports[0]


def test_waiting_for_an_unknown_message_is_an_error(log, settings):
    opened(log, settings)
    with pytest.raises(UnknownMessage, match="no message m9"):
        answer(log, settings, "m9")


def test_an_answer_in_the_blob_store_is_fetched(log, settings):
    from foldlog.producers import BlobStore
    from foldlog.schemas.events import Body

    blobs = BlobStore(settings.blobs_dir)
    sessions, played = opened(log, settings)
    sessions.say("s1", "hi", message_id="m1")
    played.call()
    played.start()
    ref = blobs.store(b'[{"type":"text","text":"long"}]', "application/json")
    played.complete(content=Body(ref=ref))
    played.end()
    assert answer(log, settings, "m1").text == "long"


def test_a_wait_ends_when_the_answer_comes(settings, monkeypatch):
    monkeypatch.setattr("foldlog.client.session.PATIENCE_S", -1.0)
    log = memory_log(threaded=True)
    sessions, played = opened(log, settings)
    sessions.say("s1", "hi", message_id="m1")
    found = answer(log, settings, "m1", report=lambda _reason: played.answer("there"))
    assert found.text == "there"


def test_a_wait_from_now_on_folds_nothing_again(log, settings):
    sessions, played = opened(log, settings)
    sessions.say("s1", "hi", message_id="m1")
    played.answer("there")
    with LogClient(settings, log) as client, Session(client, "s1") as session:
        reply = reply_from_now(session, "m1")
        assert reply.answer().text == "there" and list(reply) == []
        assert reply._feed is session._feed


def test_the_played_worker_demands_that_its_events_are_accepted(log, settings):
    opened(log, settings)
    with pytest.raises(AssertionError):
        Played(log, "s1").take().end()


def test_the_report_of_a_missing_worker_names_the_agent(log, settings):
    """The defect: for a mistyped agent, the report was that no worker runs, although one was
    running."""
    sessions, played = opened(log, settings)
    sessions.say("s1", "hi", message_id="m1")
    reports = []
    Patience(reports.append, patience_s=-1.0).report_if_due(played.views)
    assert "worker with agent shop" in reports[0] and "foldlog doctor" in reports[0]
