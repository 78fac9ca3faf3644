"""gateway, token: serve sessions over HTTP, and print tokens for the gateway.

The gateway itself is `web/gateway`. This file turns the command line into an address, decides
whether callers must authenticate, and keeps the gateway of `dev` running.
"""

import errno
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from ...log import Settings
from ...log.environment import start_process
from ...log.errors import SettingsError
from ...log.made import demand_topics
from ...schemas.origin import TokenRole
from ..edge import Edge, example, pass_edge, user_name
from ..terminal.log_lines import to_stderr
from ..terminal.printing import line, note

PORT = 8377
LIFE_S = 900
END_S = 10.0
"""How long the gateway that `dev` started may take to shut down."""
PAUSE_S, PAUSE_MAX_S = 2.0, 60.0
"""The first and the longest pause before `dev` restarts its gateway, in seconds.

The pause doubles each time that the gateway ends within STABLE_S.
"""
STABLE_S = 60.0
POLL_S = 0.1


def _origins(_context: click.Context, _option: click.Parameter, given: Sequence[str]) -> tuple:
    """Check that origins have the form in which browsers send them. An origin in another form would
    never match, and no error would show it.
    """
    for origin in given:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or origin != f"{parts.scheme}://{parts.netloc}":
            raise click.BadParameter(
                f"{origin!r} is not an origin. Give scheme, host and port without a path, "
                "as in https://app.example"
            )
    return tuple(origin.lower() for origin in given)


origin_option = click.option(
    "--cors-origin", "origins", multiple=True, metavar="ORIGIN", callback=_origins,
    help="The origin of a page that may use the gateway, as in https://app.example; repeatable.",
)


port_option = click.option(
    "--port", type=click.IntRange(0, 65535), metavar="PORT",
    help=f"The gateway's port; 0 picks a free one (default: {PORT}, or a free one if it is taken).",
)


@click.command("gateway", epilog=example(
    "foldlog gateway", "foldlog gateway --port 9000",
    "FOLDLOG_GATEWAY_SECRET=... foldlog gateway --host 0.0.0.0",
))
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="The address to listen on; any but loopback needs a secret.")
@port_option
@origin_option
@click.option("--per-address", type=click.IntRange(1), metavar="N",
              help="Connections that one address may have (default: half of all). Behind a proxy "
                   "all clients have its address: allow all connections, and let the proxy limit "
                   "them.")
@click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="The directory of its cache of the log (default: below --home).")
@click.option("--log-json", is_flag=True, help="Print log lines as JSON, one object per line.")
@click.option("--until-eof", is_flag=True, hidden=True, help="Exit at the end of stdin.")
@pass_edge
def gateway_command(
    edge: Edge,
    host: str,
    port: int | None,
    origins: tuple[str, ...],
    per_address: int | None,
    state_dir: Path | None,
    log_json: bool,
    until_eof: bool,
) -> int:
    """Serve sessions over HTTP: inspector, streams, protocols.

    It has no state of its own but a cache: kill it, start another, and viewers continue where they
    were. With FOLDLOG_GATEWAY_SECRET set, every caller needs a token (`foldlog token`) and sees
    their own sessions; without it, the gateway is in development mode: on loopback only, and for
    one person. SIGTERM or Ctrl-C ends it with exit code 0.
    """
    edge.demand("gateway")
    to_stderr(logging.WARNING, "%(asctime)s %(message)s", force=True, as_json=log_json)
    if until_eof:
        threading.Thread(target=end_at_eof, daemon=True).start()
    demand_topics(edge.log, edge.settings.partitions, edge.elsewhere.replication)
    directory = state_dir or edge.settings.home / "gateway"
    settings = edge.connected()
    edge.close()
    return serve(settings, host, port, origins, directory, per_address)


def end_at_eof() -> None:
    """End this process when the process that started it has ended, cleanly or not."""
    while os.read(0, 1024):  # sys.stdin has a lock that would block the process's end
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def child_arguments(
    flags: Sequence[str], origins: Sequence[str], port: int | None = None
) -> list[str]:
    """The arguments of the gateway that `dev` starts: the installation's flags, and the gateway's
    own.
    """
    allowed = [part for origin in origins for part in ("--cors-origin", origin)]
    at = [] if port is None else ["--port", str(port)]
    return [*flags, "gateway", "--until-eof", *at, *allowed]


def demand_free(port: int | None) -> None:
    """Raise SettingsError if the port was given and is taken."""
    if port:
        _listening("127.0.0.1", port).close()


@contextmanager
def child_gateway(
    edge: Edge, origins: Sequence[str] = (), port: int | None = None
) -> Iterator[Callable[[], None]]:
    """A gateway process of the same installation, which ends with the block or with this process.
    Yields a function that makes the gateway end earlier, and returns at once.
    """
    arguments = child_arguments(edge.flags, origins, port)
    with restarting([sys.executable, "-m", "foldlog.cli", *arguments]) as end:
        yield end


def parse_address(text: str) -> tuple[str, int]:
    """Split ADDRESS:PORT. Raises click.UsageError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise click.UsageError(
            f"--web {text} is not an address. Give ADDRESS:PORT, as in 127.0.0.1:9464."
        )
    return host.strip("[]"), int(port)


@contextmanager
def restarting(
    command: Sequence[str],
    report: Callable[[str], None] = note,
    pause_s: float = PAUSE_S,
    what: str = "the gateway",
    after_s: float = 0.0,
) -> Iterator[Callable[[], None]]:
    """Run a process during a block, from `after_s` on, and restart it whenever it exits.

    At the end of the block the process's stdin is closed, which ends the process. Yields a function
    that closes the stdin earlier, and returns at once.
    """
    stop = threading.Event()
    first = None if after_s else _child(command)
    supervisor = threading.Thread(
        target=_supervise, args=(first, command, stop, report, pause_s, what, after_s),
        daemon=True,
    )
    supervisor.start()
    try:
        yield stop.set
    finally:
        stop.set()
        supervisor.join()


def _child(command: Sequence[str]) -> "subprocess.Popen[Any]":
    # The process has its own session, so Ctrl-C does not reach it. It exits when we close its
    # stdin.
    return start_process(command, stdin=subprocess.PIPE, start_new_session=True)


def _supervise(
    child: "subprocess.Popen[Any] | None",
    command: Sequence[str],
    stop: threading.Event,
    report: Callable[[str], None],
    pause_s: float,
    what: str,
    after_s: float,
) -> None:
    if child is None:
        if stop.wait(after_s):
            return
        child = _child(command)
    pause = pause_s
    while True:
        began = time.monotonic()
        while child.poll() is None and not stop.wait(POLL_S):
            pass
        if stop.is_set():
            return _end(child)
        _end(child)
        code = child.returncode
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}, the reason is above"
        pause = pause_s if time.monotonic() - began > STABLE_S else pause
        report(f"{what} ended {how}; it restarts in {pause:g} s")
        if stop.wait(pause):
            return None
        pause = min(2 * pause, PAUSE_MAX_S)
        child = _child(command)


def _end(child: "subprocess.Popen[Any]") -> None:
    """Close the process's stdin, wait until the process exits, and kill it if it does not."""
    assert child.stdin is not None
    child.stdin.close()
    try:
        child.wait(END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def serve(
    settings: Settings,
    host: str,
    port: int | None,
    origins: Sequence[str],
    directory: Path,
    per_address: int | None = None,
) -> int:
    """Serve until SIGTERM or Ctrl-C.

    Raises SettingsError if the address is taken, or if other machines could reach it without a
    secret.
    """
    from ...client.log_client import LogClient
    from ...processors.worker.page_access import is_loopback
    from ...web.gateway.access import Access
    from ...web.gateway.app import Gateway, make_app
    from ...web.gateway.serve import limits_here, server

    secret = settings.gateway_secret
    if secret is None and not is_loopback(host):
        raise SettingsError(
            f"--host {host}: other machines could use this gateway without authentication. Nothing "
            "was started. Set FOLDLOG_GATEWAY_SECRET (32 random characters or more), or use "
            "127.0.0.1."
        )
    with (
        _locked(directory),  # first: a second start is reported as such, not as a port conflict
        _listening(host, port) as listening,
        LogClient(settings, channel="gateway") as client,
    ):
        access = Access(settings.user, secret, origins)
        gateway = Gateway(client, access, directory, note)
        limits = limits_here(per_address)  # now that the stores are open
        gateway.hub.limit_viewers(limits.connections)
        line(f"the gateway serves http://{host}:{listening.getsockname()[1]}/")
        if secret is None:
            note(f"development mode: loopback only; every caller acts as user {settings.user} and "
                 "sees every session")
        serving = server(make_app(gateway), limits, gateway.disconnect)
        gateway.tail.on_end = lambda: setattr(serving, "should_exit", True)
        serving.run(sockets=[listening])
        return 1 if gateway.tail.has_ended else 0


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Lock the cache directory against other gateways.

    Raises SettingsError if a gateway has it locked.
    """
    from ...processors.store.state_dir import StateDir, StateDirTaken

    try:
        state_dir = StateDir(directory)
    except StateDirTaken:
        raise SettingsError(
            f"another gateway has its cache in {directory}. Nothing was changed. Stop that one, "
            "or give this one a directory of its own with --state-dir."
        ) from None
    try:
        yield
    finally:
        state_dir.close()


def _listening(host: str, port: int | None) -> socket.socket:
    """A listening socket. If no port is given and the default port is taken, uses a free port."""
    from ...web.gateway.serve import listen

    try:
        return listen(host, PORT if port is None else port)
    except OSError as error:
        if port is None and error.errno == errno.EADDRINUSE:
            note(f"port {PORT} is taken, perhaps by another gateway: using a free one")
            return listen(host, 0)
        raise SettingsError(
            f"cannot listen on {host}:{port}: {error.strerror}. Nothing was started. Stop the "
            "other gateway if there is one, or choose another port with --port."
        ) from error


@click.command("token", epilog=example(
    "foldlog token --user ana", "foldlog token --role operator --life 3600"
))
@click.option("--user", metavar="USER", callback=user_name,
              help="The user it is for (default: the login name).")
@click.option("--life", "life_s", default=LIFE_S, show_default=True, metavar="SECONDS",
              type=click.IntRange(1, 3_600), help="How long it is valid.")
@click.option("--role", "roles", multiple=True, type=click.Choice(tuple(map(str, TokenRole))),
              help="A right beside those to the user's own sessions; repeatable.")
@pass_edge
def token_command(edge: Edge, user: str | None, life_s: int, roles: Sequence[str]) -> int:
    """Print a token for the gateway.

    It is signed with FOLDLOG_GATEWAY_SECRET; the gateway must have the same secret. The role
    `operator` may read the sessions of all users, and with `decide` also answer their approvals and
    doubts; `foldlog looks` prints what operators read.
    """
    edge.demand("gateway")
    from ...producers.checks import an_id
    from ...web.gateway.access import token_for

    secret = edge.settings.gateway_secret
    if secret is None:
        raise SettingsError(
            "FOLDLOG_GATEWAY_SECRET is not set, so the token cannot be signed. Set the gateway's "
            "secret; a gateway in development mode needs no token."
        )
    name, given = an_id("user", user or edge.settings.user), set(map(TokenRole, roles))
    click.echo(token_for(name, secret, life_s, given))
    return 0
