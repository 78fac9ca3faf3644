"""The checks of `doctor` find problems and everything that waits for a person, each with what to
do."""

import dataclasses

import pytest

from foldlog.cli.commands.doctor import MARKS
from foldlog.client.show import fold_everything
from foldlog.log import MemoryLog
from foldlog.log.door import Behind
from foldlog.log.partition import partition_for
from foldlog.processors.outside.connection import Condition, State
from foldlog.processors.store.snapshots import snapshots_of
from foldlog.processors.store.store import Belongs, Cursor, fold_version, new_store
from foldlog.processors.wake.work_ends import WorkEnd
from foldlog.reports.replay import store_directory
from foldlog.schemas import events as ev
from foldlog.schemas.topics import DEAD_LETTERS, SESSION_EVENTS, UNCLEAN, topics
from foldlog.schemas.value import replace
from foldlog.tests.kit.played import PARTITIONS, Played, memory_log, opened
from foldlog.upkeep.doctor import (
    agents as check_agents,
    checks as checks,
    snapshots as check_snapshots,
)
from foldlog.upkeep.doctor.findings import Code
from foldlog.upkeep.snapshots import make


@pytest.fixture
def talk(log, settings):
    sessions, played = opened(log, settings)
    sessions.say("s1", "hi", message_id="m1")
    return sessions, played


def only(findings, level):
    return [finding for finding in findings if finding.level == level]


def mcp_findings(*conditions):
    named = dict(zip("abc", conditions, strict=False))
    states = {name: str(each.state) for name, each in named.items()}
    return list(checks.mcp_servers(states, {name: str(each) for name, each in named.items()}))


def test_an_mcp_server_that_is_down_is_a_problem():
    conditions = Condition(State.UP, tools="3"), Condition(State.DOWN, why="no such file")
    up, down = mcp_findings(*conditions)
    assert (up.level, down.level) == ("ok", "problem") and "b is down: no such file" in down.text


def test_every_state_of_an_mcp_server_has_a_printable_level():
    """The defect: a server that connected late made `foldlog doctor` fail with KeyError."""
    levels = {state: mcp_findings(Condition(state))[0].level for state in State}
    assert levels == {
        State.NEW: "ok", State.UP: "ok", State.CLOSED: "ok",
        State.NOT_AGREED: "note", State.ENDED: "note", State.DOWN: "problem",
    }
    assert set(levels.values()) <= set(MARKS)


@pytest.mark.parametrize("states", [{}, {"a": "a state of tomorrow"}])
def test_a_worker_of_another_version_reports_its_servers_without_a_known_state(states):
    (found,) = checks.mcp_servers(states, {"a": "down: gone"})
    assert (found.level, found.code) == ("note", Code.MCP_UNKNOWN) and "a is down" in found.text


def test_missing_and_different_topics_are_problems(settings):
    (missing, *_) = checks.topics_as_wanted(MemoryLog(), settings)
    assert missing.level == "problem" and missing.do == "foldlog topics apply"
    (differs, *_) = checks.topics_as_wanted(MemoryLog(topics(3)), settings)
    assert differs.level == "problem" and "is 3, wanted 4" in differs.text
    assert not only(checks.topics_as_wanted(memory_log(), settings), "problem")


def test_a_topic_that_may_lose_acknowledged_records_is_a_problem(settings):
    first, *others = topics(settings.partitions)
    assert first.name == SESSION_EVENTS
    specs = [dataclasses.replace(first, config={**first.config, UNCLEAN: "true"}), *others]
    (found,) = only(checks.topics_as_wanted(MemoryLog(specs), settings), "problem")
    assert found.text == f"session-events: {UNCLEAN} is true, wanted false"


def test_partitions_whose_replicas_are_behind_are_reported(settings):
    """A partition with too few replicas in sync accepts no record; with fewer than all, it does."""
    stopped, late = checks._replicas_behind(
        [Behind("t", 0, 1, 3, 2), Behind("t", 1, 2, 3, 2), Behind("t", 2, 2, 3, 2)]
    )
    assert (stopped.level, late.level) == ("problem", "note")
    assert "no record for 1 partitions: t, partition 0: 1 of 3 replicas" in stopped.text
    assert "2 partitions have fewer copies" in late.text
    assert not Behind("t", 0, 1, 1, 2).is_read_only, "Kafka never requires more than there are"


def test_deleted_first_records_are_a_problem(log, talk, settings):
    partition = partition_for("s1", PARTITIONS)
    log.trim(SESSION_EVENTS, partition, 1)
    (finding,) = only(checks.topics_as_wanted(log, settings), "problem")
    assert f"partition {partition} begins at offset 1" in finding.text and "stores" in finding.do


def test_unclaimed_partitions_are_reported_for_each_role(log, talk):
    findings = list(checks.partitions_held(fold_everything(log), PARTITIONS))
    assert len(findings) == 5 and "no worker has ever claimed 4 of 4" in findings[0].text
    talk[1].take()
    (first, *_) = checks.partitions_held(fold_everything(log), PARTITIONS)
    assert "no worker has ever claimed 3 of 4 partitions for sessions" in first.text


def test_a_frozen_session_is_reported_with_its_offset(log, talk):
    head = [("t", b"NEW"), ("w", b"producer"), ("m", b"1")]
    talk[1].producer.append(SESSION_EVENTS, "s1", b"future", head)
    (finding,) = checks.frozen_sessions(fold_everything(log), PARTITIONS)
    assert "s1 is frozen at offset 2" in finding.text and "upgrade" in finding.do


def test_a_session_whose_agent_no_worker_serves_is_a_problem(log, talk):
    (finding,) = check_agents.agents_missing(fold_everything(log), frozenset({"other"}))
    assert finding.level == "problem"
    assert "needs agent shop; the worker serves other" in finding.text
    assert not list(check_agents.agents_missing(fold_everything(log), frozenset({"shop"})))


def test_sessions_of_one_unserved_agent_are_one_finding(log, talk, settings):
    """The defect: with a worker for another agent, a log with 54 sessions gave 54 findings."""
    for n in range(9):
        opened(log, settings, f"old{n}")
    open_one, *others = check_agents.agents_missing(fold_everything(log), frozenset({"other"}))
    assert not others and open_one.level == "problem"
    text = "10 sessions need agent shop (with an open turn: s1); the worker serves other"
    assert open_one.text == text
    talk[1].answer("hello")
    (idle,) = check_agents.agents_missing(fold_everything(log), frozenset())
    assert idle.level == "note"
    assert idle.text == "10 sessions need agent shop; the worker serves none"


def test_waiting_approvals_and_doubts_are_reported_with_their_commands(log, talk):
    played = talk[1]
    played.propose("", ("charge", {}), ("mail", {}))
    played.invoke(0)
    played.invoke(1, approval="ask")
    played.tool_start()
    played.uncertain()
    asks, doubt = checks.people_wanted(fold_everything(log))
    assert asks.do == "foldlog approve s1 1.1.1, or deny"
    assert doubt.do.startswith("foldlog resolve s1 1.1.0 --happened TEXT")


def everything_of(log, outcomes: dict[str, str]):
    """Sessions with these outcomes of background work; the last one in the dict changed last."""
    everything = fold_everything(log)
    views = {
        name: replace(each, background=replace(each.background, said="why", code=outcomes[name]))
        for name, each in everything.sessions.items()
    }
    newest = {name: at for at, name in enumerate(outcomes)}
    return everything._replace(sessions=views, last_at=newest)


def test_failed_background_work_is_reported_before_skipped_work(log, settings):
    """The defect: forty sessions that were too short for a summary hid the session whose model did
    not exist."""
    outcomes = {f"a{n}": WorkEnd.TOO_LITTLE for n in range(5)} | {"b0": WorkEnd.SUMMARY_EMPTY}
    outcomes |= {f"z{n}": WorkEnd.MODEL_FAILED for n in range(4)} | {"c": WorkEnd.ABORTED}
    for name in outcomes:
        opened(log, settings, name)
    found = list(checks.background_failures(everything_of(log, outcomes)))
    assert [f.text.partition(":")[0] for f in found] == [
        "session z3", "session z2", "session z1", "2 more sessions whose background work failed",
        "session c", "session a4", "session a3", "3 more sessions whose background work is waiting",
    ]
    assert [found[place].code for place in (0, 4, 5)] == [
        Code.BACKGROUND_FAILED, Code.BACKGROUND_RETRIED, Code.BACKGROUND_TOO_LITTLE
    ]
    assert len(list(checks.background_failures(everything_of(log, outcomes), None))) == 11


def test_a_failed_summary_by_the_agents_own_model_has_advice_of_its_own(log, settings):
    opened(log, settings)
    for end, is_own in (
        (WorkEnd.NOT_SUMMARIZED, True),
        (WorkEnd.OWN_MODEL_FAILED, True),
        (WorkEnd.MODEL_FAILED, False),
        ("", False),  # written by an older version
    ):
        (found,) = checks.background_failures(everything_of(log, {"s1": end}))
        assert ("provider=True" in found.do) == is_own


def test_sessions_out_of_context_room_are_named_with_a_remedy(log, settings):
    def end_turn(name: str, reason: str):
        sessions, played = opened(log, settings, name)
        sessions.say(name, "hi", message_id="m1")
        played.call()
        played.start()
        played.complete("well")
        played.end(reason)
        return sessions

    for n in range(5):
        end_turn(f"s{n}", "budget_exceeded")
    end_turn("fine", "end_turn")
    end_turn("again", "budget_exceeded").say("again", "and now?", message_id="m2")
    (found,) = checks.out_of_room(fold_everything(log))
    assert found.level == "note" and "hard_tokens" in found.do and "again" not in found.text
    assert "of 5 sessions of agent shop ended with budget_exceeded: s" in found.text
    assert found.text.endswith("2 more")


def test_I17_a_session_with_pending_work_and_no_event_is_a_problem(log, talk):
    everything = fold_everything(log)
    at = everything.last_at["s1"]
    assert not list(checks.owed_and_idle(everything, at + 1000))
    (finding,) = checks.owed_and_idle(everything, at + 31_000)
    assert "has pending work, LLM_CALLED (N3), and no event for 31 s" in finding.text
    talk[1].call()
    talk[1].start()
    assert not list(checks.owed_and_idle(fold_everything(log), at + 31_000)), "it is claimed"


def test_dead_letters_are_counted_and_the_last_are_shown(log):
    assert [f.level for f in checks.dead_letters(log, fold_everything(log))] == ["ok"]
    for offset in range(7):
        head = [("__dlq.errors.offset", str(offset).encode()), ("__dlq.errors.why", b"junk")]
        log.producer().append(DEAD_LETTERS, None, b"x", head)
    first, *shown = checks.dead_letters(log, fold_everything(log))
    assert "7 records" in first.text
    assert [finding.text for finding in shown] == [f"offset {n}, why junk" for n in range(2, 7)]


def test_dead_letters_are_a_problem_only_while_a_session_is_frozen(log, talk):
    """The defect: dead letters were a problem until their retention ended, although no command
    could remove them."""
    log.producer().append(DEAD_LETTERS, "s1", b"future", [("__dlq.errors.offset", b"2")])
    first, *_ = checks.dead_letters(log, fold_everything(log))
    assert first.level == "note" and "after 90 days" in first.do
    head = [("t", b"NEW"), ("w", b"producer"), ("m", b"1")]
    talk[1].producer.append(SESSION_EVENTS, "s1", b"future", head)
    first, *_ = checks.dead_letters(log, fold_everything(log))
    assert first.level == "problem"


def test_a_store_of_another_log_is_reported_as_to_be_rebuilt(log, settings, talk):
    assert "no worker has run here yet" in next(checks.stores(log, settings)).text
    new_store(store_directory(settings, 0), Belongs("x", "y", "z"), 0).close()
    mine = Belongs(log.identity(), log.topic_id(SESSION_EVENTS), fold_version())
    new_store(store_directory(settings, 1), mine, 0).close()
    foreign, opened_stores = checks.stores(log, settings)
    assert foreign.level == "note" and "was built from another log" in foreign.text
    assert opened_stores.text.startswith("2 stores in")


def test_a_partition_without_a_recent_snapshot_is_named(log, settings, talk):
    on = dataclasses.replace(settings, snapshot_records=1)
    partition = partition_for("s1", PARTITIONS)
    (found,) = check_snapshots.snapshots_made(log, on)
    assert found.level == "ok", "two records and a limit of three"
    for number in range(4):
        talk[0].say("s1", "hi", message_id=f"more{number}")
    (found,) = check_snapshots.snapshots_made(log, on)
    assert found.level == "note" and f"partition {partition}: it has no snapshot" in found.text
    at = log.end_offsets(SESSION_EVENTS)[partition]
    mine = Belongs(log.identity(), log.topic_id(SESSION_EVENTS), fold_version())
    store = new_store(store_directory(settings, partition), mine, at)
    store.write({}, {}, bool, store.partition, Cursor(at, 0))
    store.close()
    list(make(log, on, snapshots_of(on)))
    (found,) = check_snapshots.snapshots_made(log, on)
    assert found.level == "ok" and found.text == "of 1 partitions, at most 0 records to fold"
    off = dataclasses.replace(settings, snapshot_records=0)
    assert "turned off" in next(check_snapshots.snapshots_made(log, off)).text


def test_sessions_are_counted(log, talk, settings):
    opened(log, settings, "s2")
    Played(log, "s1").answer("hello")
    assert checks.sessions_counted(fold_everything(log)).text == "2, 0 with an open turn"


def test_S0_4_doctor_counts_the_refused_requests_of_tools(log, talk):
    _, played = talk
    played.propose("", ("mail", {}))
    played.invoke(0)
    played.tool_start()
    wanted = ev.Trigger(trigger="publish")
    played.tool_result("sent", triggers=(wanted, wanted))
    (found,) = checks.refused_to_tools(fold_everything(log))
    invalid = "invalid transition: phase=chatting, event=publish"
    assert found.text == f"tool mail was refused 2 times: {invalid} (s1)"
    assert found.level == "note" and "fix the tool" in found.do
