"""The runs of a session over real time: what ran, what waited for whom, and what was in doubt."""

import pytest

from foldlog.tests.web.inspector.sessions import Timed
from foldlog.web.inspector.timeline import Timeline


@pytest.fixture
def timed(tmp_path):
    return Timed(tmp_path)


def test_a_turn_has_a_point_of_the_person_a_bar_of_the_model_and_one_of_the_tool(timed):
    timed.after(5).call()
    timed.after(5).start()
    timed.after(2000).complete("Let me look.", [("read_file", {"path": "a"})])
    timed.played.invoke()
    timed.played.tool_start()
    timed.after(300).tool_result("x")
    assert timed.of("person") == [("point", 0, "")]
    assert timed.of("model") == [("run", 2000, "ok"), ("waits_worker", None, "")]
    assert timed.of("tool") == [("run", 300, "ok")]
    point, model, tool, _ = timed.runs
    assert (point.title, model.title, tool.title) == ("Refund order 17", "1.1", "read_file")
    assert model.note == "worker w1"


def test_a_wait_for_a_worker_is_kept_until_it_takes_the_work(timed):
    timed.played.take()
    timed.after(9000).call()
    timed.after(4000).start()
    waits = [run for run in timed.of("model") if run[0] == "waits_worker"]
    assert waits == [("waits_worker", 9000, "ok"), ("waits_worker", 4000, "ok")]
    assert timed.of("model")[-1] == ("run", None, "")


def test_a_lost_attempt_ends_with_its_last_chunk_and_a_wait_follows(timed):
    timed.played.call()
    timed.played.start()
    timed.after(1500).chunk("The lamp")
    timed.after(12_000).resume()
    timed.after(700).complete("The lamp broke")
    assert timed.of("model") == [
        ("run", 1500, "lost"), ("waits_worker", 12_000, "ok"), ("run", 700, "ok"),
        ("waits_worker", None, ""),
    ]
    assert timed.runs[2].note == "worker w1 was lost"


def test_a_failed_attempt_is_followed_by_the_wait_for_its_retry(timed):
    timed.played.call()
    timed.played.start()
    timed.after(100).fail()
    timed.after(8000).start()
    assert timed.of("model")[:2] == [("run", 100, "failed"), ("waits_retry", 8000, "ok")]
    assert timed.runs[1].note == "worker w1 · overloaded"


def test_an_approval_waits_for_the_person_and_names_the_decision(timed):
    timed.played.propose("I would charge.", ("charge", {"amount_cents": 900}))
    timed.played.invoke(approval="ask")
    assert timed.of("tool") == [("waits_person", None, "")]
    timed.after(60_000 - 1)
    call = timed.played.views.turn.calls[0]
    timed.sessions.decide("s1", call.key, "allow", args_sha256=call.args_sha256)
    timed.after(1000).tool_start()
    kinds = [("waits_person", 59_999, "allow"), ("waits_worker", 1000, "ok"), ("run", None, "")]
    assert timed.of("tool") == kinds
    assert [run.title for run in timed.runs if run.lane == "person"][-1] == "allowed it"


def test_a_doubt_lasts_until_a_person_reports(timed):
    timed.played.propose("Charging.", ("charge", {"amount_cents": 900}))
    timed.played.invoke()
    timed.played.tool_start()
    timed.after(10_000).uncertain()
    timed.after(300_000)
    timed.sessions.resolve("s1", "1.1.0", "happened", report="the bank has it")
    assert timed.of("tool") == [("run", 10_000, "doubt"), ("doubt", 300_000, "happened")]


def test_background_work_that_outlives_its_step_is_one_run(timed):
    """The defect: the page showed the work as lost, and begun again, at each step of the turn."""
    timed.played.answer("Refunded.")
    timed.remember()
    timed.after(1000)
    timed.sessions.say("s1", "And order 18", message_id="m2")
    timed.after(1000).propose("Let me look.", ("read_file", {"path": "a"}))
    assert timed.of("background") == [("run", None, "")]
    timed.after(1000)
    timed.remembered()
    assert timed.of("background") == [("run", 3000, "ok")]


def test_runs_grow_with_the_log_and_equal_those_of_a_new_fold(timed):
    timeline = Timeline(timed.log, "s1")
    for number in range(3):
        timed.after(1000).call()
        timed.after(10).start()
        timeline.extend()
        timed.after(500).complete("", [("read", {"n": number})])
        timed.played.invoke()
        timed.played.tool_start()
        timed.after(5).tool_result("x")
    timeline.extend()
    fresh = Timeline(timed.log, "s1").extend()
    assert timeline.runs.closed == fresh.runs.closed
    assert timeline.runs.open == fresh.runs.open
