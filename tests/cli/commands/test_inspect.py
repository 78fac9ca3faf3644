"""The commands that inspect (sessions, show, tail, request, wake, replay, doctor): their output for
people and for programs."""

import hashlib
import json
import re
import time
from dataclasses import replace

import pytest

from foldlog.cli.commands import session_list
from foldlog.cli.commands.session_list import TimeParam
from foldlog.client.log_client import LogClient
from foldlog.log.made import note
from foldlog.schemas import codec
from foldlog.schemas.compiled import in_words
from foldlog.schemas.enums import LookKind
from foldlog.schemas.events.parts import AgentDigest
from foldlog.schemas.looks import Look, encode_look
from foldlog.schemas.topics import OPERATOR_LOOKS
from foldlog.tests.fleet.answering import answering
from foldlog.tests.kit.played import Played
from foldlog.tests.reports.test_replay import stored


@pytest.fixture
def talk(shell):
    """The session s1, with one answered turn that used a tool."""
    shell("open s1 --agent shop")
    shell("send s1", "look \x1b[2J", "--message-id=m1")
    played = Played(shell.log, "s1")
    played.call()
    played.start()
    played.chunk("I look.")
    played.complete("I look.", [("read", {"path": "a"})])
    played.run_tool("seen \x1b[31m")
    played.answer("It is there.")
    return played


def test_sessions_is_a_table_with_titles_and_words(shell, talk):
    head, row = shell("sessions").out.splitlines()
    assert head.split() == "session title status agent user turn cost cached time changed".split()
    assert re.match(r"s1 +look \\x1b\[2J +idle +shop +ana +1 +unknown +- ", row), row
    (found,) = shell("sessions --json").json
    assert found["title"] == "look \x1b[2J" and found["failed"] is False
    assert found["status"] == "idle" and found["turns_ms"] >= 0
    assert shell("sessions --user bob --json").json == []


@pytest.fixture
def many(shell, talk):
    """Sessions in several states, next to s1, which is idle."""
    shell("send asks", "Please pay.", "--agent", "bank")
    asking = Played(shell.log, "asks")
    asking.propose("", ("charge", {}))
    asking.invoke(approval="ask")
    shell("send failed", "Fail, please, in this long first sentence. And more.")
    failing = Played(shell.log, "failed")
    failing.call()
    failing.start()
    failing.fail(permanent=True)
    failing.end("failed")
    shell("open over")
    shell("terminate over")
    return shell


def reasons(ran) -> dict[str, str]:
    return {row["session_id"]: row["reason"] for row in ran.json}


def ids(ran) -> set[str]:
    return {row["session_id"] for row in ran.json}


def test_sessions_are_filtered_by_status_agent_and_time(many):
    assert ids(many("sessions --json")) == {"s1", "asks", "failed", "over"}
    assert ids(many("sessions --status asks --json")) == {"asks"}
    assert ids(many("sessions --status failed --json")) == {"failed"}
    assert ids(many("sessions --status asks --status terminated --json")) == {"asks", "over"}
    assert ids(many("sessions --agent bank --agent shop --json")) == {"s1", "asks"}
    assert ids(many("sessions --since 2001-02-03 --json")) == {"s1", "asks", "failed", "over"}
    assert ids(many("sessions --since 2999-01-01 --json")) == set()
    shown = many("sessions").out
    for words in ("waits for approval", "failed", "ended", "Fail, please, in this long first sent"):
        assert words in shown
    none = many("sessions --status doubt")
    assert none.out == "" and "none of the 4 sessions matches" in none.err
    assert reasons(many("sessions --json")) == {
        "s1": "done", "asks": "", "failed": "failed", "over": ""
    }  # fmt: skip
    many("send limited", "Wait for it.")
    limited = Played(many.log, "limited")
    limited.call()
    limited.start()
    limited.fail(error="rate_limit", retry_at=4_000_000_000_000)
    assert re.search(r"limited .* rate limit until \d\d:\d\d:\d\d ", many("sessions").out)
    many("cancel limited")
    limited.end("cancelled")
    assert re.search("limited .* stopped ", many("sessions").out)


@pytest.mark.parametrize(
    "option", ["--since soon", "--since 5", "--since 2026-13-01", "--status ok", "--since 9999999w"]
)
def test_bad_input_of_a_filter_is_a_usage_error(shell, option):
    ran = shell(f"sessions {option}")
    assert ran.code == 2 and ran.out == "" and len(ran.err.strip().splitlines()[-1]) < 200


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1_800), ("2h", 7_200), ("3d", 259_200), ("1w", 604_800)],
)
def test_since_takes_a_time_ago(text, seconds):
    ms = time.time_ns() // 1_000_000 - TimeParam().convert(text, None, None)
    assert abs(ms - 1_000 * seconds) < 60_000
    noon = TimeParam().convert("2026-11-23T12:00:00+00:00", None, None)
    assert noon == 1_795_435_200_000


def test_without_sessions_the_output_shows_how_to_open_one(shell):
    assert "foldlog chat" in shell("sessions").err


def test_show_is_an_overview_without_escape_sequences(shell, talk):
    shown = shell("show s1")
    assert "\x1b" not in shown.out
    for part in ("session s1 of ana: idle", "agent shop", "| > look \\x1b[2J", "It is there."):
        assert part in shown.out
    assert "[call 1.1.0 read]" in shown.out and "[result 1.1.0 read] seen" in shown.out


@pytest.mark.parametrize(
    "view", ["state", "turn", "context", "transcript", "ledger", "messages", "wake"]
)
def test_each_view_for_people_and_as_json(shell, talk, view):
    (data,) = shell(f"show s1 --view {view} --json").json
    shown = shell(f"show s1 --view {view}")
    assert shown.code == 0 and "\x1b" not in shown.out
    if view not in ("transcript", "ledger"):
        assert json.loads(shown.out) == data
    (whole,) = shell("show s1 --json").json
    assert whole[view] == data


def test_S1_G_the_cost_of_a_session_is_shown_with_the_version_of_the_prices(shell, talk, tmp_path):
    (ledger,) = shell("show s1 --view ledger --json").json
    assert ledger["total"]["usd"] is None and ledger["unpriced_models"] == ["claude-test"]
    assert ledger["total"]["attempts"] == ledger["total"]["unpriced"] == 2
    assert "unknown cost of 2 attempts" in shell("show s1").out
    price = {"model": "claude-test", "input": 2, "output": 10, "cache_read": "0.5"}
    price |= {"cache_write_5m": 3, "cache_write_1h": 4}
    table = tmp_path / "mine.json"
    table.write_text(json.dumps({"version": "mine", "prices": [price]}), "utf-8")
    shell.settings = replace(shell.settings, prices=table)
    priced = shell("show s1 --view ledger")
    assert "prices as of mine over 20" in priced.out and "unknown" not in priced.out
    (row,) = shell("sessions --json").json
    (ledger,) = shell("show s1 --view ledger --json").json
    assert row["usd"] == ledger["total"]["usd"] == "0.00014" and row["unpriced"] == 0
    assert "prompt caching saved 0% of the input cost" in priced.out
    assert row["caching"] == ledger["caching"] and ledger["caching"]["saved"] == 0
    assert " 0% " in shell("sessions").out
    table.write_text("{", "utf-8")
    refused = shell("sessions")
    assert refused.code == 2 and str(table) in refused.err and "is not JSON" in refused.err


def test_S2_10_show_at_an_offset(shell, talk):
    (then,) = shell("show s1 --view messages --at 1 --json").json
    assert [row["message_id"] for row in then["received"]] == ["m1"]
    (before,) = shell("show s1 --view messages --at 0 --json").json
    assert before["received"] == []


@pytest.mark.parametrize(
    "command", ["show s1", "show s1 --view context --strategy full", "context show s1",
                "context diff s1"]
)
def test_an_offset_that_is_not_written_yet_is_reported(shell, talk, command):
    last = shell("tail s1 --json").json[-1]["offset"]
    assert "is not written yet" not in shell(f"{command} --at {last}").err
    ran = shell(f"{command} --at {last + 1}")
    assert ran.code == 0 and f"not written yet: this is as of {last}, the last one" in ran.err


def test_before_any_request_the_context_is_marked_as_the_default_strategys(shell, talk):
    """Before the first request, the log does not have the strategy of the agent yet."""
    shell("open new --agent slide")
    shown = shell("context show new")
    assert "session new has made no request yet" in shown.err and "the default" in shown.err
    full = shell("context show new --strategy full")
    assert "session new has made no request yet" in full.err and "the default" not in full.err
    assert "made no request" not in shell("context show s1").err


def test_show_of_an_unknown_session_is_refused(shell):
    refused = shell("show nobody")
    assert refused.code == 1 and "foldlog open nobody" in refused.err
    for name in ("", "a b", "../x"):
        refused = shell("show", name)
        assert refused.code == 1 and "must be 1-128 characters" in refused.err


def test_tail_prints_every_event_as_json(shell, talk):
    events = shell("tail s1 --json").json
    assert [event["offset"] for event in events] == sorted(event["offset"] for event in events)
    types = [event["type"] for event in events]
    assert types[:2] == ["SESSION_OPENED", "MESSAGE_RECEIVED"] and types[-1] == "TURN_ENDED"
    assert "GEN_CHUNK" not in types
    chunks = [e for e in shell("tail s1 --json --chunks").json if e["type"] == "GEN_CHUNK"]
    assert chunks[0]["delta"] == "I look."
    assert shell(f"tail s1 --json --from {events[-1]['offset']}").json == events[-1:]
    assert shell("tail s1 --json --from 999999").json == []
    assert shell("tail s1 --json --last 2").json == events[-2:]
    assert shell("tail s1 --json -n 0").json == []


def test_tail_for_people_prints_one_line_per_event_without_escape_sequences(shell, talk):
    shown = shell("tail")
    assert "\x1b" not in shown.out and "PARTITION_TAKEN" in shown.out
    assert len(shown.out.splitlines()) == len(shell("tail --json").json)
    assert ' s1 MESSAGE_RECEIVED  "look \\x1b[2J" from ana (m1)\n' in shown.out
    assert ' s1 ' not in shell("tail s1").out, "a session that was named is not repeated"


def test_a_tail_without_events_reports_that(shell, talk):
    """The defect: for a mistyped name, `tail` printed nothing at all."""
    assert shell("tail nobody").err == "session nobody has no events\n"
    assert shell("tail s1").err == ""


def test_beyond_2_request_prints_the_bytes_without_a_newline(shell, talk):
    shown = shell("request s1 1.2")
    assert not shown.out.endswith("\n") and "equal to its claim" in shown.err
    assert hashlib.sha256(shown.out.encode()).hexdigest() in shown.err
    assert len(json.loads(shown.out)["messages"]) == 3
    (data,) = shell("request s1 1.2 --json").json
    assert data["agrees"] and data["request"] == shown.out
    assert "no step 9.9" in shell("request s1 9.9").err
    assert '"stream":true' not in shown.out and '"stream":true' in shell("request --help").out


def test_S2_7_wake_shows_the_pending_work_and_why(shell, talk):
    assert "has no pending work: idle" in shell("wake s1").out
    shell("send s1 more")
    (owed,) = shell("wake s1 --json").json
    assert (owed["row"], owed["owed"]) == ("N3", "LLM_CALLED") and owed["why"]
    assert "LLM_CALLED" in shell("wake s1").out


SHOP = """
from foldlog.processors.agent import Agent
from foldlog.processors.limits import Limits
agent = Agent(name="shop", model="m", limits=Limits(model_attempts=1))
"""


def test_S2_7_wake_applies_the_limits_of_the_sessions_agent(
    shell, talk, tmp_path, monkeypatch
):
    """The defect: `wake` showed that another attempt is owed, but the worker, which knows the
    agent, would end the turn."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop_for_wake.py").write_text(SHOP)
    shell("send s1 more")
    talk.call()
    talk.start()
    talk.fail()
    guessed = shell("wake s1 --json")
    assert guessed.json[0]["owed"] == "GEN_START"
    assert "agent shop is not among default, so the rows are those" in guessed.err
    known = shell("wake s1 --json --agent shop_for_wake:agent")
    assert known.json[0]["owed"] == "TURN_ENDED" and known.err == ""


def test_S2_11_replay_prints_a_hash_per_view_and_the_ruling_on_each_event(shell, talk):
    first, second = shell("replay --json").json, shell("replay --session s1 --json").json
    assert first == second and set(first[0]["sha256"]) >= {"session_state", "transcript"}
    shell("lock s1 p1")
    shell("lock s1 p2")
    listed = shell("replay --session s1 --from 0").out
    assert "<- refused (project_locked)" in listed
    *events, folded = shell("replay --session s1 --from 0 --to 1 --json").json
    assert [event["verdict"] for event in events] == ["accepted", "accepted"]
    assert folded["next_offset"] == 2


def test_replay_takes_a_date_and_time(shell, talk):
    # The clock of the in-memory log is fixed in November 2023.
    nothing = shell("replay --session s1 --to 2001-01-01 --json")
    assert nothing.code == 1 and "session s1 has no events" in nothing.err
    assert nothing.json[0]["code"] == "unknown_session"
    assert len(shell("replay --session s1 --to 2099-01-01T10:00 --json").json) == 1
    everything = shell("replay --session s1 --from 2001-01-01 --json").json
    assert len(everything) > 5
    assert len(shell("replay --session s1 --from 2099-01-01 --json").json) == 1


def test_replay_verify_reports_where_a_store_differs(shell, talk):
    nothing = shell("replay --verify")
    assert nothing.code == 1 and "nothing to compare" in nothing.err
    stored(shell.log, shell.settings)
    same = shell("replay --verify")
    assert same.code == 0 and "matches the log" in same.out
    stored(shell.log, shell.settings, spoil=lambda sessions: {})
    differs = shell("replay --verify")
    assert differs.code == 1 and "DIFFERENT" in differs.out and "session_state" in differs.out
    rows = shell("replay --verify --json").json
    assert rows[0]["same"] is False and rows[1]["log_sha256"] != rows[1]["store_sha256"]


def test_doctor_suggests_a_fix(shell, talk):
    found = shell("doctor")
    assert found.code == 1 and "PROBLEM partitions: no worker has ever claimed" in found.out
    assert "-> start one: foldlog worker (or foldlog dev)" in found.out
    rows = {row["check"]: row["text"] for row in shell("doctor --json").json}
    assert rows.keys() >= {"broker", "topics", "worker", "partitions", "store", "sessions"}
    assert rows["decoder"] == in_words(codec.uses_compiled())


def test_doctor_reports_where_a_moved_log_went_and_suggests_no_worker(shell, talk):
    note(shell.log, "moved_to", "v2-")
    shell("send s1 more")  # refused: the log is read-only now
    found = shell("doctor")
    assert found.code == 1 and "1 problem" in found.out
    where = "PROBLEM topics: the sessions of this log were moved to the topics beginning with 'v2-'"
    assert where in found.out and "-> Set FOLDLOG_TOPIC_PREFIX=v2-" in found.out
    assert "foldlog worker" not in found.out and "foldlog wake" not in found.out


def test_doctor_without_topics_reports_that_and_ends(shell):
    for name in ("session-events", "dlq.session-events"):
        shell.log.delete_topic(name)
    found = shell("doctor")
    assert found.code == 1 and "-> foldlog topics apply" in found.out


def test_topics_apply_is_idempotent(shell):
    shell.log.delete_topic("memory-events")
    (dry,) = shell("topics apply --dry-run --json").json
    assert dry["missing"] == ["memory-events"]
    assert "memory-events: created" in shell("topics apply").out
    (again,) = shell("topics apply --json").json
    assert again["created"] == [] and len(again["same"]) == 10


def test_looks_are_printed_oldest_first(shell):
    assert "no look is recorded" in shell("looks").err
    one = Look(operator="olga", user_id="ana", session_id="s1", what=LookKind.STREAM)
    producer = shell.log.producer()
    for value in (encode_look(Look(operator="olga", what=LookKind.LIST)), encode_look(one), b"x"):
        producer.append(OPERATOR_LOOKS, "olga", value)
    producer.close()
    listed, session = shell("looks --json").json
    assert listed["what"] == "list" and listed["session_id"] == listed["user_id"] == ""
    assert session.pop("at") >= listed["at"]
    assert session == {"operator": "olga", "user_id": "ana", "session_id": "s1", "what": "stream"}
    shown = shell("looks")
    assert "olga  list of all sessions\n" in shown.out
    assert "olga  stream of session s1 of ana\n" in shown.out
    assert "1 record is of another version of foldlog" in shown.err


def test_topics_that_differ_are_exit_code_1(tmp_path, capsys):
    from foldlog.log import MemoryLog
    from foldlog.schemas.topics import topics
    from foldlog.tests.cli.harness import Shell

    found = Shell(MemoryLog(topics(3)), tmp_path, capsys)("topics apply")
    assert found.code == 1 and "number of partitions is 3, wanted 4" in found.out


def test_topics_that_may_lose_records_stop_the_start_and_have_their_commands(shell):
    """The topics of this log have one replica, and the settings require three."""
    shell.settings = replace(shell.settings, durability="replicated")
    applied = shell("topics apply")
    assert applied.code == 1
    less = "session-events: replication factor is 1, wanted 3 (no worker can start with this)"
    assert less in applied.out and "session-events: min.insync.replicas is 1" in applied.out
    assert "kafka-configs.sh --bootstrap-server HOST:9092 --alter" in applied.out
    assert "For the missing replicas: start more brokers" in applied.out
    (data,) = shell("topics apply --json").json
    assert len(data["commands"]) == 10
    for start in ("worker --supervise", "gateway"):
        refused = shell(start)
        assert refused.code == 3 and "min.insync.replicas is 1, wanted 2" in refused.err
        assert "FOLDLOG_DURABILITY" in refused.err
    found = shell("doctor")
    assert found.code == 1 and "PROBLEM topics: session-events: replication factor" in found.out
    plan = shell("topics reassignment")
    assert plan.code == 1 and not plan.out and "start more brokers" in plan.err


def test_S2_13_topics_that_are_not_flushed_stop_the_start_and_have_their_command(shell):
    shell.settings = replace(shell.settings, durability="flushed")
    applied = shell("topics apply")
    assert applied.code == 1 and "flush.messages is unset, wanted 1" in applied.out
    assert "--add-config flush.messages=1" in applied.out
    refused = shell("worker --supervise")
    assert refused.code == 3 and "flush.messages" in refused.err
    assert "PROBLEM topics: session-events: flush.messages" in shell("doctor").out


def test_nothing_is_reassigned_if_every_partition_has_its_replicas(shell):
    plan = shell("topics reassignment")
    assert plan.code == 1 and not plan.out and "nothing to reassign" in plan.err


def test_status_shows_what_runs(shell, talk):
    shown = shell("status")
    assert shown.code == 0
    assert "topics: ok" in shown.out and "worker: none runs here" in shown.out
    (data,) = shell("status --json").json
    assert data["kafka"]["where"] == "local" and data["log"] == "reachable"


def test_sessions_from_the_fleet_are_those_of_a_fold(many):
    folded = many("sessions --json")
    assert folded.err == "no fleet runs here, so the log is folded\n"
    with answering(many.log) as fleet:
        many.settings = replace(many.settings, fleet_url=fleet.url)
        asked = many("sessions --json")
        assert asked.err == ""
        assert [shared(row) for row in asked.json] == [shared(row) for row in folded.json]
        assert reasons(asked) == {"s1": "", "asks": "", "failed": "failed", "over": ""}
        assert ids(many("sessions --status failed --json")) == {"failed"}
        assert ids(many("sessions --status terminated --json")) == {"over"}
        assert ids(many("sessions --agent bank --json")) == {"asks"}
        assert "waits for approval" in many("sessions").out
        assert "none of the 4 sessions matches" in many("sessions --since 2999-01-01").err
        fleet.status = 503
        restoring = many("sessions --json")
        assert restoring.json == folded.json
        assert "restores its tables; ask again soon, so the log is folded" in restoring.err


def test_a_list_from_the_fleet_tells_whether_a_worker_serves_an_open_turn(many, monkeypatch):
    many("open waits --agent shop")
    many("send waits", "Is anyone there?")
    Played(many.log, "waits").take(agents=(AgentDigest(name="bank", digest="0" * 32),))
    folded = many("sessions --json").json
    with answering(many.log) as fleet:
        many.settings = replace(many.settings, fleet_url=fleet.url)
        monkeypatch.setattr(LogClient, "everything", pytest.fail)
        asked = many("sessions --json")
        assert [shared(row) for row in asked.json] == [shared(row) for row in folded]
        assert reasons(asked)["waits"] == "other_agents"
        assert ids(many("sessions --status unserved --json")) == {"waits"}
        assert ids(many("sessions --status busy --json")) == set()
        assert "no worker" in many("sessions").out
        Played(many.log, "waits").take(agents=(AgentDigest(name="shop", digest="0" * 32),))
        assert ids(many("sessions --status busy --json")) == {"waits"}
        assert "working" in many("sessions --status busy").out
        monkeypatch.setattr(session_list, "HOLDERS_S", -1.0)
        (unknown,) = many("sessions --status busy --json").json
        assert unknown["status"] == "open" and "turn open" in many("sessions").out
        assert many("sessions --status unserved --json").json == []


def shared(row):
    """The fields of a row that facts have at once. The fleet's titles are the whole first line, and
    the tokens of a running turn follow at its end. Of a turn, facts have no reason but a failure.
    """
    of_turn = ("usd", "unpriced", "caching", "title", "updated_at", "reason")
    return {name: value for name, value in row.items() if name not in of_turn}
