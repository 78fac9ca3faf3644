"""Refuses to start a worker whose agents differ from the agents of the live workers.

A session waits forever in a partition whose worker lacks the session's agent. The live workers are
the members of the installation's consumer groups, each labelled with the digest of its agents, so
the check needs one query to the broker if all digests are equal. Only if they differ, the agents
themselves are read from the PARTITION_TAKEN events in the log.
"""

import time
from collections.abc import Callable, Sequence

from ...log.door import Log, Member
from ...log.errors import SettingsError
from ...schemas.codec import entry_of
from ...schemas.events import PartitionTaken
from ...schemas.events.parts import AgentDigest
from ...schemas.ids import PARTITION_KEY
from ...schemas.topics import SESSION_EVENTS
from ..agent_digest import differences, digest_of_all
from ..fold.projections.partition import ROLES, worker_id

GROUP = "foldlog-"
WAIT_S = 7.0  # a worker that ended or was killed stays a member for a session timeout, 6 s
POLL_S = 0.25
READ_S = 30.0  # limit of reading other workers' agents; without these the message is shorter
ROLLING = "-rolling"


class AgentsDiffer(SettingsError):
    """Live workers serve other agents than this worker would. This worker has not started."""


def group_of(roles: Sequence[str]) -> str:
    """The consumer group of the workers with these roles."""
    return GROUP + "-".join(roles)


def label_of(agents: Sequence[AgentDigest], *, rolling: bool) -> str:
    """The group metadata of a worker: the digest of its agents."""
    return digest_of_all(agents) + (ROLLING if rolling else "")


def demand_same_agents(
    log: Log,
    own_id: str,
    agents: Sequence[AgentDigest],
    say: Callable[[str], None],
    wait_s: float = WAIT_S,
) -> None:
    """Return once no live worker serves other agents.
    Raises AgentsDiffer after `wait_s` seconds."""
    until, is_reported = time.monotonic() + wait_s, False
    while others := others_than(log, own_id, agents):
        names = ", ".join(member.instance_id for member in others)
        if time.monotonic() > until:
            raise AgentsDiffer(_refusal(log, others, agents))
        if not is_reported:
            is_reported = True
            say(f"worker {names} serves other agents; waiting: a dead worker counts for 6 s")
        time.sleep(POLL_S)


def demand_after_rebalance(log: Log, own_id: str, agents: Sequence[AgentDigest]) -> None:
    """Raises AgentsDiffer if a worker with other agents and a smaller id started at the same time.
    So only the worker with the greater id ends."""
    others = [
        member
        for member in others_than(log, own_id, agents)
        if member.instance_id < own_id and not member.label.endswith(ROLLING)
    ]
    if others:
        raise AgentsDiffer(_refusal(log, others, agents))


def others_than(log: Log, own_id: str, agents: Sequence[AgentDigest]) -> list[Member]:
    """The live workers that serve other agents. Members without a label are ignored."""
    ours = digest_of_all(agents)
    return [
        member
        for member in log.members(GROUP)
        if set(member.group.removeprefix(GROUP).split("-")) <= set(ROLES)
        and member.instance_id != own_id
        and member.label
        and member.label.removesuffix(ROLLING) != ours
    ]


def _refusal(log: Log, others: Sequence[Member], ours: Sequence[AgentDigest]) -> str:
    announced = announcements(log)
    parts = []
    for member in others:
        theirs = announced.get(member.instance_id)
        how = ", ".join(differences(ours, theirs)) if theirs else ""
        parts.append(f"worker {member.instance_id} ({how or 'it has not announced which'})")
    return (
        f"live workers serve other agents than this one would: {'; '.join(parts)}. Sessions would "
        "wait for ever in the partitions of a worker that lacks their agent, so this worker did "
        "not start; the others continue. Give every worker the same complete list of --agent (a "
        "running `foldlog dev` is a worker too: stop it, or give it the --agent instead of this "
        "one). To replace the workers one by one, start the new ones with --rolling-update."
    )


def announcements(log: Log) -> dict[str, tuple[AgentDigest, ...]]:
    """The agents that each worker id announced last, up to the current end of the log."""
    found: dict[str, tuple[int, tuple[AgentDigest, ...]]] = {}
    starts, ends = log.first_offsets(SESSION_EVENTS), log.end_offsets(SESSION_EVENTS)
    reader = log.reader(SESSION_EVENTS, starts)
    until = time.monotonic() + READ_S
    try:
        while any(at < ends[p] for p, at in reader.positions().items()):
            if time.monotonic() > until:
                break
            for record in reader.poll(POLL_S):
                if record.key != PARTITION_KEY.encode():
                    continue
                event = entry_of(record).event
                if isinstance(event, PartitionTaken) and event.agents:
                    who, at = worker_id(event.owner), record.timestamp_ms
                    if at >= found.get(who, (0, ()))[0]:
                        found[who] = (at, event.agents)
    finally:
        reader.close()
    return {who: agents for who, (_, agents) in found.items()}
