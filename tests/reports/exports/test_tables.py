"""The tables of recorded and random sessions: they have the right rows, and nothing is lost."""

import json
from datetime import datetime

import pytest

from foldlog.client.show import UnknownSession
from foldlog.processors.advice.prices import list_prices
from foldlog.reports.exports.blocks import Contents, blocks
from foldlog.reports.exports.duck import Database
from foldlog.reports.exports.reading import read_log
from foldlog.reports.exports.table_files import write_tables
from foldlog.reports.exports.tables import BY_NAME, TABLES
from foldlog.schemas import events as ev
from foldlog.schemas.codec import entry_of
from foldlog.tests.golden import golden
from foldlog.tests.kit import answers
from foldlog.tests.kit.agents import variant
from foldlog.tests.kit.answers import usage
from foldlog.tests.kit.history import opened
from foldlog.tests.reports.exports.logs import WORLDS, Recorded, golden_log, random_log


def tables_of(source: Recorded, directory, sessions=None) -> dict[str, list[dict]]:
    contents = Contents(source.read)
    _, counts = write_tables(source.log, sessions, directory, contents, list_prices())
    found = {}
    for table in TABLES:
        lines = (directory / f"{table.name}.jsonl").read_text("utf-8").split("\n")[:-1]
        found[table.name] = [json.loads(line) for line in lines]
        assert all(tuple(row) == table.names for row in found[table.name]), table.name
        assert counts[table.name] == len(lines)
    return found


def sources():
    yield from ((name, golden_log(name)) for name in golden.names())
    for seed in WORLDS:
        yield f"world {seed}", random_log(seed)
        yield f"forged {seed}", random_log(seed, forged=True)


def test_S4_4_every_event_every_block_and_every_paid_token_is_a_row(tmp_path):
    for number, (name, source) in enumerate(sources()):
        directory = tmp_path / str(number)
        directory.mkdir()
        tables = tables_of(source, directory)
        offsets = [record.offset for record in source.records]
        assert [row["at_offset"] for row in tables["events"]] == offsets, name
        facts = read_log(source.log, None, Contents(source.read)).sessions.get(source.session_id)
        if facts is None:
            continue
        views, mine = facts.views, source.session_id
        raws = [row["raw"] for row in tables["parts"] if row["session_id"] == mine]
        bodies = [line.body for line in views.transcript.lines
                if line.kind in ("message", "answer", "partial")]
        wanted = [block.raw for body in bodies
                  for block in blocks(Contents(source.read).whole(body) or b"")]
        assert [raw for raw in raws if raw is not None] == wanted, name
        spent = sum(row["output_tokens"] or 0 for row in tables["usage"])
        assert spent == views.ledger.output_tokens, name
        result_calls = {f"{f.turn}.{f.step}.{f.index}" for f in views.context.fragments
                if f.kind == "result"}
        assert result_calls <= {row["call"] for row in tables["tool_calls"]}, name
        open_calls = {c.key: c.status for c in (*views.turn.calls, *views.turn.doubts)}
        rows = {row["call"]: row["status"] for row in tables["tool_calls"]}
        assert {key: rows[key] for key in open_calls} == open_calls, name
        unfinished = ("proposed", "asks", "allowed", "started", "doubt")
        for row in tables["tool_calls"]:
            assert row["doubt"] or (row["ended_at"] is None) == (row["status"] in unfinished), name



def test_a_lost_attempt_is_a_row_and_does_not_count(tmp_path):
    usage = tables_of(golden_log("crash_and_resume"), tmp_path)["usage"]
    first = [row for row in usage if (row["turn"], row["step"]) == (1, 1)]
    assert [row["attempt"] for row in first] == [1, 2]
    assert [row["counts"] for row in first] == [False, True]
    assert first[0]["owner"] != first[1]["owner"]
    assert {row["strategy"] for row in usage} >= {"start", "replace"}


def test_each_request_of_background_work_is_a_row_and_only_the_last_counts(tmp_path):
    s = opened(golden.SESSION_ID, agent=variant(memory=True))
    s.say("I like tea.")
    s.answer("So do I.")
    (work,) = [work for work in s.views.background.works if work.kind == "memory"]
    earlier = (ev.Try(model="cheap", usage=usage(30, 3)), ev.Try(model="cheap"))
    end = answers.done("memory", work.upto, work.attempt, earlier=earlier)
    s.append(end, "background")
    tables = tables_of(Recorded(s.records, s.blobs.held, golden.SESSION_ID), tmp_path)
    rows = [row for row in tables["usage"] if row["kind"] == "background"]
    requests = [(x["request"], x["outcome"], x["counts"], x["input_tokens"]) for x in rows]
    last = (3, "complete", True, end.usage.input_tokens)
    assert requests == [(1, "failed", False, 30), (2, "failed", False, None), last]
    assert {row["owner"] for row in rows} == {rows[0]["owner"]} != {None}
    (session,) = [x for x in tables["sessions"] if x["session_id"] == golden.SESSION_ID]
    assert session["attempts"] == len(tables["usage"]) == 4


def test_a_call_has_its_approval_and_a_grant_names_the_decision_that_gave_it(tmp_path):
    tables = tables_of(golden_log("conversation"), tmp_path)
    request, granted = tables["approvals"]
    assert (request["call"], request["decision"], request["by_user"]) == ("2.1.0", "allow", "ana")
    assert request["remember"] is True and request["asked_at"] is not None
    assert (granted["call"], granted["decision"]) == ("2.2.0", "grant")
    assert granted["decided_offset"] == request["decided_offset"]
    call = next(row for row in tables["tool_calls"] if row["call"] == "2.1.0")
    assert (call["outcome"], call["args"], call["approval"]) == ("ok", {"cents": 3}, "ask")
    assert call["owner"] and call["started_at"] <= call["ended_at"]


def test_a_doubt_has_its_reason_and_who_resolved_it(tmp_path):
    (call,) = tables_of(golden_log("doubt_resolved"), tmp_path)["tool_calls"]
    assert call["doubt"] and call["resolution"] and call["resolved_by"] == "ana"
    assert call["status"] == "done"


def test_the_bytes_of_a_table_depend_on_the_log_alone(tmp_path):
    source = random_log(3)
    once, again = tmp_path / "once", tmp_path / "again"
    for directory in (once, again):
        directory.mkdir()
        tables_of(source, directory)
    for table in TABLES:
        name = f"{table.name}.jsonl"
        assert (once / name).read_bytes() == (again / name).read_bytes()


def test_one_session_is_exported_alone_and_an_unknown_one_is_refused(tmp_path):
    source = golden_log("conversation")
    tables = tables_of(source, tmp_path, (golden.SESSION_ID,))
    mine = [r for r in source.records if entry_of(r).session_id == golden.SESSION_ID]
    assert len(tables["events"]) == len(mine) < len(source.records)
    with pytest.raises(UnknownSession, match="nobody"):
        tables_of(source, tmp_path, (golden.SESSION_ID, "nobody"))


def test_a_missing_blob_is_a_part_with_its_reference(tmp_path):
    source = golden_log("conversation")
    facts = read_log(source.log, None, Contents(source.read)).sessions[source.session_id]
    lost = next(line.body.ref for line in facts.views.transcript.lines if line.body
                and line.body.ref and line.kind == "answer")
    size = len(source.blobs.pop(lost.sha256))
    tables = tables_of(source, tmp_path)
    (missing,) = [row for row in tables["parts"] if row["type"] == "missing"]
    assert (missing["sha256"], missing["bytes"], missing["text"]) == (lost.sha256, size, None)
    (message,) = [row for row in tables["messages"] if row["seq"] == missing["seq"]]
    assert message["text"] is None and message["role"] == "assistant"


def test_every_column_loads_as_its_type_and_times_are_utc(tmp_path):
    source = golden_log("conversation")
    tables_of(source, tmp_path)
    with Database() as database:
        database.load(tmp_path, BY_NAME)
        database.lock()
        for table in TABLES:
            types = dict(list(database.query(
                f"select column_name, data_type from duckdb_columns() "
                f"where table_name = '{table.name}'").rows))
            assert types == {column.name: column.type.replace("DECIMAL(38, 12)", "DECIMAL(38,12)")
                             for column in table.columns}
        ((opened,),) = database.query("select opened_at from sessions").rows
    at = next(r.timestamp_ms for r in source.records if r.header("t") == b"SESSION_OPENED")
    assert opened == datetime.utcfromtimestamp(at / 1000)


@pytest.mark.parametrize("content, raws", [
    (b'[{"type":"text","text":"a\\u0041"}]', ['{"type":"text","text":"a\\u0041"}']),
    (b'[{"type":"text","text":"\\ud800"}]', ['{"type":"text","text":"\\ud800"}']),
    (b"no json \xff", ["no json \ufffd"]), (b"[1]", ["[1]"]), (b"[]", []), (b"", []),
    (b"[" * 5000, ["[" * 5000]),
])
def test_malformed_content_is_kept(content, raws):
    assert [block.raw for block in blocks(content)] == raws
    assert all(isinstance(block.kind, str) for block in blocks(content))
