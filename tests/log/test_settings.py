"""The sources of settings, their validation, and the secrets that are never printed."""

from dataclasses import FrozenInstanceError, asdict, fields
from pathlib import Path

import pytest

from foldlog.log import Settings, SettingsError, open_log
from foldlog.log.settings import ROWS

ENV = {"HOME": "/h", "USER": "ada"}


@pytest.fixture
def toml(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "foldlog.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_the_defaults_apply_without_any_source():
    settings = Settings.load(ENV, None, {})
    home = Path("/h/.local/state/foldlog")
    assert asdict(settings) == {
        "bootstrap_servers": None,
        "topic_prefix": "",
        "partitions": 8,
        "durability": None,
        "replication_factor": None,
        "min_insync_replicas": None,
        "linger_ms": 0,
        "client_properties": {},
        "home": home,
        "state_dir": home / "worker",
        "blobs": None,
        "blobs_dir": home / "blobs",
        "blob_cache_mb": 256,
        "archive_dir": None,
        "fleet_dir": None,
        "fleet_url": None,
        "snapshots_dir": None,
        "snapshot_records": 50_000,
        "snapshot_minutes": 10,
        "cache_dir": Path("/h/.cache/foldlog"),
        "config_dir": Path("/h/.config/foldlog"),
        "managed_instructions": None,
        "prices": None,
        "embedder": None,
        "api_key": None,
        "base_url": None,
        "gateway_secret": None,
        "web_token": None,
        "user": "ada",
        "inline_limit_bytes": 65536,
        "channels": {},
        "channels_wrong": (),
        "decoder": "auto",
        "tool_env": (),
        "model_slots": 100,
        "tool_slots": 32,
        "session_cache_mb": 256,
    }
    assert settings.kafka_dir == home / "kafka"
    with pytest.raises(FrozenInstanceError):
        settings.user = "eve"


def test_every_setting_but_the_channels_has_a_row_with_its_variables():
    names = {each.name for each in fields(Settings)}
    assert set(ROWS) == names - {"channels", "channels_wrong"}
    assert ROWS["linger_ms"].variables == ("FOLDLOG_LINGER_MS",)
    assert ROWS["archive_dir"].variables == ("FOLDLOG_ARCHIVE",)
    assert all(row.variables and bool(row.test) == bool(row.rule) for row in ROWS.values())


def test_flags_override_variables_which_override_the_file(toml):
    path = toml('topic_prefix = "file."\npartitions = 3\nuser = "file"\n')
    env = {**ENV, "FOLDLOG_PARTITIONS": "4", "FOLDLOG_USER": "env"}
    settings = Settings.load(env, path, {"user": "flag", "partitions": None})
    assert (settings.topic_prefix, settings.partitions, settings.user) == ("file.", 4, "flag")
    assert settings.topic("session-events") == "file.session-events"


def test_every_setting_has_a_variable():
    env = {
        **ENV,
        "KAFKA_BOOTSTRAP_SERVERS": "a:1,b:2",
        "FOLDLOG_TOPIC_PREFIX": "p-",
        "FOLDLOG_LINGER_MS": "5",
        "FOLDLOG_HOME": "~/fold",
        "FOLDLOG_STATE_DIR": "/s",
        "FOLDLOG_BLOBS": "/b",
        "FOLDLOG_CACHE_DIR": "/c",
        "FOLDLOG_PRICES": "/p.json",
        "FOLDLOG_EMBEDDER": "mine:embedder",
        "ANTHROPIC_API_KEY": "sk-1",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
        "FOLDLOG_INLINE_LIMIT_BYTES": "2048",
    }
    settings = Settings.load(env)
    assert (settings.bootstrap_servers, settings.topic_prefix) == ("a:1,b:2", "p-")
    assert settings.linger_ms == 5
    paths = (settings.home, settings.state_dir, settings.blobs_dir, settings.cache_dir)
    assert paths == (Path("/h/fold"), Path("/s"), Path("/b"), Path("/c"))
    assert (settings.prices, settings.embedder) == (Path("/p.json"), "mine:embedder")
    assert (settings.api_key, settings.base_url) == ("sk-1", "http://127.0.0.1:1")
    assert settings.inline_limit_bytes == 2048
    both = {**env, "FOLDLOG_BOOTSTRAP_SERVERS": "mine:9"}
    assert Settings.load(both).bootstrap_servers == "mine:9"


@pytest.mark.parametrize(
    ("servers", "replication"),
    [
        (None, (1, 1, False, False)),
        ("127.0.0.1:19092", (1, 1, False, False)),
        ("localhost:19092", (1, 1, False, False)),
        ("PLAINTEXT://[::1]:19092", (1, 1, False, False)),
        ("127.0.0.1:1,127.0.0.1:3,127.0.0.1:5", (3, 2, True, False)),
        ("kafka-1:9092", (3, 2, True, False)),
        ("10.0.0.1:9092", (3, 2, True, False)),
    ],
)
def test_one_replica_is_enough_only_on_a_single_broker_of_this_machine(servers, replication):
    env = {**ENV, **({"KAFKA_BOOTSTRAP_SERVERS": servers} if servers else {})}
    assert Settings.load(env).replication == replication
    local = Settings.load({**env, "FOLDLOG_DURABILITY": "local"})
    assert local.replication == (1, 1, False, False)
    replicated = Settings.load({**env, "FOLDLOG_DURABILITY": "replicated"})
    assert replicated.replication == (3, 2, True, False)
    flushed = Settings.load({**env, "FOLDLOG_DURABILITY": "flushed"})
    assert flushed.replication == (1, 1, True, True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"replication_factor": 1}, "2 or more of both.*FOLDLOG_DURABILITY"),
        ({"min_insync_replicas": 1}, "2 or more of both"),
        ({"replication_factor": 2, "min_insync_replicas": 3}, "no more replicas can be in sync"),
        ({"durability": "high"}, "durability must be local or flushed or replicated"),
        ({"replication_factor": 16}, "whole number 1 to 15"),
    ],
)
def test_contradictory_replication_is_refused(given, message):
    with pytest.raises(SettingsError, match=message):
        Settings.load(ENV, None, {"bootstrap_servers": "kafka-1:9092", **given})


def test_two_replicas_of_which_both_acknowledge_are_allowed():
    flags = {"bootstrap_servers": "kafka-1:9092", "replication_factor": 2}
    assert Settings.load(ENV, None, flags).replication == (2, 2, True, False)


def test_an_empty_variable_is_not_set():
    env = {**ENV, "KAFKA_BOOTSTRAP_SERVERS": "", "ANTHROPIC_API_KEY": ""}
    assert Settings.load(env).bootstrap_servers is None
    assert Settings.load(env).api_key is None


def test_xdg_directories_are_used_if_they_are_absolute():
    env = {**ENV, "XDG_STATE_HOME": "/x/state", "XDG_CACHE_HOME": "relative"}
    settings = Settings.load(env)
    assert settings.home == Path("/x/state/foldlog")
    assert settings.cache_dir == Path("/h/.cache/foldlog")


def test_paths_in_the_file_are_relative_to_it(toml, tmp_path):
    settings = Settings.load(ENV, toml('home = "state"\nblobs_dir = "~/b"\ncache_dir = "/c"\n'))
    assert settings.home == tmp_path / "state"
    assert settings.state_dir == tmp_path / "state" / "worker"
    assert (settings.blobs_dir, settings.cache_dir) == (Path("/h/b"), Path("/c"))


@pytest.mark.parametrize("place, blobs, directory", [
    ("/b", None, Path("/b")),
    ("s3://bucket/a/prefix/", "s3://bucket/a/prefix", None),
    ("gs://bucket", "gs://bucket", None),
    ("az://account/container/x", "az://account/container/x", None),
    ("file:///b", None, Path("/b")),
    ("memory://test", "memory://test", None),
])
def test_FOLDLOG_BLOBS_is_a_directory_or_a_url(toml, place, blobs, directory):
    for in_file in ("", 'blobs = "s3://of/file"\n', 'blobs_dir = "/of/file"\n'):
        settings = Settings.load({**ENV, "FOLDLOG_BLOBS": place}, toml(in_file))
        assert settings.blobs == blobs
        assert settings.blobs_dir == (directory or settings.home / "blobs")


def test_the_file_has_either_a_url_or_a_directory_of_blobs(toml):
    assert Settings.load(ENV, toml('blobs = "s3://b"\n')).blobs == "s3://b"
    with pytest.raises(SettingsError, match="blobs or blobs_dir, not both"):
        Settings.load(ENV, toml('blobs = "s3://b"\nblobs_dir = "/b"\n'))
    with pytest.raises(SettingsError, match="also be given as blobs_dir"):
        Settings.load(ENV, toml('blobs = "/b"\n'))


@pytest.mark.parametrize("url", [
    "s3://key:hidden@bucket/x", "https://host/hidden", "s3://", "s3://bucket?hidden=1",
    "s3://bucket/x#hidden", "s3://bucket/a b", "ftp://hidden/x", "file://host/hidden",
])
def test_a_url_of_blobs_has_no_password_and_a_wrong_one_is_not_shown(url):
    with pytest.raises(SettingsError, match="FOLDLOG_BLOBS") as raised:
        Settings.load({**ENV, "FOLDLOG_BLOBS": url})
    assert "hidden" not in str(raised.value)


def test_a_missing_file_equals_an_empty_one(tmp_path):
    assert Settings.load(ENV, tmp_path / "foldlog.toml") == Settings.load(ENV)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("server = 'a:1'\npartition = 3\n", "unknown settings partition, server. Known are: "),
        ("partitions = true", "partitions must be a whole number 1 to 1024"),
        ("partitions = 0", "partitions must be a whole number"),
        ("partitions = 2.5", "partitions must be a whole number"),
        ("partitions = 'many'", "partitions must be a whole number"),
        ("linger_ms = 6", "linger_ms must be a whole number 0 to 5"),
        ("inline_limit_bytes = 99999999", "inline_limit_bytes must be"),
        ("user = 7", "user must be a string, not int"),
        ("user = 'a b'", "user must be 1 to 128 letters"),
        ("topic_prefix = 'a/b'", "topic_prefix may contain"),
        ("decoder = 'fast'", "decoder must be auto or python"),
        ("bootstrap_servers = ' '", "bootstrap_servers is empty"),
        ("a = ", "is not a TOML file"),
    ],
)  # fmt: skip
def test_an_invalid_setting_is_named_with_its_source(toml, text, message):
    path = toml(text)
    with pytest.raises(SettingsError) as raised:
        Settings.load(ENV, path)
    assert message in str(raised.value) and str(path) in str(raised.value)


def test_an_invalid_variable_or_flag_is_named():
    with pytest.raises(SettingsError, match="FOLDLOG_PARTITIONS: partitions"):
        Settings.load({**ENV, "FOLDLOG_PARTITIONS": "x"})
    with pytest.raises(SettingsError, match="--topic-prefix: topic_prefix"):
        Settings.load(ENV, None, {"topic_prefix": "ä"})
    with pytest.raises(AssertionError, match="no such settings"):
        Settings.load(ENV, None, {"colour": "red"})


def test_a_file_where_a_directory_is_wanted_is_named(tmp_path):
    """The defect: the error was `[Errno 20] Not a directory: '.../kafka/broker.json'`."""
    file = tmp_path / "taken"
    file.write_text("mine")
    for flags in ({"home": str(file)}, {"home": str(file / "below")}):
        with pytest.raises(SettingsError, match="home must be a directory, but .*taken is a file"):
            Settings.load(ENV, None, flags)
    with pytest.raises(SettingsError, match="state_dir must be a directory"):
        Settings.load({**ENV, "FOLDLOG_STATE_DIR": str(file)}, None, {})
    assert file.read_text() == "mine"


def test_client_properties_are_passed_through(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text(
        "# the staging cluster\n! also a comment\n\nsecurity.protocol = SASL_SSL\n"
        "sasl.password=p=w #1\nbootstrap.servers=far:9\n",
        encoding="utf-8",
    )
    settings = Settings.load({**ENV, "FOLDLOG_CLIENT_PROPERTIES": str(file)})
    passed = {"security.protocol": "SASL_SSL", "sasl.password": "p=w #1"}
    assert settings.client_properties == passed
    assert settings.bootstrap_servers == "far:9"
    near = {**ENV, "FOLDLOG_CLIENT_PROPERTIES": str(file), "KAFKA_BOOTSTRAP_SERVERS": "near:9"}
    assert Settings.load(near).bootstrap_servers == "near:9"


def test_an_invalid_properties_file_is_named_and_not_quoted(tmp_path):
    file = tmp_path / "client.properties"
    with pytest.raises(SettingsError, match="cannot read"):
        Settings.load(ENV, None, {"client_properties": file})
    file.write_text("a=b\nsasl.password hunter2\n", encoding="utf-8")
    with pytest.raises(SettingsError, match="line 2") as raised:
        Settings.load(ENV, None, {"client_properties": file})
    assert "hunter2" not in str(raised.value)


def test_secrets_are_not_printed(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("sasl.password=hunter2\nssl.key.pem=hunter3\n", encoding="utf-8")
    env = {
        **ENV,
        "ANTHROPIC_API_KEY": "sk-secret",
        "ANTHROPIC_BASE_URL": "https://me:hunter4@proxy:8080/v1",
        "FOLDLOG_CLIENT_PROPERTIES": str(file),
    }
    printed = repr(Settings.load(env)) + str(Settings.load(env)) + f"{Settings.load(env)}"
    for secret in ("hunter", "sk-secret", "me:"):
        assert secret not in printed
    assert "sasl.password" in printed and "https://proxy:8080/v1" in printed


@pytest.mark.parametrize("name", ["acks", "enable.idempotence", "partitioner", "auto.offset.reset"])
def test_a_property_that_the_guarantees_need_cannot_be_changed(name):
    from foldlog.log.kafka import KafkaLog

    with pytest.raises(SettingsError, match=f"client.properties sets {name}, but"):
        KafkaLog("127.0.0.1:1", client_properties={name: "0"})


def test_a_property_set_to_the_required_value_is_accepted():
    from foldlog.log.kafka import KafkaLog

    KafkaLog("127.0.0.1:1", client_properties={"acks": "ALL", "enable.idempotence": "true"})


def test_the_error_without_a_broker_address_names_the_variable_and_the_command():
    with pytest.raises(SettingsError, match="KAFKA_BOOTSTRAP_SERVERS.*foldlog up"):
        open_log(Settings.load(ENV))


def test_the_login_name_is_made_a_valid_user():
    assert Settings.load({"HOME": "/h", "USER": "CORP\\ada lovelace"}).user == "CORP-ada-lovelace"
    assert Settings.load({"HOME": "/h", "LOGNAME": "x"}).user == "x"
    assert Settings.load({"HOME": "/h"}).user == "local"


def test_names_of_variables_for_tools_are_validated():
    named = Settings.load({**ENV, "FOLDLOG_TOOL_ENV": "DATABASE_URL, PG*,"})
    assert named.tool_env == ("DATABASE_URL", "PG*")
    with pytest.raises(SettingsError, match="FOLDLOG_TOOL_ENV: tool_env must be names"):
        Settings.load({**ENV, "FOLDLOG_TOOL_ENV": "A=b"})
