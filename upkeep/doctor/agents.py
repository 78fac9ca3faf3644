"""Checks for `doctor`: finds agents that sessions need and no worker serves."""

from collections.abc import Iterable, Iterator

from ...client.show import Everything
from ...processors.agent_digest import differences
from ...processors.fold.projections import partition as partition_fold
from .checks import newest_first
from .findings import Code, Finding, found


def agents_missing(everything: Everything, agents: frozenset[str] | None) -> Iterator[Finding]:
    """Find sessions whose agent is not served by the worker of their partition. Such a session
    makes no progress.

    agents: the agents of the worker that runs in this state directory, or None if no worker runs in
    it. They are used for partitions whose workers did not record their agents in the log.
    """
    missing: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name in newest_first(everything):
        turn = everything.sessions[name].turn
        if turn.known and not turn.terminated:
            served = _agents_at(everything, everything.places[name], turn.agent, agents)
            if served is not None and turn.agent not in served:
                missing.setdefault((turn.agent, tuple(sorted(served))), []).append(name)
    for (agent, served), names in sorted(missing.items()):
        open_sessions = [name for name in names if everything.sessions[name].turn.open]
        code = Code.AGENT_MISSING if open_sessions else Code.AGENT_MISSING_IDLE
        yield found(code, agent=agent, sessions=names, open_sessions=open_sessions, served=served)


def _agents_at(
    everything: Everything, partition: int, agent: str, agents: frozenset[str] | None
) -> Iterable[str] | None:
    """The agents that the partition's worker serves, if `agent` is not one of them.

    None if the worker serves `agent`, or if its agents are unknown.
    """
    holders = everything.holders.get(partition, partition_fold.INITIAL)
    holder = partition_fold.without(holders, agent)
    if holder is not None:
        return [named.name for named in holder.agents]
    is_announced = any(holder.agents for holder in holders.holders)
    return None if is_announced else agents


def workers_agree(everything: Everything, live: Iterable[str]) -> Iterator[Finding]:
    """Check that all live workers serve the same agents. live: the ids of these workers."""
    announced = {
        partition_fold.worker_id(holder.owner): holder.agents
        for view in everything.holders.values()
        for holder in view.holders
        if holder.agents
    }
    (first, *others) = sorted(announced.keys() & set(live)) or [""]
    for other in others:
        places = f"in {first}", f"in {other}"
        if differs := differences(announced[first], announced[other], *places):
            yield found(Code.WORKERS_DIFFER, first=first, other=other, differences=differs)
