"""The settings of an installation: one frozen object, created once at startup.

Sources by precedence: flags, environment, `foldlog.toml`, defaults. Nothing else in foldlog reads
the environment. Secrets are never shown: the API key, the gateway's secret, the web token, values
of client properties, passwords in URLs. An invalid value is never shown either, because a secret
may have been put into the wrong setting.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, get_type_hints
from urllib.parse import urlsplit, urlunsplit

from ..schemas.ids import is_id
from ..schemas.topics import Replication
from .channels import Channel, channels_from, keys_text
from .environment import HANDED
from .errors import SettingsError
from .setting_row import (
    Row,
    base_url_of,
    fleet_url_of,
    path,
    store_url,
    utf8,
    variable_globs,
    whole,
)

INLINE_LIMIT_BYTES = 64 * 1024
"""Larger content goes to the blob store, so that records stay small and replays fast."""

INLINE_LIMIT_BYTES_MAX = 256 * 1024
"""An event may have several inline fields and must still fit into one record of 1 MiB."""

SLOTS_MAX = 10_000

SESSION_CACHE_MB = 256
"""Enough for some 25,000 short sessions, or 200 of a hundred turns."""

SECRET_BYTES_MIN = 32
"""The shortest secret of the gateway. RFC 7518 requires a key of this size to sign with SHA-256."""

LOCAL, FLUSHED, REPLICATED = DURABILITIES = ("local", "flushed", "replicated")
"""What processes require of topics: that they exist, or also that no acknowledged record is lost
when the machine loses power, or with a broker
(docs/decisions/0049-a-replicated-log-is-required-away-from-one-machine.md).
"""

REPLICAS, IN_SYNC_MIN, REPLICAS_MAX = 3, 2, 15
"""With three replicas of which two acknowledge, one broker may be down, and another one lost."""

PREFIX = "FOLDLOG_"
"""The prefix of foldlog's own environment variables."""

OTHER_VARIABLES = (
    "FOLDLOG_PROJECT",  # processors/tools/project.py
    "FOLDLOG_COMPILED",  # setup.py
    "FOLDLOG_WORKER_ARGS", "FOLDLOG_GATEWAY_ARGS", "FOLDLOG_FLEET_ARGS",  # deploy/
    "FOLDLOG_CI_RUN", "FOLDLOG_CI_SECONDS", "FOLDLOG_CI_ARGS",  # Makefile, tests/
    "FOLDLOG_RUNNING_TESTS", "FOLDLOG_SDK_BROKER", "FOLDLOG_SDK_HOOK",  # tests/
)  # fmt: skip
"""The variables with this prefix that are not settings. tests/structure/test_variables.py compares
them with the code that reads them.
"""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """All settings of one process.

    The text under each setting says what the setting means and, if its default is computed, how.
    """

    # The annotation of a setting has its row: see setting_row.py.
    bootstrap_servers: Annotated[str | None, Row(
        variables=("FOLDLOG_BOOTSTRAP_SERVERS", "KAFKA_BOOTSTRAP_SERVERS"),
        test=re.compile(r"[ -?A-~]*").fullmatch,
        rule="must be HOST:PORT,... without a user or a password",
    )] = None
    """The Kafka brokers, `HOST:PORT,...`. Default: the local broker that `foldlog up` starts."""
    topic_prefix: Annotated[str, Row(
        test=re.compile(r"[A-Za-z0-9._-]{0,128}").fullmatch,
        rule="may contain only letters, digits, `.`, `_` and `-`",
        can_be_empty=True,
    )] = ""
    """Prepended to every topic name: separates installations on one cluster."""
    partitions: Annotated[int, whole(1, 1024)] = 8
    """The number of partitions of each topic, used when the topics are created; `foldlog move`
    changes it later.
    """
    durability: Annotated[str | None, Row(words=DURABILITIES)] = None
    """`replicated`: processes start only on topics that lose no acknowledged record with a broker;
    `flushed`: only on topics that lose none when the machine loses power; `local`: on any. See
    docs/operation.md.
    Default: `local` on a single loopback address, such as that of `foldlog up`; else `replicated`.
    """
    replication_factor: Annotated[int | None, whole(1, REPLICAS_MAX)] = None
    """The replicas of each partition, used when the topics are created and compared later.
    Default: 1 if `durability` is `local`, else 3.
    """
    min_insync_replicas: Annotated[int | None, whole(1, REPLICAS_MAX)] = None
    """How many replicas must have a record before Kafka acknowledges it, used like
    `replication_factor`. Default: 1 if `durability` is `local`, else 2.
    """
    # A longer linger delays each claim's round trip through the log enough for users to notice.
    linger_ms: Annotated[int, whole(0, 5)] = 0
    """Milliseconds the producer waits to fill a batch."""
    client_properties: Annotated[Mapping[str, str], Row(is_file=True)] = field(default_factory=dict)
    """Path of a `client.properties` file: librdkafka settings such as TLS and logins."""
    home: Annotated[Path, path()]
    """Directory of local data. Default: `$XDG_STATE_HOME/foldlog`, or `~/.local/state/foldlog`."""
    state_dir: Annotated[Path, path()]
    """Directory of a worker's stores, outbox and lock. Default: `HOME/worker`, in `home`."""
    fleet_dir: Annotated[Path | None, path()] = None
    """Directory of the tables of a member of the fleet. Default: `HOME/fleet`, in `home`."""
    fleet_url: Annotated[str | None, Row(convert=fleet_url_of)] = None
    """Where `foldlog fleet` answers, `http://HOST:PORT`, see docs/fleet.md.
    Default: the member that runs on `fleet_dir`, if there is one.
    """
    blobs: Annotated[str | None, Row(convert=store_url)] = None
    """URL of the blob store if it is an object store, `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or
    `az://ACCOUNT/CONTAINER/PREFIX`, see docs/blobs.md. Default: the directory `blobs_dir`.
    """
    blobs_dir: Annotated[Path, path("FOLDLOG_BLOBS")]
    """Directory of the blob store, shared by all machines. Default: `HOME/blobs`, in `home`."""
    blob_cache_mb: Annotated[int, whole(0, 1_000_000)] = 256
    """Disk space in MB for local copies of blobs from an object store, in `cache_dir`; 0 turns them
    off.
    """
    archive_dir: Annotated[Path | None, path("FOLDLOG_ARCHIVE")] = None
    """Directory of the archive, shared by all machines, see docs/retention.md.
    Default: `BLOBS/archive`, in `blobs_dir` or `blobs`.
    """
    snapshots_dir: Annotated[Path | None, path("FOLDLOG_SNAPSHOTS")] = None
    """Directory of snapshots of the stores, shared by all workers, see docs/snapshots.md.
    Default: `BLOBS/snapshots`, in `blobs_dir` or `blobs`.
    """
    # A worker folds this many records in about a second.
    snapshot_records: Annotated[int, whole(0, 1_000_000_000)] = 50_000
    """A worker makes a snapshot of a partition after this many new records, and loads a snapshot if
    its own store is more than this many records behind the snapshot; 0 turns both off.
    """
    snapshot_minutes: Annotated[int, whole(1, 10_080)] = 10
    """A worker also makes a snapshot of a partition this many minutes after the last one, if the
    partition has new records.
    """
    cache_dir: Annotated[Path, path()]
    """Directory of downloads. Default: `$XDG_CACHE_HOME/foldlog`, or `~/.cache/foldlog`."""
    config_dir: Annotated[Path | None, path()] = None
    """Directory of the user's own instruction file.
    Default: `$XDG_CONFIG_HOME/foldlog`, or `~/.config/foldlog`.
    """
    managed_instructions: Annotated[Path | None, path()] = None
    """The operator's instruction file, which every agent reads."""
    prices: Annotated[Path | None, path()] = None
    """A price table of your own. Default: the list prices shipped with foldlog."""
    embedder: Annotated[str | None, Row(
        test=re.compile(r"\s*[^\W\d][\w.]*:[^\W\d]\w*\s*|\s*").fullmatch,
        rule="must be MODULE:ATTR, as in my_app:embedder",
    )] = None
    """`MODULE:ATTR` that makes the vectors of memory. Default: see docs/search.md."""
    api_key: Annotated[str | None, Row(
        variables=("ANTHROPIC_API_KEY",),
        test=lambda text: re.fullmatch(r"[!-~]*", text.strip()),
        rule="must be ASCII characters, without spaces",
        is_secret=True,
    )] = None
    """Key of the Messages API. Without it, and without `base_url`, the scripted server answers."""
    base_url: Annotated[str | None, Row(
        variables=("ANTHROPIC_BASE_URL",),
        convert=base_url_of,
        demands_value=True,  # the default is public: whoever sets the variable wants another one
    )] = None
    """Address of the Messages API. Default: the provider's."""
    gateway_secret: Annotated[str | None, Row(
        test=lambda text: len(text.encode()) >= SECRET_BYTES_MIN,
        rule=f"needs at least {SECRET_BYTES_MIN} bytes",
        is_secret=True,
    )] = None
    """Secret of 32 bytes or more that signs the gateway's tokens; without it the gateway serves
    loopback only.
    """
    web_token: Annotated[str | None, Row(
        test=re.compile(r"[!-~]{16,}").fullmatch,
        rule="must be 16 or more ASCII characters, without spaces",
        is_secret=True,
    )] = None
    """Token that the pages of workers and of the fleet require from other machines: 16 characters
    or more.
    """
    user: Annotated[str, Row(
        test=is_id,
        rule="must be 1 to 128 letters, digits, `.`, `_`, `:`, `@`, `-`, not `.`, `..`",
    )]
    """The user that commands act as. Default: the login name."""
    inline_limit_bytes: Annotated[int, whole(1024, INLINE_LIMIT_BYTES_MAX)] = INLINE_LIMIT_BYTES
    """Larger content goes to the blob store instead of the event."""
    channels: Mapping[str, Channel] = field(default_factory=dict)
    """Where answers are pushed to, by name: see docs/delivery.md."""
    channels_wrong: tuple[str, ...] = ()
    decoder: Annotated[str, Row(words=("auto", "python"))] = "auto"
    """How a process decodes records: `auto`, with the compiled decoder if it is built, or `python`.
    Both give the same events.
    """
    tool_env: Annotated[tuple[str, ...], Row(convert=variable_globs, can_be_empty=True)] = ()
    """Further environment variables for the commands that tools run, as in `A,B*`; `*` at the end
    of a name is a wildcard. Default: only the usual variables, see docs/agents.md.
    """
    model_slots: Annotated[int, whole(1, SLOTS_MAX)] = 100
    """Model calls that one worker runs at once; more of them wait in a queue."""
    tool_slots: Annotated[int, whole(1, SLOTS_MAX)] = 32
    """Tool calls that one worker runs at once; more of them wait in a queue."""
    session_cache_mb: Annotated[int, whole(1, 1_000_000)] = SESSION_CACHE_MB
    """Memory in MB for the sessions that a worker, or a gateway, keeps as objects; others are read
    from its store when they are used.
    """

    @classmethod
    def load(
        cls,
        env: Mapping[str, str],
        toml_path: Path | None = None,
        flags: Mapping[str, Any] | None = None,
    ) -> "Settings":
        """Combine the settings from `env`, the file and `flags`.

        A missing file counts as empty. A flag that is None was not given. Paths may begin with `~`;
        relative paths in the file are relative to the file, all others to the working directory.
        Raises SettingsError, which names the setting and its source. An unusable channel does not
        raise an error here, but in `demand_channels`, because only processes that deliver answers
        use channels.
        """
        found = _with_blobs({}, _from_toml(toml_path, env))
        channels, source = found.pop("channels", ({}, ""))
        found = _with_blobs(found, _from_env(env))
        found = _with_blobs(found, _from_flags(flags or {}))
        given = {name: ROWS[name].checked(name, *each) for name, each in found.items()}
        given["channels"], given["channels_wrong"] = channels_from(channels, source, env)
        return cls._complete(given, env)

    @classmethod
    def _complete(cls, given: dict[str, Any], env: Mapping[str, str]) -> "Settings":
        """Fill in the defaults that depend on other settings."""
        properties = dict(_properties_file(given.pop("client_properties", None), env))
        servers = properties.pop("bootstrap.servers", None)
        given.setdefault("bootstrap_servers", servers)
        for name in _PATHS:
            if name in given:
                given[name] = _path(given[name], env)
        home = given.setdefault("home", _base(env, "XDG_STATE_HOME", ".local/state") / "foldlog")
        given.setdefault("state_dir", home / "worker")
        given.setdefault("blobs_dir", home / "blobs")
        given.setdefault("cache_dir", _base(env, "XDG_CACHE_HOME", ".cache") / "foldlog")
        config = _base(env, "XDG_CONFIG_HOME", ".config")
        given.setdefault("config_dir", config / "foldlog")
        given.setdefault("user", _login(env))
        for name in ("home", "state_dir", "blobs_dir", "cache_dir"):
            in_the_way = _a_file(given[name])
            if in_the_way is not None:
                raise SettingsError(f"{name} must be a directory, but {in_the_way} is a file. "
                                    "Nothing was changed. Choose another path.")
        settings = cls(client_properties=properties, **given)
        _ = settings.replication  # contradictions are reported now, not when a topic is created
        return settings

    def demand_channels(self) -> Mapping[str, Channel]:
        """The channels for delivery. Raises SettingsError if a channel is unusable."""
        if self.channels_wrong:
            raise SettingsError(
                f"{'; '.join(self.channels_wrong)}. Processes that deliver answers do not start "
                "with this setting, and nothing was sent; all others work. Correct it."
            )
        return self.channels

    def of_log(self, topic_prefix: str, partitions: int, *, flags: tuple[str, str]) -> "Settings":
        """The settings of another log on the same cluster. `flags`: the names of the options that
        set the prefix and the number of partitions, for error messages.

        Raises SettingsError if a value is invalid.
        """
        return replace(
            self,
            topic_prefix=ROWS["topic_prefix"].checked("topic_prefix", topic_prefix, flags[0]),
            partitions=ROWS["partitions"].checked("partitions", partitions, flags[1]),
        )

    @property
    def replication(self) -> Replication:
        """The replication of the topics. Until the broker's address is known, that of a local
        broker. Raises SettingsError if the settings contradict each other.
        """
        durability = self.durability
        if durability is None:
            durability = LOCAL if _is_one_loopback(self.bootstrap_servers) else REPLICATED
        replicated = durability == REPLICATED
        factor = self.replication_factor or (REPLICAS if replicated else 1)
        in_sync = self.min_insync_replicas or (min(IN_SYNC_MIN, factor) if replicated else 1)
        if in_sync > factor:
            raise SettingsError(
                f"min_insync_replicas is {in_sync} and replication_factor {factor}: no more "
                "replicas can be in sync than there are. Lower the first or raise the second."
            )
        if replicated and in_sync < IN_SYNC_MIN:
            raise SettingsError(
                f"replication_factor is {factor} and min_insync_replicas {in_sync}, but durability "
                f"is {REPLICATED!r}, which needs {IN_SYNC_MIN} or more of both: otherwise a record "
                f"can be lost with one broker. Raise them, or set durability to {LOCAL!r} "
                "(FOLDLOG_DURABILITY) if one copy is enough."
            )
        return Replication(factor, in_sync, durability != LOCAL, durability == FLUSHED)

    @property
    def secret_variables(self) -> tuple[str, ...]:
        """The environment variables with secrets of foldlog itself."""
        ours = tuple(variable for name in _SECRETS for variable in ROWS[name].variables)
        return (*ours, *(channel.secret_env for channel in self.channels.values()))

    @property
    def kafka_dir(self) -> Path:
        """The directory of the local broker."""
        return self.home / "kafka"

    @property
    def fleet_directory(self) -> Path:
        """The directory of a member of the fleet."""
        return self.fleet_dir or self.home / "fleet"

    def topic(self, name: str) -> str:
        """The full name of a topic, for code that accesses the cluster without a Log."""
        return self.topic_prefix + name

    def __repr__(self) -> str:
        shown = {f.name: getattr(self, f.name) for f in fields(self)}
        for secret in _SECRETS:
            shown[secret] = "set, not shown" if shown[secret] else None
        shown["base_url"] = _without_password(self.base_url)
        shown["client_properties"] = sorted(self.client_properties)
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


ROWS: Mapping[str, Row] = {
    name: row._replace(variables=row.variables or (PREFIX + name.upper(),))
    for name, hint in get_type_hints(Settings, include_extras=True).items()
    for row in getattr(hint, "__metadata__", ())
}
"""The row of each setting that has variables, from the annotations of `Settings`."""
_PATHS = [name for name, row in ROWS.items() if row.is_path]
_SECRETS = [name for name, row in ROWS.items() if row.is_secret]


def unknown_variables(settings: Settings, env: Mapping[str, str]) -> tuple[str, ...]:
    """A text about each variable with foldlog's prefix that nothing reads: probably a typing
    error. The values are not shown."""
    ours = [v for row in ROWS.values() for v in row.variables if v.startswith(PREFIX)]
    channels = [channel.secret_env for channel in settings.channels.values()]
    known = {*ours, *OTHER_VARIABLES, HANDED, *channels}
    unknown = sorted(
        name for name in set(env) - known
        if name.startswith(PREFIX) and not any(fnmatchcase(name, g) for g in settings.tool_env)
    )
    return tuple(_unknown(name, ours) for name in unknown)


def _unknown(name: str, ours: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, ours, 1)
    hint = f", did you mean {near[0]}?" if near else ""
    return f"{keys_text([name])} is not a variable of foldlog and was ignored{hint}"


_Found = dict[str, tuple[Any, str]]
"""The value of each setting before validation, and its source."""


def _from_toml(path: Path | None, env: Mapping[str, str]) -> _Found:
    if path is None:
        return {}
    table = _toml_table(path)
    known = {*ROWS, "channels"}
    unknown = sorted(set(table) - known)
    if unknown:
        raise SettingsError(
            f"{path}: unknown settings {keys_text(unknown)}. Known are: {', '.join(sorted(known))}."
        )
    for name in (name for name, row in ROWS.items() if row.is_file):
        text = table.get(name)
        if not isinstance(text, str) or not text.strip() or (name == "blobs_dir" and "://" in text):
            continue
        table[name] = str(path.absolute().parent / _expanded(text, env))
    return {name: (value, str(path)) for name, value in table.items()}


def _toml_table(path: Path) -> dict[str, Any]:
    """The content of the file; nothing if there is no file. Raises SettingsError."""
    try:
        if not os.path.lexists(path):
            return {}
        if not path.is_file():
            raise SettingsError(f"{path} is not a file. Nothing was read. Remove or replace it.")
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        why = f"byte {error.start} is not UTF-8"
    except tomllib.TOMLDecodeError as error:
        why = str(error)
    except RecursionError:
        why = "it is nested too deeply"
    except ValueError:  # int() limits the digits that it reads
        why = "a number or a date in it is out of range"
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    raise SettingsError(f"{path} is not a TOML file: {why}") from None


def _from_env(env: Mapping[str, str]) -> _Found:
    found = {}
    for name, row in ROWS.items():
        for variable in row.variables:
            if env.get(variable) or (variable in env and row.demands_value):
                found[name] = (env[variable], variable)
                break
    return found


def _from_flags(flags: Mapping[str, Any]) -> _Found:
    unknown = sorted(set(flags) - set(ROWS))
    assert not unknown, f"no such settings: {unknown}"
    given = {name: value for name, value in flags.items() if value is not None}
    return {name: (value, f"--{name.replace('_', '-')}") for name, value in given.items()}


def _with_blobs(found: _Found, more: _Found) -> _Found:
    """`found`, overridden by `more`. Of `blobs` and `blobs_dir` one remains: FOLDLOG_BLOBS sets
    either, and a place of the blobs overrides any other.
    """
    given = [name for name in ("blobs", "blobs_dir") if name in more]
    if not given:
        return found | more
    value, source = more[given[0]]
    if len(given) == 2 and more[given[1]] != more[given[0]]:
        raise SettingsError(f"{source}: set blobs or blobs_dir, not both")
    rest = {name: each for name, each in (found | more).items()
            if name not in ("blobs", "blobs_dir")}
    is_url = isinstance(value, str) and "://" in value
    if is_url and value.startswith("file:///"):
        return {**rest, "blobs_dir": (value.removeprefix("file://"), source)}
    return {**rest, "blobs" if is_url or given == ["blobs"] else "blobs_dir": (value, source)}


def _properties_file(path: str | None, env: Mapping[str, str]) -> Mapping[str, str]:
    """Read `name=value` lines; blank lines and lines that begin with # or ! are ignored."""
    if path is None:
        return {}
    file = _path(path, env)
    try:
        lines = file.read_bytes().decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        # The path is not shown, because it may be a property with a password.
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SettingsError(f"client_properties: cannot read the file: {why}") from None
    properties = {}
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            # The line itself is not shown, because it may contain a password.
            raise SettingsError(f"{file}, line {number}: not of the form name=value")
        properties[name.strip()] = value.strip()
    return properties


def _base(env: Mapping[str, str], variable: str, below_home: str) -> Path:
    """An XDG base directory; the specification says to ignore a relative path."""
    given = env.get(variable, "")
    return Path(utf8(given, variable)) if given.startswith("/") else _home(env) / below_home


def _home(env: Mapping[str, str]) -> Path:
    return Path(utf8(env.get("HOME") or str(Path.home()), "HOME"))


def _expanded(text: str, env: Mapping[str, str]) -> Path:
    """Expand `~` to the home directory that `env` names. pathlib's expanduser() would read the
    environment of the process instead."""
    return _home(env) / text[2:] if text == "~" or text.startswith("~/") else Path(text)


def _path(text: str, env: Mapping[str, str]) -> Path:
    return _expanded(text, env).absolute()


def _a_file(path: Path) -> Path | None:
    """The path of a file that prevents this directory from being created, or None. The file has the
    path of the directory or of one of its parents."""
    try:
        existing = next((each for each in (path, *path.parents) if each.exists()), path)
        return existing if existing.exists() and not existing.is_dir() else None
    except OSError:  # the code that uses the directory reports why it is inaccessible
        return None


def _is_one_loopback(servers: str | None) -> bool:
    """Whether this address is that of a single broker on this machine: none, or one on loopback."""
    if servers is None:
        return True
    host = servers.strip().rpartition("://")[2].rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name, or several addresses
        return False


def _login(env: Mapping[str, str]) -> str:
    """The login name; characters that a user id may not contain are replaced."""
    name = env.get("USER") or env.get("LOGNAME") or env.get("USERNAME") or "local"
    login = re.sub(r"[^A-Za-z0-9._:@-]", "-", name)[:128]
    return login if is_id(login) else "local"


def _without_password(url: str | None) -> str | None:
    parts = urlsplit(url or "")
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
