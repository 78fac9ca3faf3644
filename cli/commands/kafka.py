"""up, down, status, topics: manage the local Kafka and the topics, and show what runs.

`local/kafka` starts and stops the broker.
"""

from typing import TYPE_CHECKING, Any

import click

from ...log.door import TopicReport
from ...log.errors import FoldlogError, SettingsError
from ...log.made import apply_topics, facts_of
from ...log.topic_commands import MORE_BROKERS, commands, reassignment
from ...schemas.topics import REPLICATION_FACTOR, TopicSpec, topics as topic_specs
from ..edge import Edge, example, json_option, local_errors, pass_edge
from ..terminal.printing import emit, line, note
from ..worker_info import worker_info

if TYPE_CHECKING:
    from ...local.kafka import BrokerStatus, ClusterStatus


def start_broker(edge: Edge, brokers: int | None = None) -> str:
    """The address of the configured broker, or of the local broker, which is started if it is down.
    brokers: how many local brokers there shall be.

    Raises LogUnreachable, whose message states what to do.
    """
    if edge.settings.bootstrap_servers is not None:
        return edge.settings.bootstrap_servers
    with local_errors():
        return edge.local_broker(brokers).up(note).bootstrap_servers


@click.command("up", epilog=example("foldlog up", "foldlog --home three up --brokers 3"))
@click.option("--brokers", type=click.Choice(("1", "3")),
              help="How many brokers (default: 1, or as many as were started before). With three, "
              "each record is kept by three and acknowledged by two.")
@click.option("--prepare", is_flag=True,
              help="Only download and prepare Kafka, so that later starts are fast.")
@json_option
@pass_edge
def up_command(edge: Edge, brokers: str | None, prepare: bool, as_json: bool) -> None:
    """Start the local Kafka.

    Starts a real Kafka on loopback, which keeps running after this command. The first start
    downloads its jars. A broker that runs already is reused; data is kept between runs. With
    --brokers 3, three brokers replicate the log. Kill one to see what happens; this command starts
    it again. They need 0.5 GB of memory.
    """
    if prepare or edge.settings.bootstrap_servers is None:
        edge.demand("local")
    if prepare:
        from ...local.kafka import prepare as prepare_local

        with local_errors():
            prepare_local(edge.settings.cache_dir, note)
        return
    configured = edge.settings.bootstrap_servers
    if configured is not None:
        note(f"an external broker is configured: {configured}. Nothing was started.")
    servers = start_broker(edge, int(brokers) if brokers else None)
    if as_json:
        emit({"bootstrap_servers": servers, "local": configured is None})
    elif configured is None:
        line(f"Kafka answers on {servers}. Next: {what_is_next(edge)}")


def _specs(edge: Edge) -> tuple[TopicSpec, ...]:
    """The definitions of this installation's topics."""
    return topic_specs(edge.settings.partitions, edge.elsewhere.replication)


def what_is_next(edge: Edge) -> str:
    """The command to run after `up`, which depends on whether topics and a worker exist."""
    if edge.log.check_topics(_specs(edge)).missing:
        return "foldlog topics apply"
    has_worker = worker_info(edge.settings.state_dir).pid is not None
    return "foldlog chat" if has_worker else "foldlog worker (the topics exist)"


@click.command("down", epilog=example("foldlog down"))
@json_option
@pass_edge
def down_command(edge: Edge, as_json: bool) -> None:
    """Stop the local Kafka; its data is kept.

    Running sessions wait until it is back; nothing is lost.
    """
    with local_errors():
        was_running = edge.local_broker().down()
    if as_json:
        emit({"stopped": was_running})
    else:
        line("Kafka is stopped; its data is kept" if was_running else "no local Kafka was running")


@click.command("status", epilog=example("foldlog status"))
@json_option
@pass_edge
def status_command(edge: Edge, as_json: bool) -> int | None:
    """Show what runs: Kafka, topics, worker.

    Exit code 3 if the log is unreachable, 2 if a setting is wrong. `foldlog doctor` checks more.
    """
    found: dict[str, Any] = {"kafka": _kafka(edge), "log": "", "topics": {}, "worker": {}}
    code = None
    try:
        edge.log.identity()
        found["log"] = "reachable"
        report = edge.log.check_topics(_specs(edge))
        moved_to = None if report.missing else facts_of(edge.log).moved_to
        found["topics"] = {**report_json(report), "moved_to": moved_to}
    except FoldlogError as error:
        found["log"], code = str(error), 2 if isinstance(error, SettingsError) else 3
    worker = worker_info(edge.settings.state_dir)
    found["worker"] = {"pid": worker.pid, "status": worker.status}
    if as_json:
        emit(found)
    else:
        _print_status(found)
    return code


def _kafka(edge: Edge) -> dict[str, Any]:
    if edge.settings.bootstrap_servers is not None:
        return {"where": "configured", "bootstrap_servers": edge.settings.bootstrap_servers}
    with local_errors():
        status = edge.local_broker().status()
    return {**_condition(status), "where": "local", "brokers": [
        {"broker": number, **_condition(each)}
        for number, each in enumerate(getattr(status, "brokers", (status,)), 1)
    ]}


def _condition(status: "BrokerStatus | ClusterStatus") -> dict[str, Any]:
    return {
        "condition": str(status.condition),
        "bootstrap_servers": status.state.bootstrap_servers if status.state else None,
        "pid": status.pid,
    }


def _print_status(found: dict[str, Any]) -> None:
    kafka, worker = found["kafka"], found["worker"]
    if kafka["where"] == "local":
        place = f" on {kafka['bootstrap_servers']}" if kafka["bootstrap_servers"] else ""
        line(f"kafka:  local, {kafka['condition']}{place}")
        for each in kafka["brokers"] if len(kafka["brokers"]) > 1 else ():
            process = f", process {each['pid']}" if each["pid"] else ""
            line(f"  broker {each['broker']}: {each['condition']}{process}")
    else:
        line(f"kafka:  {kafka['bootstrap_servers']} (configured)")
    line(f"log:    {found['log']}")
    if found["topics"]:
        problems = [*(f"{name} is missing" for name in found["topics"]["missing"]),
                    *found["topics"]["differs"]]
        if (prefix := found["topics"]["moved_to"]) is not None:
            problems.append(f"their sessions were moved to the topics beginning with {prefix!r}")
        line(f"topics: {'; '.join(problems) or 'ok'}")
    if worker["status"]:
        status = worker["status"]
        line(f"worker: {status.get('owner')} (process {worker['pid']}), partitions "
             f"{', '.join(status.get('partitions', {})) or 'none'}")
    else:
        running = f"process {worker['pid']} does not answer" if worker["pid"] else "none runs here"
        line(f"worker: {running}")


@click.group("topics")
def topics_command() -> None:
    """Create the topics, or report how they differ."""


def report_json(report: TopicReport) -> dict[str, Any]:
    """A topic report for `--json`."""
    return {
        "created": list(report.created),
        "same": list(report.same),
        "missing": list(report.missing),
        "differs": [str(found) for found in report.differs],
    }


@topics_command.command("apply", epilog=example("foldlog topics apply"))
@click.option("--dry-run", is_flag=True,
              help="Only report what would be created, and what differs.")
@json_option
@pass_edge
def topics_apply(edge: Edge, dry_run: bool, as_json: bool) -> int | None:
    """Create the missing topics, report how the others differ.

    Existing topics are never changed: the number of partitions is final, because a session must
    stay in its partition. For properties and replicas that differ, it prints Kafka's own commands.
    Exit code 1 if something differs.
    """
    log, replication = edge.log, edge.elsewhere.replication
    partitions = edge.settings.partitions
    if dry_run:
        report = log.check_topics(topic_specs(partitions, replication))
    else:
        report = apply_topics(log, partitions, replication)
    corrections = commands(report, edge.elsewhere.bootstrap_servers or "HOST:9092")
    if as_json:
        emit({**report_json(report), "commands": corrections})
    else:
        _print_report(report)
        _print_corrections(report, corrections)
    return 1 if report.differs else None


@topics_command.command("reassignment", epilog=example(
    "foldlog topics reassignment > reassignment.json"
))
@pass_edge
def topics_reassignment(edge: Edge) -> int | None:
    """Print where missing replicas can be, for kafka-reassign-partitions.sh.

    The plan keeps all present replicas and adds brokers until every partition has the replicas of
    its definition (`replication_factor`). Kafka copies the records while sessions continue. Exit
    code 1, and no output, if no partition needs a replica or the cluster has too few brokers.
    """
    report = edge.log.check_topics(_specs(edge))
    if report.reassignment:
        line(reassignment(report))
        return None
    short = any(found.what == REPLICATION_FACTOR for found in report.differs)
    note(MORE_BROKERS if short else "every partition has its replicas: nothing to reassign")
    return 1


def _print_report(report: TopicReport) -> None:
    for name in report.created:
        line(f"{name}: created")
    for name in report.missing:
        line(f"{name}: missing")
    for name in report.same:
        line(f"{name}: ok")
    for found in report.differs:
        line(f"{found}{' (no worker can start with this)' if found.fatal else ''}")


def _print_corrections(report: TopicReport, corrections: list[str]) -> None:
    if corrections:
        line("To correct this, with Kafka's own tools:")
    for command in corrections:
        line(f"  {command}")
    if any(found.what == REPLICATION_FACTOR for found in report.differs) and not (
        report.reassignment
    ):
        line(f"For the missing replicas: {MORE_BROKERS}")

