"""worker, users, dev, demo: the long-running processes.

This file turns a worker's command line into its settings and agents. The worker itself is
`processors/worker`; the local broker and the scripted model are in `local`.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

import click

from ...client.installation import model_of
from ...log import Settings, environment
from ...log.made import apply_topics, demand_topics
from ...schemas.enums import Role
from ..agents import load_agents
from ..edge import Edge, example, pass_edge
from ..terminal.log_lines import to_stderr
from ..terminal.printing import line, note
from ..terminal.progress import Clock
from ..terminal.signals import interrupting
from ..worker_info import is_ready
from . import gateway
from .fleet import child_fleet
from .kafka import start_broker

ROLES = tuple(Role)
READY_S = 60.0
"""How long `dev` waits for its worker until it prints the next command, in seconds."""
POLL_S = 0.1
agent_option = click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="FILE[:NAME]",
    help="The agent of a Python file, or of a module that can be imported from this directory; "
    "NAME chooses one of several. Repeatable (default: the built-in agent, which works on this "
    "directory).",
)


def parse_roles(text: str) -> tuple[str, ...]:
    """Parse comma-separated roles, and return them in their usual order.

    Raises click.UsageError.
    """
    wanted = {part.strip() for part in text.split(",") if part.strip()}
    unknown = sorted(wanted - set(ROLES))
    unknown_names = ", ".join(unknown)
    if unknown or not wanted:
        raise click.UsageError(
            f"--roles: {f'unknown {unknown_names}' if unknown else 'none given'}; "
            f"the roles are {', '.join(ROLES)}."
        )
    return tuple(role for role in ROLES if role in wanted)


def forget_secrets(settings: Settings) -> None:
    """Remove foldlog's secrets from the environment, so that processes started by tools do not get
    them.
    """
    environment.forget(settings.secret_variables, kept=settings.tool_env)


def run_wake(edge: Edge, session: str, names: Sequence[str]) -> None:
    """Do one session's pending work in this process, until it is idle or waits. Raises
    StateDirTaken if a worker uses the state directory.
    """
    from ...processors.worker.wake_once import wake_session

    loaded = load_agents(names)
    forget_secrets(edge.settings)
    with start_lock(edge), model_of(edge.connected(), ROLES, note) as settings, Clock("working"):
        wake_session(settings, loaded, session)


@click.command("worker", epilog=example(
    "foldlog worker --agent my_app:agent --supervise", "foldlog worker --roles sessions,tools"
))
@click.option("--roles", default=",".join(ROLES), show_default=True, metavar="ROLES",
              help="The kinds of work it does, separated by commas.")
@agent_option
@click.option("--supervise", is_flag=True, help="Replace the worker at once when it dies.")
@click.option("--worker-id", metavar="ID", help="Its name (default: kept in its state directory).")
@click.option("--watch", is_flag=True,
              help="Report token budget mistakes as they happen, as `dev` does.")
@click.option("--rolling-update", is_flag=True,
              help="Start even if live workers serve other agents; replace those one by one.")
@click.option("--web", default="127.0.0.1:0", show_default=True, metavar="ADDRESS:PORT",
              help="The address that serves /status, /metrics, /healthz, /readyz; port 0 picks a "
              "free one. An address that other machines can reach needs FOLDLOG_WEB_TOKEN.")
@click.option("--log-json", is_flag=True, help="Print log lines as JSON, one object per line.")
@click.option("--control-fd", type=int, hidden=True, help="Set by the supervisor.")
@pass_edge
def worker_command(
    edge: Edge,
    roles: str,
    agents: tuple[str, ...],
    supervise: bool,
    worker_id: str | None,
    watch: bool,
    rolling_update: bool,
    web: str,
    log_json: bool,
    control_fd: int | None,
) -> int:
    """Run a worker.

    It folds its share of the partitions, does the sessions' pending work (answers, tools,
    summaries), and ends at SIGTERM or Ctrl-C. All workers of an installation must load the same
    agents; a worker with others is refused. Its state directory (FOLDLOG_STATE_DIR) is locked for
    it alone.
    """
    wanted = parse_roles(roles)
    to_stderr(logging.WARNING, "%(asctime)s %(message)s", force=True, as_json=log_json)
    if "delivery" in wanted:
        edge.settings.demand_channels()
    if supervise:
        more = ["--web", web, *(["--log-json"] if log_json else [])]
        more += ["--rolling-update"] if rolling_update else []
        return run_supervised(edge, wanted, agents, worker_id, watch=watch, more=more)
    if control_fd is not None:
        from ...processors.worker.supervise import await_go

        await_go(control_fd, lambda: load_agents(agents))
    logging.getLogger("foldlog.worker").setLevel(logging.INFO)
    from ...processors.worker import host

    address, loaded = gateway.parse_address(web), load_agents(agents)
    forget_secrets(edge.settings)
    # With a control_fd the supervisor has the lock.
    lock = start_lock(edge, worker_id) if control_fd is None else nullcontext()
    with lock, model_of(edge.connected(), wanted, note) as settings:
        return host.run(
            settings,
            loaded,
            wanted,
            worker_id,
            watch=watch,
            rolling=rolling_update,
            web=address,
        )


def start_lock(
    edge: Edge, worker_id: str | None = None, *, supervises: bool = False
) -> AbstractContextManager[None]:
    """The lock on the state directory, for a `with` block.

    If a supervisor was killed, its worker may still run; the lock is then taken after this worker
    has ended. Raises StateDirTaken.
    """
    from ...processors.worker.start_lock import exclusive_start

    return exclusive_start(edge.settings.state_dir, worker_id, note, supervises=supervises)


def run_supervised(
    edge: Edge,
    roles: Sequence[str],
    agents: Sequence[str],
    worker_id: str | None,
    *,
    watch: bool = False,
    more: Sequence[str] = (),
    reload: threading.Event | None = None,
    unreachable: Callable[[], None] = lambda: None,
    ending: Callable[[], None] = lambda: None,
) -> int:
    """Run a worker until SIGTERM or Ctrl-C, and replace it at once when it dies.

    reload: an event. When it is set, the worker is replaced by a worker that imports the agents
        again.
    unreachable: called when a worker could not reach the log.
    ending: called when the end begins.
    """
    from ...processors.worker import supervise

    # Report missing topics once, instead of in every worker that is started.
    demand_topics(edge.log, edge.settings.partitions, edge.elsewhere.replication)
    edge.close()
    command = [sys.executable, "-m", "foldlog.cli", *edge.flags, "worker"]
    command += ["--roles", ",".join(roles)]
    command += [part for name in agents for part in ("--agent", name)]
    command += ["--worker-id", worker_id] if worker_id else []
    command += [*(["--watch"] if watch else []), *more]
    lock = start_lock(edge, worker_id, supervises=True)
    with lock, model_of(edge.settings, roles, note) as settings:
        if settings.base_url != edge.settings.base_url:
            # Workers read these from the environment, as if a person had set them.
            os.environ["ANTHROPIC_BASE_URL"] = settings.base_url or ""
            os.environ["ANTHROPIC_API_KEY"] = settings.api_key or ""
        return supervise.run(command, note, reload, unreachable, ending)


@click.command("dev", epilog=example(
    "foldlog dev", "foldlog dev shop.py", "foldlog dev --agent my_app:agent",
    "foldlog dev --port 9000 --cors-origin http://localhost:5173",
))
@click.argument("files", nargs=-1, metavar="[FILE]...")
@agent_option
@gateway.port_option
@gateway.origin_option
@pass_edge
def dev_command(
    edge: Edge,
    files: tuple[str, ...],
    agents: tuple[str, ...],
    port: int | None,
    origins: tuple[str, ...],
) -> int:
    """Start everything: Kafka, topics, a supervised worker, the gateway.

    FILE is the Python file of an agent, as with --agent. Without ANTHROPIC_API_KEY and
    ANTHROPIC_BASE_URL a scripted model answers: it calls the tool that a message names, with its
    numbers and its texts in quotes (charge 1900, temperature "Paris"). When the file of an agent
    changes, or a module that it imports from its directory, the worker is replaced by one that
    loads the new version; sessions continue, and running tools are waited for. A version that
    cannot be loaded is reported with its traceback, and the worker
    stays. The tracebacks of failing tools, failed turns and the worker's token budget mistakes are
    printed as they happen. Ctrl-C ends it; Kafka runs on until `foldlog down`.
    """
    try:
        with interrupting():
            return _dev(edge, (*files, *agents), port, origins)
    except KeyboardInterrupt:  # at its start, or a second Ctrl-C at its end
        return 0


def _dev(edge: Edge, agents: tuple[str, ...], port: int | None, origins: tuple[str, ...]) -> int:
    from ...client.commands import DEFAULT_AGENT
    from ...processors.store.state_dir import StateDirTaken
    from .reload import Reloader, load

    edge.demand("gateway", *(() if edge.settings.bootstrap_servers else ("local",)))
    first = load(agents) if agents else None
    if first is not None and first.error:
        if first.trace:
            note(first.trace)
        raise click.UsageError(first.error)
    names = first.names if first is not None else (DEFAULT_AGENT,)
    edge.settings.demand_channels()
    gateway.demand_free(port)
    try:
        with start_lock(edge):
            pass  # refuse before anything is started
    except StateDirTaken as error:
        raise StateDirTaken(
            f"{error} To start a second installation, with a Kafka of its own, run `foldlog --home "
            "DIR dev --port 8378`."
        ) from None
    servers = start_broker(edge)
    report = apply_topics(edge.log, edge.settings.partitions, edge.elsewhere.replication)
    report.demand()
    created = f", topics created: {len(report.created)}" if report.created else ""
    line(f"Kafka answers on {servers}{created}")
    if edge.settings.api_key or edge.settings.base_url:
        from ...processors.effects.models.client import host_of

        line(f"the model answers at {host_of(edge.settings.base_url)}")
    which = "" if DEFAULT_AGENT in names else f" --agent {names[0]}"

    def announce() -> None:
        line(f"Next, in another terminal: foldlog chat{which}")
        line("Inspect it with: foldlog sessions, foldlog tail --follow, foldlog doctor")

    with ExitStack() as stack:
        end_gateway = stack.enter_context(gateway.child_gateway(edge, origins, port))
        end_fleet = stack.enter_context(child_fleet(edge))

        def end_both() -> None:
            end_gateway()
            end_fleet()

        reload = None
        if first is not None:
            reloader = Reloader(agents, first, edge.settings.state_dir, note)
            reload = stack.enter_context(reloader.watching())
        stack.enter_context(when_ready(edge.settings.state_dir, announce))
        code = run_supervised(
            edge, ROLES, agents, None,
            watch=True, reload=reload, unreachable=partial(restart_broker, edge),
            ending=end_both,
        )
    if edge.settings.bootstrap_servers is None and code == 0:
        line("the worker has ended; Kafka runs on until `foldlog down`")
    return code


@contextmanager
def when_ready(state_dir: Path, announce: Callable[[], None]) -> Iterator[None]:
    """During a block, call `announce` in a thread once the worker of a directory is ready. If it is
    not ready after READY_S, print this first."""
    ended = threading.Event()

    def watch() -> None:
        until = time.monotonic() + READY_S
        while not is_ready(state_dir):
            if time.monotonic() > until:
                note(
                    f"the worker is not ready after {READY_S:g} s; the reason is above, or see "
                    "`foldlog doctor`. Messages are kept, and answered when it is ready"
                )
                break
            if ended.wait(POLL_S):
                return
        announce()

    watcher = threading.Thread(target=watch, name="ready", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def restart_broker(edge: Edge) -> None:
    """Start the local Kafka again if it died, as it does on a full disk. A broker that `foldlog
    down` stopped stays stopped."""
    from ...local.kafka import BrokerError, Condition

    if edge.settings.bootstrap_servers is not None:
        return
    broker = edge.local_broker()
    with suppress(BrokerError):  # there is still no space: tried again with the next worker
        if broker.status().condition is Condition.GONE:
            broker.up(note)


@click.command("demo", epilog=example("foldlog demo", "foldlog demo ~/my-project"))
@click.argument(
    "directory",
    required=False,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@pass_edge
def demo_command(edge: Edge, directory: Path | None) -> int:
    """Watch an agent survive being killed, on a real broker.

    The agent works on DIRECTORY (default: this one), in a temporary installation that is deleted
    afterwards. Its worker is killed twice; at the end every view is refolded and compared.
    """
    edge.demand("local")
    from ..edge import local_errors
    from . import demo

    with local_errors():
        return demo.main(edge.settings, (directory or Path.cwd()).absolute(), click.echo)
