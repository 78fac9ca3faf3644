"""Invalid settings: the setting is named, and its value is never shown."""

import os
import subprocess
import sys

import pytest

from foldlog.client import installation
from foldlog.log import Settings, SettingsError, environment
from foldlog.log.kafka import KafkaLog
from foldlog.log.settings import ROWS, unknown_variables
from foldlog.tests.kit.waiting import PATIENCE_S

ENV = {"HOME": "/h", "USER": "ada"}
HIDDEN = "hush-hush-secret-of-32-bytes-and-more"
NOT_UTF8 = os.fsdecode(HIDDEN.encode() + b"\xff")
VARIABLES = sorted({(name, variable) for name, row in ROWS.items() for variable in row.variables})
FILES = [name for name, row in ROWS.items() if row.is_file]


def refusal(env=(), toml=None, flags=None) -> str:
    """The message of the SettingsError: one line that does not show the value."""
    with pytest.raises(SettingsError) as raised:
        Settings.load({**ENV, **dict(env)}, toml, flags)
    message = str(raised.value)
    assert "hush" not in message and "\n" not in message and message.isprintable()
    return message


@pytest.mark.parametrize(("name", "variable"), VARIABLES)
def test_a_variable_that_is_not_utf8_is_named_and_not_shown(name, variable):
    message = refusal({variable: NOT_UTF8})
    assert variable in message
    if ROWS[name].bounds is None:
        assert "UTF-8" in message


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_flag_that_is_not_utf8_is_named_and_not_shown(name):
    assert name in refusal(flags={name: NOT_UTF8})


@pytest.mark.parametrize("variable", ["HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"])
def test_a_directory_of_the_user_that_is_not_utf8_is_named(variable):
    assert variable in refusal({variable: "/" + NOT_UTF8})


@pytest.mark.parametrize(("name", "value"), [
    ("api_key", HIDDEN + " x"), ("api_key", HIDDEN + "\r\nx: y"), ("api_key", "é" + HIDDEN),
    ("web_token", HIDDEN + " x"), ("gateway_secret", "hush"),
    ("user", HIDDEN + " x"), ("user", ".."), ("user", "."),
    ("topic_prefix", HIDDEN + "/"), ("durability", HIDDEN),
    ("decoder", HIDDEN), ("tool_env", f"DATABASE_URL={HIDDEN}"), ("partitions", HIDDEN),
    ("partitions", "9" * 5000), ("base_url", HIDDEN), ("base_url", f"ftp://u:{HIDDEN}@host"),
    ("base_url", f"https://u:{HIDDEN}@host:99999"), ("base_url", f"https://u:{HIDDEN}@[::1"),
    ("base_url", f"https://u:{HIDDEN}@"), ("base_url", f"https://{HIDDEN}\x01"),
    ("embedder", HIDDEN), ("bootstrap_servers", f"u:{HIDDEN}@host:1"),
    ("blobs", f"s3://{HIDDEN}/../x"), ("blobs", f"s3://u:{HIDDEN}@b"),
    ("client_properties", f"/sasl.password={HIDDEN}"), ("home", f"/{HIDDEN}\nx"),
    ("home", f"/{HIDDEN * 9}"), ("prices", f"/{HIDDEN * 9}/x"),
])  # fmt: skip
def test_an_invalid_value_is_not_shown(name, value):
    variable = ROWS[name].variables[0]
    assert name in refusal({variable: value})


@pytest.mark.parametrize("name", [
    "security.protocol", "debug", "acks", "plugin.library.paths", "sasl.mechanism",
])  # fmt: skip
def test_an_invalid_property_of_the_client_is_not_shown(name):
    properties = {"security.protocol": "sasl_plaintext", name: "hush"}
    with pytest.raises(SettingsError, match=r"client\.properties") as raised:
        KafkaLog("127.0.0.1:1", client_properties=properties).producer()
    assert "hush" not in str(raised.value)


def test_a_channel_with_an_invalid_secret_is_named_and_not_shown(tmp_path):
    file = tmp_path / "foldlog.toml"
    channel = "[channels.crm]\nurl = 'https://a.example'\n"
    file.write_text(f"{channel}secret_env = 'CRM'\n")
    wrong = Settings.load({**ENV, "CRM": NOT_UTF8}, file).channels_wrong
    assert "CRM is not valid UTF-8" in wrong[0] and "hush" not in wrong[0]
    for more in (f"secret_env = '{HIDDEN}'", f"secret_env = 'CRM'\nnetworks = ['{HIDDEN}']"):
        file.write_text(channel + more)
        (message,) = Settings.load(ENV, file).channels_wrong
        assert "channels.crm" in message and "hush" not in message
    for name in (".", "..", "a b", "a\\nb"):
        file.write_text(f'[channels."{name}"]\nurl = "https://a.example"\nsecret_env = "CRM"')
        (message,) = Settings.load(ENV, file).channels_wrong
        assert "the name must be" in message and "\n" not in message


@pytest.mark.parametrize("value", ["", " ", "\t"])
def test_an_empty_address_of_the_api_is_an_error(value):
    message = refusal({"ANTHROPIC_BASE_URL": value, "ANTHROPIC_API_KEY": "k"})
    assert "ANTHROPIC_BASE_URL: base_url is empty" in message


def test_an_empty_variable_of_another_setting_is_ignored():
    others = {variable: "" for name, variable in VARIABLES if name != "base_url"}
    assert Settings.load({**ENV, **others}) == Settings.load(ENV)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("text", ['""', '" "', "7", "[]", "{}", "true", '"a\\u0000b"', '"a\\nb"'])
def test_an_invalid_path_in_the_file_is_refused(tmp_path, name, text):
    file = tmp_path / "foldlog.toml"
    file.write_text(f"{name} = {text}\n")
    message = refusal(toml=file)
    assert str(file) in message and name in message


DEEP = 3000


@pytest.mark.parametrize("data", [
    b"partitions = " + b"1" * 5000,
    b"user = " + b"1" * 5000,
    b"partitions = 0x" + b"f" * 50_000,
    b"partitions = 1e999",
    b"partitions = nan",
    b"partitions = 2024-02-30",
    b"partitions = 99999999999999999999",
    b"channels = " + b"[" * DEEP + b"]" * DEEP,
    b"user = " + b"[" * DEEP + b"]" * DEEP,
    b"user = " + b"{a=" * DEEP + b"1" + b"}" * DEEP,
    b"user" + b".a" * DEEP + b" = 1",
    b"[" * DEEP,
    b"user = 'a'\nuser = 'b'",
    b"[user]\n[user]",
    b"user = 'hush\xff'",
    b"\xff\xfeu\0s\0e\0r\0",
    b"\xef\xbb\xbf\xef\xbb\xbfuser = 'a'",
    b"user = 'a\0b'",
    b"user = 'hush",
    b"'a\xc2\x85b' = 1",
    b'"a\\nb" = 1',
    b"\n".join(b"unknown%d = 'hush'" % number for number in range(1000)),
])  # fmt: skip
def test_an_invalid_file_is_one_line(tmp_path, data):
    file = tmp_path / "foldlog.toml"
    file.write_bytes(data)
    message = refusal(toml=file)
    assert str(file) in message and len(message) < 1500


def test_something_else_in_place_of_the_file_is_refused(tmp_path):
    file = tmp_path / "foldlog.toml"
    file.symlink_to(tmp_path / "nowhere")
    assert "is not a file" in refusal(toml=file)
    file.unlink()
    os.mkfifo(file)
    assert "is not a file" in refusal(toml=file)
    file.unlink()
    file.mkdir()
    assert "is not a file" in refusal(toml=file)


def test_a_byte_order_mark_is_ignored(tmp_path):
    file = tmp_path / "foldlog.toml"
    (tmp_path / "p").write_text("a=b\n", "utf-8-sig")
    file.write_text('user = "ana"\nclient_properties = "p"\n', "utf-8-sig")
    settings = Settings.load(ENV, file)
    assert (settings.user, settings.client_properties) == ("ana", {"a": "b"})


def test_a_variable_that_nothing_reads_is_reported_with_the_nearest_name(tmp_path):
    file = tmp_path / "foldlog.toml"
    file.write_text(
        "tool_env = 'FOLDLOG_MINE_*'\n[channels.crm]\nurl = 'https://a.example'\n"
        "secret_env = 'FOLDLOG_CRM'\n"
    )
    known = {variable: "" for _, variable in VARIABLES} | dict.fromkeys(
        ("FOLDLOG_CRM", "FOLDLOG_MINE_1", "FOLDLOG_CI_RUN", "OTHER"), "x"
    )
    settings = Settings.load(ENV, file)
    assert unknown_variables(settings, known) == ()
    wrong = {"FOLDLOG_PARTITION": HIDDEN, "FOLDLOG_GATEWAY_SECERT": HIDDEN, "FOLDLOG_X\n": HIDDEN}
    first, second, third = unknown_variables(settings, {**known, **wrong})
    assert "FOLDLOG_GATEWAY_SECERT" in first and "did you mean FOLDLOG_GATEWAY_SECRET?" in first
    assert "FOLDLOG_PARTITION is" in second and "did you mean FOLDLOG_PARTITIONS?" in second
    assert "hush" not in first + second + third and "\n" not in third


def run(*words: str | bytes, cwd, **variables: bytes | str) -> subprocess.CompletedProcess:
    env = {b"PATH": os.fsencode(os.environ["PATH"]), b"HOME": os.fsencode(cwd)}
    env |= {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}
    return subprocess.run(
        [sys.executable, "-m", "foldlog.cli", *words],
        env=env, cwd=cwd, capture_output=True, timeout=PATIENCE_S, check=False,
    )


@pytest.mark.parametrize("words", ["status", "doctor --json", "worker", "dev", "sessions --json"])
def test_no_command_shows_an_invalid_value(tmp_path, words):
    secret = HIDDEN.encode() + b"\xff"
    for variables in ({"FOLDLOG_GATEWAY_SECRET": secret}, {"ANTHROPIC_API_KEY": secret}):
        ran = run(*words.split(), cwd=tmp_path, **variables)
        shown = ran.stdout + ran.stderr
        assert ran.returncode == 2 and b"hush" not in shown and b"Traceback" not in shown
        assert next(iter(variables)).encode() in ran.stderr


@pytest.mark.parametrize("words", ["doctor", "worker", "dev", "demo"])
def test_no_command_replaces_an_empty_address_of_the_api(tmp_path, words):
    ran = run(words, cwd=tmp_path, ANTHROPIC_BASE_URL="", ANTHROPIC_API_KEY="k")
    assert ran.returncode == 2 and ran.stderr.count(b"\n") == 1
    assert b"ANTHROPIC_BASE_URL: base_url is empty" in ran.stderr


def test_a_command_reports_a_misspelt_variable_once_and_runs(tmp_path):
    ran = run("status", cwd=tmp_path, FOLDLOG_PARTITION="hush", FOLDLOG_USER="ana")
    lines = ran.stderr.decode().splitlines()
    (line,) = [line for line in lines if "FOLDLOG_" in line]
    assert "FOLDLOG_PARTITION " in line and "did you mean FOLDLOG_PARTITIONS?" in line
    assert b"hush" not in ran.stderr and ran.returncode == 3


def test_a_program_gets_a_warning_and_a_child_repeats_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOLDLOG_PARTITION", "hush")
    lines = []
    installation.find_settings(report=lines.append)
    (line,) = lines
    assert "FOLDLOG_PARTITION is not a variable of foldlog" in line and "hush" not in line
    process = environment.start_process(
        [sys.executable, "-m", "foldlog.cli", "status"], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3 and b"FOLDLOG_PARTITION " not in out + err


@pytest.mark.parametrize("words", [
    [b"\xff"], [b"status", b"--json", b"\xff"], [b"--config", b"\xff", b"status"],
    [b"show", b"--json", b"\xff"], [b"sql", b"select '\xff'"], [b"sql", b"--json", b"\xff"],
    [b"--home", b"/hush\xff", b"status"],
])
def test_an_argument_that_is_not_utf8_has_no_traceback(tmp_path, words):
    ran = run(*words, cwd=tmp_path)
    assert ran.returncode in (2, 3) and b"Traceback" not in ran.stderr
    assert b"hush" not in ran.stderr + ran.stdout
