"""The commands `foldlog export` and `foldlog sql`, and the option `--bundle`."""

import json
import os
import signal
import sqlite3
import threading

import pytest

from foldlog.cli.commands.sql import named_tables, plain, unique
from foldlog.producers import BlobStore, Sessions
from foldlog.reports.exports.duck import Database
from foldlog.reports.exports.formats import FORMATS
from foldlog.reports.exports.tables import BY_NAME, TABLES, TIME
from foldlog.schemas import events as ev
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.tests.cli.harness import make_shell
from foldlog.tests.kit.played import Played
from foldlog.tests.kit.waiting import PATIENCE_S, joined


@pytest.fixture
def shell(tmp_path, capsys):
    """Commands over a log with two sessions; the answer of the first session is in a blob."""
    shell = make_shell(tmp_path / "home", capsys)
    sessions = Sessions(shell.log, shell.settings)
    for name in ("s1", "s2"):
        sessions.open(name, agent="shop")
        sessions.say(name, f"hello {name}", message_id="m1")
        played = Played(shell.log, name)
        played.propose("buying", ("charge", {"cents": 3}))
        played.invoke(approval="ask")
        sha = played.views.turn.calls[0].args_sha256
        sessions.decide(name, "1.1.0", "allow", args_sha256=sha)
        played.tool_start()
        played.tool_result("charged")
        played.answer("done")
        sessions.say(name, "more", message_id="m2")
        played.call()
        played.start()
        content = json.dumps([{"type": "text", "text": "x" * 200_000}]).encode()
        large = BlobStore(shell.settings.blobs_dir).body(content, "application/json")
        played.complete("bye", content=large if name == "s1" else None)
        played.end()
    shell.played = played
    return shell


def files_of(path) -> dict[str, bytes]:
    files = path.iterdir() if path.is_dir() else [path]
    return {file.name: file.read_bytes() for file in files}


@pytest.mark.parametrize("named", [" s1", ""])
def test_a_session_whose_agent_no_worker_serves_is_exported_as_unserved(shell, tmp_path, named):
    """The defect: the list of sessions had the state `unserved`, but the audit report and the table
    of sessions had `busy`."""
    Sessions(shell.log, shell.settings).say("s1", "again", message_id="m3")
    played = Played(shell.log, "s1")
    others = (ev.AgentDigest(name="other", digest="0" * 32),)
    played.append(ev.PartitionTaken(role="models", owner="w2/1", agents=others), "models",
                  PARTITION_KEY)
    (listed,) = [row for row in shell("sessions --json").json if row["session_id"] == "s1"]
    assert listed["status"] == "unserved"
    path, page = tmp_path / "out", tmp_path / "page.html"
    assert shell(f"export{named} --format jsonl -o", str(path)).code == 0
    rows = map(json.loads, (path / "sessions.jsonl").read_text().splitlines())
    expected = {"s1": "unserved"} if named else {"s1": "unserved", "s2": "idle"}
    assert {row["session_id"]: row["status"] for row in rows} == expected
    status = shell("sql --json", "select status from sessions where session_id = 's1'")
    assert status.json == [{"status": "unserved"}]
    assert shell("export s1 --format audit -o", str(page)).code == 0
    assert "<b>no worker</b><span>status</span>" in page.read_text()


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_replaces_an_export_only_with_force(shell, tmp_path, name):
    path = tmp_path / "out"
    result = shell(f"export s1 --format {name} -o", str(path))
    assert result.code == 0, result.err
    assert str(path) in result.out and path.exists()
    before = files_of(path)
    again = shell(f"export s1 --format {name} -o", str(path))
    assert again.code == 1 and "--force" in again.err
    forced = shell(f"export s1 --format {name} --force -o", str(path), "--json")
    assert forced.code == 0 and forced.json[0]["path"] == str(path)
    assert files_of(path) == before, "the same log gives the same bytes"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["home", "out"], "no partial file is left"


@pytest.mark.parametrize("name", FORMATS)
def test_bad_input_is_refused_and_leaves_nothing(shell, tmp_path, name):
    unknown = shell(f"export nobody --format {name} -o", str(tmp_path / "x"))
    assert unknown.code == 1 and "nobody" in unknown.err
    nowhere = shell(f"export s1 --format {name} -o", str(tmp_path / "no" / "such" / "x"))
    assert nowhere.code == 1 and "cannot be written to" in nowhere.err
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "mine").write_text("mine")
    for place in ("file", "dir"):
        result = shell(f"export s1 --format {name} --force -o", str(tmp_path / place))
        refused = place == "dir" or name in ("jsonl", "parquet")
        assert result.code == (1 if refused else 0)
    assert (tmp_path / "dir" / "mine").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dir", "file", "home"]


@pytest.mark.parametrize("name", ["bundle", "audit"])
def test_a_format_for_one_session_refuses_any_other_number(shell, tmp_path, name):
    for sessions in ("", "s1 s2"):
        result = shell(f"export {sessions} --format {name} -o", str(tmp_path / "x"))
        assert result.code == 2 and "one SESSION" in result.err


@pytest.mark.parametrize("name", FORMATS)
def test_a_missing_blob_is_reported_and_the_rest_is_exported(shell, tmp_path, name):
    for directory, _, files in os.walk(shell.settings.blobs_dir):
        for file in files:
            os.unlink(os.path.join(directory, file))
    result = shell(f"export s1 --format {name} -o", str(tmp_path / "x"))
    assert result.code == 0 and "1 blob is missing" in result.err and "FOLDLOG_BLOBS" in result.err


def test_all_sessions_are_exported_or_those_named(shell, tmp_path):
    shell("export --format vercel -o", str(tmp_path / "all"))
    shell("export s2 --format vercel -o", str(tmp_path / "one"))
    for name, count in (("all", 2), ("one", 1)):
        database = sqlite3.connect(tmp_path / name)
        assert database.execute("select count(*) from chats").fetchone()[0] == count


def test_parquet_reads_back(shell, tmp_path):
    import duckdb

    shell("export --format parquet -o", str(tmp_path / "t"))
    rows = duckdb.sql(f"select count(*), max(seq) from '{tmp_path}/t/messages.parquet'").fetchall()
    assert rows == [(10, 4)]
    assert {p.stem for p in (tmp_path / "t").iterdir()} == set(BY_NAME)


def test_E33_parquet_times_are_marked_as_utc(shell, tmp_path):
    """The defect: readers interpreted the times as local times."""
    import duckdb

    shell("export --format parquet -o", str(tmp_path / "t"))
    for table in BY_NAME.values():
        place = f"'{tmp_path}/t/{table.name}.parquet'"
        found = duckdb.sql(f"select name, logical_type from parquet_schema({place})").fetchall()
        for column in table.columns:
            if column.type == TIME:
                assert "isAdjustedToUTC=1" in dict(found)[column.name], (table.name, column.name)

# ---- bundles ---------------------------------------------------------------------------------


class NoLog:
    """A log that fails the test if it is used."""

    def close(self):
        """Does nothing, because nothing is open."""

    def __getattr__(self, name):
        raise AssertionError(f"a bundle needs no broker, but {name} was used")


def test_S2_11_a_bundle_replays_without_a_broker(shell, tmp_path, capsys):
    path = str(tmp_path / "s1.foldlog")
    here = {row["session"]: row for row in shell("replay --json").json}["s1"]["sha256"]
    shown = shell("show s1 --view transcript --json").json
    request = shell("request s1 2.1").out
    assert shell("export s1 --format bundle -o", path).code == 0
    away = make_shell(tmp_path / "elsewhere", capsys)
    away.log = NoLog()
    replayed = away("replay --json --bundle", path)
    assert replayed.code == 0, replayed.err
    (row,) = replayed.json
    assert row["same"] and row["sha256"] == here and len(row["requests"]) == 3
    assert away("show s1 --view transcript --json --bundle", path).json == shown
    assert away("request s1 2.1 --bundle", path).out == request
    assert "byte for byte" in away("replay --bundle", path).out
    assert "MESSAGE_RECEIVED" in away("tail s1 --bundle", path).out
    counted = away("sql --json --bundle", path, "select count(*) n from messages")
    assert counted.json == [{"n": 5}]
    assert away("export s1 --format audit -o", str(tmp_path / "a.html"), "--bundle", path).code == 0
    assert not (tmp_path / "elsewhere" / "blobs").exists()


def test_a_file_that_is_not_a_bundle_is_a_clear_error(shell, tmp_path):
    (tmp_path / "x").write_text("hello")
    for command in ("replay --bundle", "show s1 --bundle", "tail s1 --bundle"):
        result = shell(command, str(tmp_path / "x"))
        assert result.code == 1 and "not a bundle" in result.err
    assert "cannot be read" in shell("replay --bundle", str(tmp_path / "gone")).err
    assert shell("replay --session s1 --bundle", str(tmp_path / "x")).code == 2


# ---- sql -------------------------------------------------------------------------------------


def test_a_query_prints_a_table_or_json(shell):
    query = ("select s.session_id, name, outcome, by_user from tool_calls s "
             "join approvals a using (session_id, call, name) order by 1")
    result = shell("sql", query)
    assert result.code == 0
    assert result.out.splitlines()[0].split() == ["session", "id", "name", "outcome", "by", "user"]
    assert shell("sql --json --session s2", query).json == [
        {"session_id": "s2", "name": "charge", "outcome": "ok", "by_user": "ana"}]
    assert shell("sql --json", "select 1 x, 2 x").json == [{"x": 1, "x_2": 2}]


def test_a_printed_table_is_bounded(shell):
    result = shell("sql --rows 2", "select text, range from messages, range(500) order by range")
    assert len(result.out.splitlines()) == 3 and "4,998 more rows" in result.err
    assert max(map(len, result.out.splitlines())) <= 60 + 2 + 160
    assert "no rows" in shell("sql", "select * from messages where false").err


def test_the_tables_are_listed_with_their_columns(shell):
    result = shell("sql --tables")
    for table in TABLES:
        assert f"{table.name}: a row is" in result.out
        assert all(f"  {column.name} " in result.out for column in table.columns)
    assert [row["table"] for row in shell("sql --tables --json").json] == list(BY_NAME)
    assert shell("sql").code == 2 and shell("sql --tables", "select 1").code == 2


@pytest.mark.parametrize("query", [
    "select * from read_text('/etc/passwd')", "select * from '/etc/hostname'",
    "copy messages to '{dir}/stolen.csv'", "attach '{dir}/other.db'", "install httpfs",
    "set enable_external_access = true", "reset lock_configuration", "export database '{dir}/d'",
    "select * from read_csv('{dir}/x.csv')", "select * from glob('/*')", "load '{dir}/x'",
    "pragma temp_directory='{dir}'", "create persistent secret s (type http, bearer_token 'x')",
    "select * from read_blob('{dir}/x.csv')", "import database '{dir}'",
    "select * from sqlite_scan('{dir}/x', 'y')", "set python_enable_replacements = true",
])
def test_a_query_reaches_no_file_and_no_setting(shell, tmp_path, query):
    (tmp_path / "x.csv").write_text("secret\n1\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    result = shell("sql", query.format(dir=tmp_path))
    assert result.code in (1, 2) and "secret\n" not in result.out and "root:" not in result.out
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_python_object_is_not_a_table(shell):
    assert shell("sql", "select * from shell").code == 2


@pytest.mark.parametrize("query, code", [
    ("selec 1", 2), ("select nope from messages", 2), ("select * from nope", 2),
    ("select cast(text as int) from messages", 1), ("", 2), (" ", 2), ("select 'a", 2),
])
def test_a_mistake_in_sql_is_an_error_without_a_traceback(shell, query, code):
    result = shell("sql", query)
    assert result.code == code and result.err


def test_sql_refuses_an_unknown_session(shell):
    assert shell("sql --session nobody", "select 1 from messages").code == 1


def test_only_the_tables_named_in_a_query_are_loaded(shell):
    assert named_tables("SELECT count(*) FROM Usage u, parts") == ("parts", "usage")
    assert named_tables("show tables") == tuple(BY_NAME)
    result = shell("sql", "select * from query_table('ev' || 'ents') join usage using (session_id)")
    assert result.code == 2 and "loaded tables: usage" in result.err


def test_sql_values_are_converted_to_json():
    assert plain(float("nan")) == "nan" and plain(b"\xff") == {"base64": "/w=="}
    assert unique(["x", "x", "x_2", "x"]) == ("x", "x_2", "x_2_2", "x_3")


def test_terminal_control_characters_are_not_printed(shell):
    sessions = Sessions(shell.log, shell.settings)
    sessions.say("s1", "\x1b[2J\u202eevil", message_id="m9")
    result = shell("sql", "select text from messages where message_id = 'm9'")
    assert "\x1b" not in result.out and "\u202e" not in result.out and "evil" in result.out


def test_ctrl_c_interrupts_an_endless_query():
    """The defect: DuckDB ignored Ctrl-C, or raised RuntimeError."""
    with Database() as database:
        connection, started = database._connection, threading.Event()

        class Signalling:
            interrupt, close = connection.interrupt, connection.close

            def execute(self, sql):
                assert threading.current_thread() is not threading.main_thread(), "deaf to Ctrl-C"
                started.set()
                return connection.execute(sql)

        database._connection = Signalling()

        def press():
            assert started.wait(PATIENCE_S)
            os.kill(os.getpid(), signal.SIGINT)

        pressing = threading.Thread(target=press, daemon=True)
        pressing.start()
        with pytest.raises(KeyboardInterrupt):
            database.query("select count(*) from range(100000000000) a, range(1000) b "
                           "where a.range * b.range % 7 = 3")
        joined(pressing)


@pytest.mark.parametrize("query", [
    "select '\udcff'", "\udcff", 'select 1 as "\udcff"', "select 1 -- \ud800",
])
@pytest.mark.parametrize("options", ["", " --json"])
def test_a_query_that_is_not_utf8_is_a_usage_error(shell, query, options):
    ran = shell(f"sql{options}", query)
    assert ran.code == 2 and "the query is not valid UTF-8 text" in ran.err
    assert not options or ran.json[0]["code"] == "bad_query"


def test_other_arguments_that_are_not_utf8_are_refused(shell):
    for option in ("--session", "--rows"):
        assert shell("sql", option, "\udcff", "select 1").code in (1, 2)


def test_sql_reads_content_that_is_not_utf8(shell):
    bad = [b'[{"type":"text","text":"\xff"}]', b'[{"type":"text","text":"\\ud800"}]', b"\xff\xfe"]
    played = shell.played
    Sessions(shell.log, shell.settings).say("s2", "again", message_id="m9")
    for number, content in enumerate(bad):
        if number:
            Sessions(shell.log, shell.settings).say("s2", "more", message_id=f"n{number}")
        played.call()
        played.start()
        played.complete("x", content=ev.Body(inline=content))
        played.end()
    for query in ("select * from events", "select text from messages", "select * from parts"):
        assert shell("sql", query).code == shell("sql --json", query).code == 0
