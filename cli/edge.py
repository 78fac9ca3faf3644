"""What every command gets: settings, the log they mean, a client; and the options all share.

This file is the one place where the environment becomes settings, and where "which broker" is
decided: the configured one, else the local one that `foldlog up` started. It must not know any
command.
"""

import os
import pwd
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..log import LogUnreachable, Settings, environment, open_log
from ..log.door import Log
from ..schemas.origin import Origin, Proof, Recorder

if TYPE_CHECKING:
    from ..consumers.client import Client
    from ..local.kafka import Broker
    from ..processors.advice.prices import PriceTable

F = TypeVar("F", bound=Callable[..., Any])
SETTINGS_FILE = "foldlog.toml"


class Edge:
    """The settings of this process, and what is opened from them on first use.

    `flags`: what the command line said before the command, for a process that shall mean the same.
    """

    def __init__(self, settings: Settings | None = None, log: Log | None = None) -> None:
        self._settings = settings
        self.flags: list[str] = []
        self._log, self._owns_log = log, log is None
        self._opened: list[Any] = []
        self._done: list[Callable[[], None]] = []

    def configure(self, flags: Mapping[str, Any], config: Path | None) -> None:
        """Flags over environment over file, unless settings are at hand. Raises SettingsError."""
        given = {name: value for name, value in flags.items() if value is not None}
        self.flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
        self.flags += [f"--config={config}"] if config else []
        if self._settings is None:
            self._settings = Settings.load(os.environ, config or Path(SETTINGS_FILE), flags)

    @property
    def settings(self) -> Settings:
        """The settings of this process."""
        assert self._settings is not None, "a command runs after the settings are read"
        return self._settings

    def local_broker(self) -> "Broker":
        """The broker of this machine, whether it runs or not."""
        from ..local.kafka import Broker

        return Broker(
            dir=self.settings.kafka_dir,
            cache_dir=self.settings.cache_dir,
            env=environment.for_children(environment.JAVA),
        )

    def bootstrap_servers(self) -> str:
        """Where the log is. Raises LogUnreachable with what to do."""
        if self.settings.bootstrap_servers is not None:
            return self.settings.bootstrap_servers
        from ..local.kafka import Condition

        status = self.local_broker().status()
        if status.state is None and status.pid is None:
            raise LogUnreachable(
                "no Kafka is configured, and no local one runs. Run `foldlog up` (or "
                "`foldlog dev` for all of it), or set KAFKA_BOOTSTRAP_SERVERS."
            )
        if status.condition is Condition.GONE:
            raise LogUnreachable(
                "the local Kafka was started and has ended by itself or was killed. Its data is "
                "kept: run `foldlog up` to bring it back."
            )
        return self.local_broker().bootstrap_servers

    def connected(self) -> Settings:
        """The settings with the broker filled in. Raises LogUnreachable."""
        return replace(self.settings, bootstrap_servers=self.bootstrap_servers())

    @property
    def elsewhere(self) -> Settings:
        """Settings by which another process has the same log; without a broker if none can."""
        return self.connected() if self._owns_log else replace(
            self.settings, bootstrap_servers=None
        )

    @property
    def log(self) -> Log:
        """The log. Raises LogUnreachable, SettingsError."""
        if self._log is None:
            self._log = open_log(self.connected())
            self._opened.append(self._log)
        return self._log

    @property
    def prices(self) -> "PriceTable":
        """What tokens cost: the user's table, or the list prices. Raises SettingsError."""
        from ..processors.advice.prices import load_prices

        return load_prices(self.settings.prices)

    def client(self, user: str | None = None) -> "Client":
        """A client on the log that acts for `user`, by default the login name."""
        from ..consumers.client import Client

        made = Client(
            self.settings, self.log, user=user, channel="cli", brief=True, origin=_origin()
        )
        self._opened.insert(0, made)
        return made

    def use(self, log: Log, settings: Settings, done: Callable[[], None]) -> None:
        """Another log in place of the configured one; `done` is called when all is closed."""
        self._log, self._settings, self._owns_log = log, settings, False
        self._done.append(done)

    def close(self) -> None:
        """Close what was opened."""
        for opened in self._opened:
            opened.close()
        self._opened.clear()
        while self._done:
            self._done.pop()()
        self._log = None if self._owns_log else self._log


def _origin() -> Origin:
    """This command and the user whom the system says it belongs to, whatever --user says."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a number that has no name
        name = str(os.getuid())
    name = re.sub(r"[^A-Za-z0-9._:@-]", "-", name)[:128]
    return Origin(Recorder.COMMAND, Proof.OS_USER, name)


@contextmanager
def local_errors() -> Iterator[None]:
    """What the local broker can not do means that the log is not there."""
    from ..local.kafka import BrokerError

    try:
        yield
    except BrokerError as error:
        raise LogUnreachable(str(error)) from error


pass_edge = click.make_pass_decorator(Edge)


def json_option(command: F) -> F:
    """`--json`: print data as JSON, one value a line; `__main__` prints a refusal so."""
    told = "Print JSON, one value a line; a refusal too."
    return click.option("--json", "as_json", is_flag=True, help=told)(command)


def somebody(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """A user's name, or None for the login name; an empty variable of a shell is neither."""
    if value == "":
        raise click.BadParameter("it is empty; leave it out for the login name")
    return value


def user_option(command: F) -> F:
    """`--user`: for whom the command acts."""
    said = "Act for this user (default: the login name)."
    return click.option("--user", metavar="USER", callback=somebody, help=said)(command)


def example(*lines: str) -> str:
    """An epilog that shows how a command is used."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)
