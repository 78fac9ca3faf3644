"""gateway, token: serving viewers over HTTP, and who may look.

Thin: the gateway is `consumers/gateway`. This file owns how its command line becomes an address and
who is asked who they are.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import click

from ..log import Settings
from ..log.errors import SettingsError
from ..schemas.topics import topics
from .edge import Edge, example, pass_edge
from .log_lines import to_stderr
from .printing import line, note

PORT = 8377
LIFE_S = 900


@click.command("gateway", epilog=example(
    "foldlog gateway", "foldlog gateway --port 9000", "foldlog gateway --host 0.0.0.0"
))
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="The address to listen on; others than loopback need a secret.")
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(0, 65535),
              help="The port; 0 takes a free one.")
@click.option("--cors-origin", "origins", multiple=True, metavar="ORIGIN",
              help="A page that may use it, as in https://app.example; may be given several times.")
@click.option("--state-dir", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Where it keeps its cache of the log (default: below --home).")
@pass_edge
def gateway_command(
    edge: Edge, host: str, port: int, origins: tuple[str, ...], state_dir: Path | None
) -> int:
    """Serve sessions over HTTP: the inspector, streams, and the protocols of chat clients.

    It holds no truth: kill it, start another, and viewers go on where they were. With
    FOLDLOG_GATEWAY_SECRET set, everybody needs a token (`foldlog token`) and sees their own
    sessions; without it, it is in development mode: on loopback only, and for one person.
    """
    to_stderr(logging.WARNING, "%(asctime)s %(message)s", anew=True)
    edge.log.check_topics(topics(edge.settings.partitions)).demand()
    return serve(edge.connected(), host, port, origins, state_dir or edge.settings.home / "gateway")


def serve(
    settings: Settings, host: str, port: int, origins: Sequence[str], directory: Path
) -> int:
    """Serve until SIGTERM or Ctrl-C. Raises SettingsError where nobody would be asked who they are,
    or the address is taken."""
    from ..consumers.client import Client
    from ..consumers.gateway.access import Access, is_loopback
    from ..consumers.gateway.app import Gateway, make_app
    from ..consumers.gateway.serve import bound, server

    secret = settings.gateway_secret
    if secret is None and not is_loopback(host):
        raise SettingsError(
            f"--host {host}: others could reach this gateway, and nobody would be asked who they "
            "are. Set FOLDLOG_GATEWAY_SECRET (32 random characters or more), or leave it on "
            "127.0.0.1."
        )
    try:
        listening = bound(host, port)
    except OSError as error:
        raise SettingsError(
            f"{host}:{port} can't be listened on: {error.strerror}. Does another gateway run? "
            "Choose another with --port."
        ) from error
    with listening, Client(settings, channel="gateway") as client:
        access = Access(settings.user, secret, origins)
        app = make_app(Gateway(client, access, directory, note))
        line(f"the gateway serves http://{host}:{listening.getsockname()[1]}/")
        if secret is None:
            note(f"development mode: loopback only, whoever asks is {settings.user}, and sees "
                 "every session")
        server(app).run(sockets=[listening])
    return 0


@click.command("token", epilog=example("foldlog token --user ana", "foldlog token --life 3600"))
@click.option("--user", metavar="USER", help="Whom it names (default: the login name).")
@click.option("--life", "life_s", default=LIFE_S, show_default=True, metavar="SECONDS",
              type=click.IntRange(1, 3_600), help="How long it is good for.")
@pass_edge
def token_command(edge: Edge, user: str | None, life_s: int) -> int:
    """Print a token for the gateway, signed with FOLDLOG_GATEWAY_SECRET."""
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
