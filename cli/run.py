"""worker, dev, demo: what runs until it is told to end.

Thin: the worker is `processors/worker`, the broker and the scripted model are `local`. This file
owns how a worker's command line becomes its settings and agents.
"""

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..log import Settings, environment
from ..log.made import apply_topics, demand_topics
from ..schemas.topics import USER_SESSIONS
from . import gateway
from .edge import Edge, example, pass_edge
from .log_lines import to_stderr
from .machine import start_broker
from .printing import line, note
from .terminal import ending_with_0

if TYPE_CHECKING:
    from ..processors.agent import Agent

ROLES = ("sessions", "models", "tools", "background", "delivery")
SCRIPTED_KEY = "scripted"
"""What the scripted server is sent as an API key; it takes any."""

agent_option = click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="MODULE:ATTR",
    help="An Agent or a list of them in a module that can be imported from this directory; may be "
    "given several times (default: the built-in agent, which works on this directory).",
)


def load_agents(names: Sequence[str]) -> list["Agent"]:
    """The agents of these names; the built-in one on the working directory for none.

    Raises click.UsageError that says what is wrong with which.
    """
    from ..processors.agent import Agent

    if not names:
        from ..processors.tools.builtin import default_agent

        return [default_agent(Path.cwd())]
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` has it: agents lie where one works
    agents: list[Agent] = []
    for name in names:
        found = _load(name)
        several: Sequence[Any] = found if isinstance(found, list | tuple) else [found]
        if not several or not all(isinstance(agent, Agent) for agent in several):
            what = f"it is a {type(found).__name__}, not an Agent or a list of them"
            raise click.UsageError(f"--agent {name}: {what}.")
        agents.extend(several)
    twice = {a.name for a in agents if sum(b.name == a.name for b in agents) > 1}
    if twice:
        raise click.UsageError(f"--agent: more than one agent is named {', '.join(sorted(twice))}.")
    return agents


def _load(name: str) -> object:
    module_name, colon, attribute = name.partition(":")
    if not module_name or not colon or not attribute:
        raise click.UsageError(f"--agent {name}: say MODULE:ATTR, as in my_app:agent.")
    if "/" in module_name or module_name.endswith(".py"):
        raise click.UsageError(f"--agent {name}: {_not_a_file(Path(module_name), attribute)}")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}{_place(error)}"
        raise click.UsageError(f"--agent {name}: {module_name} can't be imported: {why}") from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise click.UsageError(f"--agent {name}: {module_name} has no {attribute}.") from None


def _not_a_file(path: Path, attribute: str) -> str:
    """What to say instead of a path: modules are found from the working directory."""
    if path.is_absolute() or ".." in path.parts:
        return f"say a module, not a file: in {path.parent}, --agent {path.stem}:{attribute}"
    return f"say a module, not a file: {'.'.join(path.with_suffix('').parts)}:{attribute}"


def _place(error: BaseException) -> str:
    """The line of the agent's own file that raised, not the one of ours that refused it."""
    ours = str(Path(__file__).parent.parent / "processors")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((ours, "<string>")):  # a dataclass's own __init__
            found = "importlib" not in frame.filename and frame.filename != __file__
            return f" ({frame.filename}, line {frame.lineno})" if found else ""
    return ""


def parse_roles(text: str) -> tuple[str, ...]:
    """Roles separated by commas, in their usual order. Raises click.UsageError."""
    wanted = {part.strip() for part in text.split(",") if part.strip()}
    unknown = sorted(wanted - set(ROLES))
    if unknown or not wanted:
        raise click.UsageError(
            f"--roles: {', '.join(unknown) or 'none'} given; roles are {', '.join(ROLES)}."
        )
    return tuple(role for role in ROLES if role in wanted)


def parse_address(text: str) -> tuple[str, int]:
    """ADDRESS:PORT as both. Raises click.UsageError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise click.UsageError(f"--web {text}: say ADDRESS:PORT, as in 127.0.0.1:9464.")
    return host.strip("[]"), int(port)


@contextmanager
def model_of(settings: Settings, roles: Sequence[str]) -> Iterator[Settings]:
    """The settings with a model that answers: the scripted one where no other is configured."""
    if "models" not in roles or settings.api_key or settings.base_url:
        yield settings
        return
    from ..local.messages_api import spawn

    with spawn("demo", env=environment.for_children()) as server:
        note(f"no ANTHROPIC_API_KEY and no ANTHROPIC_BASE_URL: a scripted model answers, from "
             f"{server.base_url}")
        yield replace(settings, api_key=SCRIPTED_KEY, base_url=server.base_url)


def forget_secrets(settings: Settings) -> None:
    """What tools start in this process by themselves inherits no secret of foldlog."""
    environment.forget(settings.secret_variables, kept=settings.tool_env)


def run_wake(edge: Edge, session: str, names: Sequence[str]) -> None:
    """Discharge what one session owes, in this process. Raises StateDirTaken if a worker runs."""
    from ..processors.worker.wake_once import wake_session

    loaded = load_agents(names)
    forget_secrets(edge.settings)
    with sole(edge), model_of(edge.connected(), ROLES) as settings:
        wake_session(settings, loaded, session)


@click.command("worker", epilog=example(
    "foldlog worker --agent my_app:agent --supervise", "foldlog worker --roles sessions,tools"
))
@click.option("--roles", default=",".join(ROLES), show_default=True, metavar="ROLES",
              help="Which obligations it takes on, separated by commas.")
@agent_option
@click.option("--supervise", is_flag=True, help="Start another one at once when it dies.")
@click.option("--worker-id", metavar="ID", help="Its name (default: kept in its state directory).")
@click.option("--watch", is_flag=True, help="Name what blows a token budget, as `dev` does.")
@click.option("--rolling-update", is_flag=True,
              help="Start although live workers serve other agents, which you replace one by one.")
@click.option("--web", default="127.0.0.1:0", show_default=True, metavar="ADDRESS:PORT",
              help="Where it serves /status, /metrics, /healthz, /readyz; port 0 takes a free one. "
              "An address that other machines reach needs FOLDLOG_WEB_TOKEN.")
@click.option("--log-json", is_flag=True, help="Log lines are JSON, one object each.")
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

    It folds its share of the partitions, does what sessions owe (answers, tools, summaries), and
    ends at SIGTERM or Ctrl-C. All workers of an installation load the same agents; one that would
    not is refused. Its state directory (FOLDLOG_STATE_DIR) belongs to it alone.
    """
    wanted = parse_roles(roles)
    to_stderr(logging.WARNING, "%(asctime)s %(message)s", anew=True, as_json=log_json)
    if "delivery" in wanted:
        edge.settings.demand_channels()
    with ending_with_0():
        if supervise:
            more = ["--web", web, *(["--log-json"] if log_json else [])]
            more += ["--rolling-update"] if rolling_update else []
            return run_supervised(edge, wanted, agents, worker_id, watch=watch, more=more)
        return _work(edge, wanted, agents, worker_id, watch, rolling_update, web, control_fd)


def _work(
    edge: Edge,
    wanted: tuple[str, ...],
    agents: Sequence[str],
    worker_id: str | None,
    watch: bool,
    rolling: bool,
    web: str,
    control_fd: int | None,
) -> int:
    if control_fd is not None:
        from ..processors.worker.supervise import await_go

        await_go(control_fd, lambda: load_agents(agents))
    logging.getLogger("foldlog.worker").setLevel(logging.INFO)
    from ..processors.worker import host

    address, loaded = parse_address(web), load_agents(agents)
    forget_secrets(edge.settings)
    alone = sole(edge, worker_id) if control_fd is None else nullcontext()  # else its supervisor is
    with alone, model_of(edge.connected(), wanted) as settings:
        return host.run(
            settings,
            loaded,
            wanted,
            worker_id,
            watch=watch,
            rolling=rolling,
            web=address,
        )


def sole(
    edge: Edge, worker_id: str | None = None, *, supervises: bool = False
) -> AbstractContextManager[None]:
    """Nobody else works in the state directory; waits for what a killed supervisor left behind.

    Raises StateDirTaken.
    """
    from ..processors.worker.start_lock import sole

    return sole(edge.settings.state_dir, worker_id, note, supervises=supervises)


def run_supervised(
    edge: Edge,
    roles: Sequence[str],
    agents: Sequence[str],
    worker_id: str | None,
    *,
    watch: bool = False,
    more: Sequence[str] = (),
) -> int:
    """A worker that is replaced at once when it dies, until SIGTERM or Ctrl-C."""
    from ..processors.worker import supervise

    # What is wrong now is said once, and not by every worker that is tried.
    demand_topics(edge.log, edge.settings.partitions)
    edge.close()
    command = [sys.executable, "-m", "foldlog.cli", *edge.flags, "worker"]
    command += ["--roles", ",".join(roles)]
    command += [part for name in agents for part in ("--agent", name)]
    command += ["--worker-id", worker_id] if worker_id else []
    command += [*(["--watch"] if watch else []), *more]
    alone = sole(edge, worker_id, supervises=True)
    with alone, model_of(edge.settings, roles) as settings:
        if settings.base_url != edge.settings.base_url:
            # Given to the workers as a person would give it.
            os.environ["ANTHROPIC_BASE_URL"] = settings.base_url or ""
            os.environ["ANTHROPIC_API_KEY"] = settings.api_key or ""
        return supervise.run(command, note)


@click.command("users", epilog=example("foldlog users --web 127.0.0.1:9465"))
@click.option("--web", default="127.0.0.1:0", show_default=True, metavar="ADDRESS:PORT",
              help="Where it serves /users/USER, /healthz, /readyz; port 0 takes a free one. "
              "An address that other machines reach needs FOLDLOG_WEB_TOKEN.")
@pass_edge
def users_command(edge: Edge, web: str) -> int:
    """Serve the open sessions of each user over HTTP.

    /users/USER lists them as JSON, for programs beside the gateway. A process of its own: no worker
    needs it, and any number of them may run.
    """
    to_stderr(logging.WARNING, "%(asctime)s %(message)s", anew=True)
    address = parse_address(web)
    with ending_with_0():
        from ..processors.worker import rendezvous

        demand_topics(edge.log, edge.settings.partitions)
        first = edge.log.first_offsets(USER_SESSIONS)
        ends = edge.log.end_offsets(USER_SESSIONS)
        ends = {place: end for place, end in ends.items() if end > first[place]}
        settings = edge.connected()
        edge.close()
        return rendezvous.run(settings, address, ends, note)


@click.command("dev", epilog=example(
    "foldlog dev", "foldlog dev --agent my_app:agent",
    "foldlog dev --cors-origin http://localhost:5173",
))
@agent_option
@gateway.origin_option
@pass_edge
def dev_command(edge: Edge, agents: tuple[str, ...], origins: tuple[str, ...]) -> int:
    """Start all of it: Kafka, topics, a supervised worker, the gateway.

    Without ANTHROPIC_API_KEY and ANTHROPIC_BASE_URL a scripted model answers. The worker names what
    blows a token budget as it happens. Ctrl-C ends it; Kafka goes on until `foldlog down`.
    """
    from ..consumers.client import DEFAULT_AGENT

    named = [agent.name for agent in load_agents(agents)] if agents else [DEFAULT_AGENT]
    edge.settings.demand_channels()
    with sole(edge):
        pass  # said before anything is started
    servers = start_broker(edge)
    report = apply_topics(edge.log, edge.settings.partitions)
    report.demand()
    made = f", topics made: {len(report.created)}" if report.created else ""
    line(f"Kafka answers on {servers}{made}")
    if edge.settings.api_key or edge.settings.base_url:
        from ..processors.effects.models.client import host_of

        line(f"the model answers at {host_of(edge.settings.base_url)}")
    which = "" if DEFAULT_AGENT in named else f" --agent {named[0]}"
    line(f"Next, in another terminal: foldlog chat{which}")
    line("Look inside with: foldlog sessions, foldlog tail --follow, foldlog doctor")
    with gateway.beside(edge, origins):
        code = run_supervised(edge, ROLES, agents, None, watch=True)
    if edge.settings.bootstrap_servers is None and code == 0:
        line("the worker has ended; Kafka goes on until `foldlog down`")
    return code


@click.command("demo", epilog=example("foldlog demo", "foldlog demo ~/my-project"))
@click.argument(
    "directory",
    required=False,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@pass_edge
def demo_command(edge: Edge, directory: Path | None) -> int:
    """Watch an agent survive being killed, on a real broker.

    It works on DIRECTORY (default: this one), in an installation of its own that is gone
    afterwards. Its worker is killed twice; at the end every view is folded anew and compared.
    """
    from . import demo
    from .edge import local_errors

    with local_errors():
        return demo.main(edge.settings, (directory or Path.cwd()).absolute(), click.echo)
