"""gateway, token: serving viewers over HTTP, and who may look.

Thin: the gateway is `consumers/gateway`. This file owns how its command line becomes an address and
who is asked who they are.
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

from ..log import Settings
from ..log.environment import start_process
from ..log.errors import SettingsError
from ..log.made import demand_topics
from .edge import Edge, example, pass_edge, somebody
from .log_lines import to_stderr
from .printing import line, note
from .terminal import ending_with_0

PORT = 8377
LIFE_S = 900
END_S = 10.0
"""For a clean end of the gateway that `dev` started."""
PAUSE_S, PAUSE_MAX_S = 2.0, 60.0
"""Before the gateway of `dev` is started again; twice as long after each end that came soon."""
LIVED_S = 60.0
LOOK_S = 0.1


def _origins(_context: click.Context, _option: click.Parameter, given: Sequence[str]) -> tuple:
    """Origins as browsers name them: one that never matches would look as if it were allowed."""
    for origin in given:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or origin != f"{parts.scheme}://{parts.netloc}":
            raise click.BadParameter(
                f"{origin!r} is no origin: scheme, host and port, nothing behind, "
                "as in https://app.example"
            )
    return tuple(origin.lower() for origin in given)


origin_option = click.option(
    "--cors-origin", "origins", multiple=True, metavar="ORIGIN", callback=_origins,
    help="A page that may use the gateway, as in https://app.example; may be given several times.",
)


@click.command("gateway", epilog=example(
    "foldlog gateway", "foldlog gateway --port 9000",
    "FOLDLOG_GATEWAY_SECRET=... foldlog gateway --host 0.0.0.0",
))
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="The address to listen on; others than loopback need a secret.")
@click.option("--port", type=click.IntRange(0, 65535),
              help=f"The port; 0 takes a free one (default: {PORT}, or a free one if it is taken).")
@origin_option
@click.option("--per-address", type=click.IntRange(1), metavar="N",
              help="Connections that one address may have (default: half of all). Behind a proxy "
                   "everybody comes from its address: give it all, and let it limit its clients.")
@click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Where it keeps its cache of the log (default: below --home).")
@click.option("--log-json", is_flag=True, help="Log lines are JSON, one object each.")
@click.option("--until-eof", is_flag=True, hidden=True, help="End when stdin does.")
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

    It holds no truth: kill it, start another, and viewers go on where they were. With
    FOLDLOG_GATEWAY_SECRET set, everybody needs a token (`foldlog token`) and sees their own
    sessions; without it, it is in development mode: on loopback only, and for one person. It ends
    with exit code 0 at SIGTERM or Ctrl-C.
    """
    to_stderr(logging.WARNING, "%(asctime)s %(message)s", anew=True, as_json=log_json)
    with ending_with_0():
        demand_topics(edge.log, edge.settings.partitions)
        if until_eof:
            threading.Thread(target=_end_at_eof, daemon=True).start()
        directory = state_dir or edge.settings.home / "gateway"
        return serve(edge.connected(), host, port, origins, directory, per_address)


def _end_at_eof() -> None:
    """Whoever started this gateway has ended, cleanly or not: so does it."""
    while os.read(0, 1024):  # not sys.stdin: its lock would be held when the process ends
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def arguments_beside(flags: Sequence[str], origins: Sequence[str]) -> list[str]:
    """What the gateway of `dev` is started with: the installation's flags, and its own."""
    allowed = [part for origin in origins for part in ("--cors-origin", origin)]
    return [*flags, "gateway", "--until-eof", *allowed]


@contextmanager
def beside(edge: Edge, origins: Sequence[str] = ()) -> Iterator[None]:
    """A gateway process of the same installation, as long as this lasts and this process lives."""
    arguments = arguments_beside(edge.flags, origins)
    with kept_running([sys.executable, "-m", "foldlog.cli", *arguments]):
        yield


@contextmanager
def kept_running(
    command: Sequence[str], say: Callable[[str], None] = note, pause_s: float = PAUSE_S
) -> Iterator[None]:
    """A process that is started again when it ends; it is asked to end by the end of its stdin."""
    over = threading.Event()
    first = _child(command)
    keeper = threading.Thread(target=_keep, args=(first, command, over, say, pause_s), daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()


def _child(command: Sequence[str]) -> "subprocess.Popen[Any]":
    # Ctrl-C is for us; it ends with our end of its stdin.
    return start_process(command, stdin=subprocess.PIPE, start_new_session=True)


def _keep(
    child: "subprocess.Popen[Any]",
    command: Sequence[str],
    over: threading.Event,
    say: Callable[[str], None],
    pause_s: float,
) -> None:
    pause = pause_s
    while True:
        began = time.monotonic()
        while child.poll() is None and not over.wait(LOOK_S):
            pass
        if over.is_set():
            return _end(child)
        _end(child)
        code = child.returncode
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}, its reason is above"
        pause = pause_s if time.monotonic() - began > LIVED_S else pause
        say(f"the gateway ended {how}; it is started again in {pause:g} s")
        if over.wait(pause):
            return None
        pause = min(2 * pause, PAUSE_MAX_S)
        child = _child(command)


def _end(child: "subprocess.Popen[Any]") -> None:
    """Close its stdin, wait for its end, and insist."""
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
    """Serve until SIGTERM or Ctrl-C. Raises SettingsError where nobody would be asked who they are,
    or the address is taken."""
    from ..consumers.client import Client
    from ..consumers.gateway.access import Access, is_loopback
    from ..consumers.gateway.app import Gateway, make_app
    from ..consumers.gateway.serve import limits_here, server

    secret = settings.gateway_secret
    if secret is None and not is_loopback(host):
        raise SettingsError(
            f"--host {host}: others could reach this gateway, and nobody would be asked who they "
            "are. Set FOLDLOG_GATEWAY_SECRET (32 random characters or more), or leave it on "
            "127.0.0.1."
        )
    with (
        _sole(directory),  # first: who starts it twice by mistake is told so, not of a port
        _listening(host, port) as listening,
        Client(settings, channel="gateway") as client,
    ):
        access = Access(settings.user, secret, origins)
        gateway = Gateway(client, access, directory, note)
        limits = limits_here(per_address)  # now that the stores are open
        gateway.hub.bound(limits.connections)
        line(f"the gateway serves http://{host}:{listening.getsockname()[1]}/")
        if secret is None:
            note(f"development mode: loopback only, whoever asks is {settings.user}, and sees "
                 "every session")
        serving = server(make_app(gateway), limits, gateway.hub.close)
        gateway.tail.ended = lambda: setattr(serving, "should_exit", True)
        serving.run(sockets=[listening])
        return 1 if gateway.tail.over else 0


@contextmanager
def _sole(directory: Path) -> Iterator[None]:
    """No other gateway keeps its cache there. Raises SettingsError."""
    from ..processors.store.state_dir import StateDir, StateDirTaken

    try:
        held = StateDir(directory)
    except StateDirTaken:
        raise SettingsError(
            f"another gateway keeps its cache in {directory}. Nothing was changed: stop that one, "
            "or give this one a directory of its own with --state-dir."
        ) from None
    try:
        yield
    finally:
        held.close()


def _listening(host: str, port: int | None) -> socket.socket:
    """A listening socket; where no port was asked for and ours is taken, on a free one."""
    from ..consumers.gateway.serve import bound

    try:
        return bound(host, PORT if port is None else port)
    except OSError as error:
        if port is None and error.errno == errno.EADDRINUSE:
            note(f"port {PORT} is taken, by another gateway perhaps: a free one is used")
            return bound(host, 0)
        raise SettingsError(
            f"{host}:{port} can't be listened on: {error.strerror}. Does another gateway run? "
            "Choose another with --port."
        ) from error


@click.command("token", epilog=example("foldlog token --user ana", "foldlog token --life 3600"))
@click.option("--user", metavar="USER", callback=somebody,
              help="Whom it names (default: the login name).")
@click.option("--life", "life_s", default=LIFE_S, show_default=True, metavar="SECONDS",
              type=click.IntRange(1, 3_600), help="How long it is good for.")
@pass_edge
def token_command(edge: Edge, user: str | None, life_s: int) -> int:
    """Print a token for the gateway.

    It is signed with FOLDLOG_GATEWAY_SECRET: the gateway needs the same.
    """
    from ..consumers.gateway.access import token_for
    from ..producers.checks import an_id

    secret = edge.settings.gateway_secret
    if secret is None:
        raise SettingsError(
            "no FOLDLOG_GATEWAY_SECRET is set: there is nothing to sign with. In development mode "
            "the gateway needs no token."
        )
    click.echo(token_for(an_id("user", user or edge.settings.user), secret, life_s))
    return 0
