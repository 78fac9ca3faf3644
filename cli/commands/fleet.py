"""`foldlog fleet`: a member of the fleet, and the fleet that `dev` starts."""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from ...log.extras import command, is_installed
from ...log.made import demand_topics
from ..edge import Edge, example, pass_edge
from ..terminal.log_lines import to_stderr
from ..terminal.printing import note
from .gateway import end_at_eof, parse_address, restarting


@click.command("fleet", epilog=example(
    "foldlog fleet --web 127.0.0.1:9465",
    "FOLDLOG_FLEET_DIR=/var/lib/fleet2 foldlog fleet --web 127.0.0.1:9466",
))
@click.option("--web", default="127.0.0.1:0", show_default=True, metavar="ADDRESS:PORT",
              help="The address that serves /fleet, /status, /metrics, /healthz, /readyz; port 0 "
              "picks a free one. An address that other machines can reach needs FOLDLOG_WEB_TOKEN.")
@click.option("--member-id", metavar="ID", help="Its name (default: kept in its directory).")
@click.option("--until-eof", is_flag=True, hidden=True, help="Exit at the end of stdin.")
@click.option("--crash", default="", hidden=True, metavar="NAME:N", help="For tests.")
@pass_edge
def fleet_command(
    edge: Edge, web: str, member_id: str | None, until_eof: bool, crash: str
) -> int:
    """Answer questions about all sessions over HTTP.

    Lists of sessions, what waits for people, turns and cost by hour: tables that a Faust
    application keeps from the facts that workers write. Several members share the work, each with
    its own directory (FOLDLOG_FLEET_DIR), and each answers for all. No worker and no gateway needs
    it. SIGTERM or Ctrl-C ends it with exit code 0.
    """
    edge.demand("fleet")
    to_stderr(logging.WARNING, "%(asctime)s %(message)s", force=True)
    if until_eof:
        threading.Thread(target=end_at_eof, daemon=True).start()
    address = parse_address(web)
    from ...fleet.serve import serve

    demand_topics(edge.log, edge.settings.partitions, edge.elsewhere.replication)
    settings = edge.connected()
    return serve(settings, edge.log, address, member_id, note, crash=crash, quiet=until_eof)


AFTER_S = 10.0
"""When `dev` starts the fleet, whose start takes seconds of CPU: worker and gateway come first."""


@contextmanager
def child_fleet(edge: Edge) -> Iterator[Callable[[], None]]:
    """A member of the fleet of the same installation, which ends with the block or with this
    process. Yields a function that makes it end earlier, and returns at once. Without the extra
    there is none, which one line says; and none if `fleet_url` names another one.
    """
    if edge.settings.fleet_url is not None:
        yield lambda: None
        return
    if not is_installed("fleet"):
        note(f"no fleet is started, it is not installed here: {command('fleet')}")
        yield lambda: None
        return
    member = [sys.executable, "-m", "foldlog.cli", *edge.flags, "fleet", "--until-eof"]
    with restarting(member, what="the fleet", after_s=AFTER_S) as end:
        yield end
