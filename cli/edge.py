"""Defines the object that every command gets (settings, log, client), and options that commands
share.
"""

import os
import pwd
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from ..client import installation
from ..log import LogUnreachable, Settings, open_log
from ..log.door import Log
from ..log.extras import demand
from ..schemas.origin import Origin, Proof, Recorder
from .terminal.printing import note
from .terminal.progress import Bar

if TYPE_CHECKING:
    from ..client.log_client import LogClient
    from ..client.session import Session
    from ..local.kafka import Broker, BrokerCluster
    from ..processors.advice.prices import PriceTable
    from ..producers.options import Option

F = TypeVar("F", bound=Callable[..., Any])


class Edge:
    """The settings of this process, and the log and clients that are opened on first use.

    `flags`: the options given before the command. A child process that gets them too has the same
    settings.
    """

    def __init__(self, settings: Settings | None = None, log: Log | None = None) -> None:
        self._settings = settings
        self.flags: list[str] = []
        self.is_child = False  # whether another foldlog process started this one
        self._log, self._owns_log = log, log is None
        self._opened: list[Any] = []
        self._callbacks: list[Callable[[], None]] = []

    def configure(self, flags: Mapping[str, Any], config: Path | None) -> None:
        """Load the settings, unless a test supplied them. Flags override the environment, which
        overrides the file. Raises SettingsError.
        """
        set_flags = {name: value for name, value in flags.items() if value is not None}
        self.flags = [f"--{name.replace('_', '-')}={value}" for name, value in set_flags.items()]
        self.flags += [f"--config={config}"] if config else []
        if self._settings is None:
            report = (lambda _: None) if self.is_child else note  # its parent has reported them
            self._settings = installation.find_settings(flags, config, report)

    @property
    def settings(self) -> Settings:
        """The settings of this process."""
        assert self._settings is not None, "the settings are read before a command runs"
        return self._settings

    def local_broker(self, brokers: int | None = None) -> "Broker | BrokerCluster":
        """The local Kafka of this machine, running or not. brokers: their number (default: as they
        were started before). Raises BrokerError if the directory has another number of brokers.
        """
        return installation.local_broker(self.settings, brokers)

    def bootstrap_servers(self) -> str:
        """The broker's address.

        Raises LogUnreachable, whose message states how to start a broker.
        """
        return installation.bootstrap_servers(self.settings)

    def connected(self) -> Settings:
        """The settings with the broker's address. Raises LogUnreachable."""
        return installation.connected(self.settings)

    def demand(self, *extras: str) -> None:
        """Raise ExtraMissing, unless these extras of the package are installed. The running command
        needs them."""
        demand(click.get_current_context().command_path, *extras)

    @property
    def elsewhere(self) -> Settings:
        """Settings with which another process can open the same log. For a log in memory, they have
        no broker address.
        """
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
        """The token prices: the user's table, or the list prices. Raises SettingsError."""
        from ..processors.advice.prices import load_prices

        return load_prices(self.settings.prices)

    def client(self, user: str | None = None) -> "LogClient":
        """A client on the log that acts for `user`, by default the login name."""
        from ..client.log_client import LogClient

        client = LogClient(
            self.settings, self.log, user=user, channel="cli", brief=True, origin=_origin()
        )
        client.progress = Bar("read", "records")
        self._opened.insert(0, client)
        return client

    def session(
        self, session_id: str, user: str | None = None, agent: str | None = None
    ) -> "Session":
        """A session, for a command on it by `user`, by default the login name."""
        from ..client.session import Session

        session = Session(self.client(user), session_id, agent, chunks=False)
        self._opened.insert(0, session)
        return session

    def use(self, log: Log, settings: Settings, on_close: Callable[[], None]) -> None:
        """Use this log instead of the configured log.

        `on_close` is called after everything is closed.
        """
        self._log, self._settings, self._owns_log = log, settings, False
        self._callbacks.append(on_close)

    def close(self) -> None:
        """Close everything that was opened."""
        for opened in self._opened:
            opened.close()
        self._opened.clear()
        while self._callbacks:
            self._callbacks.pop()()
        self._log = None if self._owns_log else self._log


def _origin() -> Origin:
    """The origin that is recorded with the events of this process: the command line, and the name
    of the operating system's user, even if --user names another user.
    """
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run under a uid without a name
        name = str(os.getuid())
    name = re.sub(r"[^A-Za-z0-9._:@-]", "-", name)[:128]
    return Origin(Recorder.COMMAND, Proof.OS_USER, name)


@contextmanager
def local_errors() -> Iterator[None]:
    """Turns errors of the local broker into LogUnreachable."""
    from ..local.kafka import BrokerError

    try:
        yield
    except BrokerError as error:
        raise LogUnreachable(str(error)) from error


pass_edge = click.make_pass_decorator(Edge)


def json_option(command: F) -> F:
    """`--json`: print data as JSON, one value per line. `__main__` prints refusals as JSON too."""
    text = "Print JSON, one value per line; a refusal too."
    return click.option("--json", "as_json", is_flag=True, help=text)(command)


def on_session(command: F) -> F:
    """`--user` and `--json`, for a command on SESSION: it gets the session of that user."""

    @user_option
    @json_option
    @pass_edge
    @wraps(command)
    def call(edge: Edge, /, session: str, user: str | None, **options: Any) -> Any:
        return command(edge.session(session, user), **options)

    return cast(F, call)


def command_option(option: "Option") -> Callable[[F], F]:
    """An option of a command that writes an event."""
    flag = f"--{option.name.replace('_', '-')}"
    if option.words is None:
        return click.option(flag, is_flag=True, help=option.help)
    words = click.Choice([str(word) for word in option.words])
    return click.option(
        flag, type=words, default=option.default, show_default=True, help=option.help
    )


def at_option(command: F) -> F:
    """`--at`: the offset of a past moment."""
    text = "As of right after this offset of its partition (default: now)."
    return click.option("--at", type=click.IntRange(min=0), metavar="OFFSET", help=text)(command)


def user_name(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """A user's name, or None for the login name.

    Refuses "", which an unset shell variable gives.
    """
    if value == "":
        raise click.BadParameter("it is empty; omit it to use the login name")
    return value


def user_option(command: F) -> F:
    """`--user`: the user for whom the command acts."""
    text = "Act for this user (default: the login name)."
    return click.option("--user", metavar="USER", callback=user_name, help=text)(command)


def example(*lines: str) -> str:
    """An epilog that shows how a command is used."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)
