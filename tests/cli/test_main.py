"""The command `foldlog` itself: help, exit codes, and readable errors."""

import logging
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner

from foldlog.cli.__main__ import BY_NAME, COMMANDS, exit_code, foldlog, main
from foldlog.cli.commands.gateway import gateway_command
from foldlog.cli.edge import Edge
from foldlog.cli.terminal.log_lines import ReadableFormatter, is_useful
from foldlog.log import LogFatal, LogUnreachable, SettingsError, TopicMissing
from foldlog.log.errors import Corrupt, Refused
from foldlog.schemas.origin import TokenRole
from foldlog.tests.cli.harness import make_shell
from foldlog.tests.kit.played import settings_in
from foldlog.tests.kit.programs import run
from foldlog.web.gateway.access import Access

CONTRACT = (
    "up down status topics worker dev demo open chat send cancel phase lock terminate approve deny "
    "resolve fork regenerate rerun sessions show tail search memory context request replay traces "
    "wake export sql looks doctor gateway token fleet skip move init snapshots retain blobs"
).split()


def test_the_names_of_the_commands_are_the_contract():
    assert sorted(command.name for command in COMMANDS) == sorted(CONTRACT)


@pytest.mark.parametrize("name", CONTRACT)
def test_every_command_has_help_with_an_example(shell, name):
    shown = shell(f"{name} --help")
    assert shown.code == 0 and "Usage: foldlog" in shown.out
    command = foldlog.get_command(None, name)
    first = command.get_short_help_str(200)
    assert BY_NAME[name].help.rstrip(".") == first.rstrip("."), "the list and the command agree"
    commands = getattr(command, "commands", {})  # each command of a group has its own example
    for words in [f"{name} {part}" for part in commands] or [name]:
        shown = shell(f"{words} --help")
        assert re.search(rf"Example:\n.*foldlog {words}", shown.out, re.DOTALL), words


def test_help_lists_every_command_and_imports_none():
    program = "import sys; from foldlog.cli.__main__ import main; main(['-h']); print(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        timeout=60,
    )
    for name in CONTRACT:
        assert re.search(rf"^  {name}  +\S", done.stdout, re.MULTILINE), name
    for heavy in ("confluent_kafka", "faust", "anthropic", "fastavro", "rocksdict", "msgspec"):
        assert f"'{heavy}'" not in done.stdout, f"{heavy} makes --help slow"


def test_a_command_ends_without_a_search_for_cycles():
    program = (
        "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0));"
        "from foldlog.cli.__main__ import main; main(['--version'])"
    )
    assert run([sys.executable, "-c", program]).stdout.splitlines()[-1] == "True"


def test_a_command_that_used_duckdb_ends_silently():
    """DuckDB's bindings list every object that the end of the process does not free."""
    program = (
        "import duckdb; duckdb.sql('select 1').fetchall();"
        "from foldlog.cli.__main__ import main; main(['--version'])"
    )
    assert run([sys.executable, "-c", program]).stderr == ""


def test_the_line_editor_is_imported_only_at_a_terminal():
    program = "import sys, foldlog.cli.commands.chat; print('prompt_toolkit' in sys.modules)"
    assert run([sys.executable, "-c", program]).stdout == "False\n"


def test_a_mistyped_command_is_a_usage_error_with_a_hint(shell):
    wrong = shell("sesions")
    assert wrong.code == 2 and "did you mean sessions?" in wrong.err


def test_a_token_has_the_roles_given(shell):
    shell.settings = replace(shell.settings, gateway_secret="s" * 32)
    token = shell("token --role operator --role decide --user olga").out.strip()
    caller = Access("local", "s" * 32).bearer(token)
    assert (caller.user, caller.roles) == ("olga", set(TokenRole))
    assert Access("local", "s" * 32).bearer(shell("token").out.strip()).roles == set()
    assert shell("token --role root").code == 2


def test_usage_errors_are_2(shell):
    assert shell("send").code == 2
    assert shell("send s1").code == 2
    assert shell("resolve s1 1.1.0").code == 2
    assert shell("resolve s1 1.1.0 --happened x --did-not-happen").code == 2
    assert shell("request s1 one").code == 2
    for command in ("send s1 hi", "memory", "token", "cancel s1"):
        empty = shell(command, "--user", "")
        assert empty.code == 2 and "it is empty; omit it" in empty.err, "an empty name"
    assert shell("replay --from yesterday").code == 2
    assert shell("replay --verify --to 3").code == 2
    assert shell("show s1 --view nonsense").code == 2
    assert shell("worker --roles sessions,nonsense").code == 2
    assert shell("worker --agent nothing").code == 2
    assert shell("dev --agent nothing").code == 2, "before anything is started"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("no"), 1),
        (Corrupt("odd"), 1),
        (OSError("disk"), 1),
        (SettingsError("typo"), 2),
        (LogUnreachable("away"), 3),
        (TopicMissing("t"), 3),
        (LogFatal("end"), 3),
    ],
)
def test_exit_codes(error, code):
    assert exit_code(error) == code


def test_no_broker_is_3_with_what_to_do(tmp_path, capsys):
    assert main(["sessions"], Edge(settings_in(tmp_path))) == 3
    assert "foldlog up" in capsys.readouterr().err


def test_a_broker_that_does_not_answer_is_3(tmp_path, capsys):
    settings = settings_in(tmp_path, bootstrap_servers="127.0.0.1:1")
    assert main(["status"], Edge(settings)) == 3
    out, err = capsys.readouterr()
    assert "127.0.0.1:1" in out and "Traceback" not in err


def test_a_property_that_the_kafka_client_refuses_is_2_for_status_too(tmp_path, capsys):
    servers = "127.0.0.1:1"
    settings = settings_in(tmp_path, bootstrap_servers=servers, client_properties={"bogus": "1"})
    assert main(["status"], Edge(settings)) == 2
    assert 'No such configuration property: "bogus"' in capsys.readouterr().out


def test_a_wrong_setting_is_2_and_names_its_source(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "foldlog.toml").write_text("partitons = 3\n")
    assert main(["sessions"]) == 2
    assert "unknown settings partitons" in capsys.readouterr().err
    (tmp_path / "foldlog.toml").write_text("partitions = 0\n")
    assert main(["sessions"]) == 2
    assert "partitions must be a whole number" in capsys.readouterr().err


def test_flags_override_the_environment_and_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FOLDLOG_HOME", str(tmp_path / "env"))
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:2")
    config = tmp_path / "other.toml"
    config.write_text('topic_prefix = "p-"\n')
    edge = Edge()
    flags = [f"--home={tmp_path / 'flag'}", "--bootstrap-servers=127.0.0.1:1"]
    assert main([*flags, f"--config={config}", "status"], edge) == 3
    assert edge.settings.home == tmp_path / "flag"
    assert edge.settings.bootstrap_servers == "127.0.0.1:1"
    assert edge.settings.topic_prefix == "p-"
    assert sorted(edge.flags) == sorted([*flags, f"--config={config}"])
    capsys.readouterr()


def test_missing_topics_are_3_with_what_to_do(tmp_path, capsys):
    from foldlog.log import MemoryLog

    assert main(["sessions"], Edge(settings_in(tmp_path), MemoryLog())) == 3
    assert "foldlog topics apply" in capsys.readouterr().err


def test_a_refusal_has_its_reason_on_stderr_and_with_json_on_stdout_too(shell):
    refused = shell("cancel s9")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("refused: unknown session")
    (refusal,) = shell("cancel s9 --json").json
    assert (refusal["verdict"], refusal["code"]) == ("refused", "unknown_session")


def test_ctrl_c_while_a_command_closes_prints_no_traceback(tmp_path, capsys):
    edge, shell = Edge(settings_in(tmp_path)), make_shell(tmp_path, capsys)

    def interrupted():
        raise KeyboardInterrupt

    edge.use(shell.log, shell.settings, interrupted)
    assert main(["sessions"], edge) == 0, "its result was printed already"


def test_version(shell):
    assert re.fullmatch(r"foldlog \d+\.\d+\.\d+\n", shell("--version").out)


def test_python_m_works():
    done = subprocess.run(
        [sys.executable, "-m", "foldlog.cli", "--version"], capture_output=True, text=True,
        timeout=60,
    )
    assert done.returncode == 0 and done.stdout.startswith("foldlog ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "FAIL [rdkafka#producer-3] [thrd:127.0.0.1:19092/bootstrap]: 127.0.0.1:19092/bootstrap:"
            " Connect to ipv4#127.0.0.1:19092 failed: Connection refused (after 0ms in state"
            " CONNECT) (186 more like it were not shown)",
            "foldlog: broker 127.0.0.1:19092: Connection refused; retrying until it answers",
        ),
        (
            "FAIL [rdkafka#consumer-1] [thrd:h.x:9092/1]: h.x:9092/1: Disconnected (3 more like it"
            " were not shown)",
            "foldlog: broker h.x:9092: Disconnected; retrying until it answers",
        ),
        ("LOST a record for t: why", "foldlog: LOST a record for t: why"),
    ],
)
def test_a_lost_broker_is_logged_readably(text, line):
    """The defect: a chat printed the name and the state of a thread of librdkafka."""
    record = logging.LogRecord("foldlog", logging.ERROR, "", 0, "%s", (text,), None)
    assert ReadableFormatter("foldlog: %(message)s").format(record) == line


def test_a_write_to_a_disconnected_client_is_not_logged():
    """The defect: asyncio logged each write to a viewer that had disconnected, without naming the
    viewer."""
    write = logging.LogRecord("asyncio", logging.WARNING, "", 0, "socket.send() raised exception.",
                             (), None)
    other = logging.LogRecord("asyncio", logging.ERROR, "", 0, "Task exception", (), None)
    assert not is_useful(write) and is_useful(other)


@pytest.mark.parametrize("origin", ["foo", "https://app.example/", "app.example", "*"])
def test_an_invalid_origin_is_refused(origin):
    done = CliRunner().invoke(gateway_command, ["--cors-origin", origin])
    assert done.exit_code == 2 and "not an origin" in done.output
