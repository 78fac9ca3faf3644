"""doctor: prints the findings of the checks in `upkeep/doctor/`, each with its fix."""

import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import click

from ...log.errors import TopicMissing
from ...log.made import facts_of, partitions_of
from ...processors.store.clocks import Reading
from ...processors.worker.same_agents import GROUP
from ...schemas import codec
from ...schemas.memory_paths import USER, scope_of
from ...upkeep.doctor import (
    agents as check_agents,
    blobs as check_blobs,
    budget as check_budget,
    channels as check_channels,
    checks,
    memory as check_memory,
    snapshots as check_snapshots,
    usage as check_usage,
)
from ...upkeep.doctor.findings import Code, Finding, Severity, found
from ..edge import Edge, example, json_option, pass_edge
from ..terminal.printing import emit, line
from ..worker_info import WorkerInfo, worker_info

MARKS = {Severity.OK: "ok      ", Severity.NOTE: "note    ", Severity.PROBLEM: "PROBLEM "}


@click.command("doctor", epilog=example("foldlog doctor"))
@json_option
@pass_edge
def doctor_command(edge: Edge, as_json: bool) -> int | None:
    """Check the installation and suggest fixes.

    Checks the broker, its topics, the blob store, the decoder; partitions, stores and
    snapshots; the worker, its agents and MCP servers; sessions that are frozen, wait for a person,
    are out of context room, or have pending work that no worker does; background work, push
    channels and dead letters; unusable instruction files, a core.md that is too long for the
    prompt, and token budget mistakes. Also prints how often each tool is used and which tier suits
    it. Exit code 1 if there is a problem, 3 if the log is unreachable.
    """
    problems = 0
    for finding in _findings(edge, whole=as_json):
        problems += finding.level is Severity.PROBLEM
        if as_json:
            emit(_as_json(finding))
        else:
            line(f"{MARKS[finding.level]}{finding.check}: {finding.text}")
            if finding.do:
                line(f"           -> {finding.do}")
    if not as_json:
        line(f"{problems} problem{'s' * (problems > 1)}" if problems else "no problem found")
    return 1 if problems else None


def _as_json(finding: Finding) -> dict[str, str]:
    """`check`, `text` and `do` are for people, the other fields for programs. `mistake` and
    `advice`, which only some findings have, are codes."""
    values = finding.values.items()
    codes = {name: each.code for name, each in values if name in ("mistake", "advice")}
    return {
        "level": finding.level, "check": finding.check, "code": finding.code, **codes,
        "text": finding.text, "do": finding.do,
    }


def _findings(edge: Edge, whole: bool) -> Iterator[Finding]:
    """All findings in order.

    whole: whether to yield a finding for every item. Otherwise some checks yield only the first few
    items and the number of the others.
    """
    log, settings = edge.log, edge.settings
    yield found(Code.BROKER_REACHABLE, cluster=log.identity())
    yield from check_blobs.blob_store(settings)
    yield found(Code.DECODER, is_compiled=codec.uses_compiled())
    try:
        yield from checks.topics_as_wanted(log, edge.elsewhere)
        if facts_of(log).moved_to is not None:
            return  # reported above: a moved log must not be written to
        everything = edge.client().everything()
    except TopicMissing:
        return  # reported above; the other checks need the topic
    worker = worker_info(settings.state_dir)
    yield from _worker(worker)
    yield from checks.partitions_held(everything, partitions_of(log))
    yield from checks.stores(log, settings)
    yield from check_snapshots.snapshots_made(log, settings)
    yield checks.sessions_counted(everything)
    yield from checks.frozen_sessions(everything, partitions_of(log))
    agents = None if worker.status is None else frozenset(worker.status.get("agents", ()))
    yield from check_agents.agents_missing(everything, agents)
    yield from check_agents.workers_agree(everything, (m.instance_id for m in log.members(GROUP)))
    if worker.status is not None:
        status = worker.status
        yield from checks.mcp_servers(status.get("mcp_states", {}), status.get("mcp", {}))
    yield from checks.people_wanted(everything)
    yield from checks.refused_to_tools(everything)
    yield from checks.out_of_room(everything)
    yield from checks.background_failures(everything, None if whole else checks.SHOWN_MAX)
    yield from check_channels.channels(everything, settings.channels, settings.channels_wrong)
    now = max(time.time_ns() // 1_000_000, everything.newest_ms)
    yield from checks.owed_and_idle(everything, now)
    yield from checks.dead_letters(log, everything)
    yield from check_budget.instruction_files(settings, Path.cwd())
    yield from check_memory.vectors(settings.state_dir, settings.embedder)
    yield from check_memory.core_in_prompts(log, scope_of(USER, settings.user))
    read, most = edge.client().read_blob, None if whole else check_budget.SHOWN_MAX
    yield from check_budget.budget_mistakes(everything, read, date.today(), most)
    yield from check_usage.usage(everything, read, whole=whole)
    yield from check_usage.placement(everything, read)


def _worker(worker: WorkerInfo) -> Iterator[Finding]:
    if worker.status is None and worker.pid is None:
        yield found(Code.WORKER_NONE)
    elif worker.status is None:
        yield found(Code.WORKER_SILENT, pid=worker.pid)
    else:
        status = worker.status
        roles = ", ".join(status.get("roles", ()))
        yield found(
            Code.WORKER_RUNS, owner=status.get("owner"), pid=worker.pid, roles=roles
        )
        skew = Reading(0, status.get("clock_skew_ms", 0))
        if skew.is_off:
            yield found(Code.CLOCK_OFF, skew_ms=skew.skew_ms)
        for number, held in status.get("partitions", {}).items():
            for session_id, why in held.get("stuck", {}).items():
                yield found(
                    Code.SESSION_SET_ASIDE, session=session_id, partition=number, why=why
                )
