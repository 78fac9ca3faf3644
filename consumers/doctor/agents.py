"""Checks for `doctor`: agents that sessions need and the workers do not serve."""

from collections.abc import Iterable, Iterator

from ...processors.agent_digest import differences
from ...processors.fold.projections import partition as partition_fold
from ..show import Everything
from .checks import Finding, named, newest_first


def agents_missing(everything: Everything, agents: frozenset[str] | None) -> Iterator[Finding]:
    """Agents that sessions have and the worker of their partition does not: they owe nothing there.

    agents: those of this directory's worker, which counts where the log does not say; None: no
    worker runs here.
    """
    lacking: dict[tuple[str, str], list[str]] = {}
    for name in newest_first(everything):
        turn = everything.sessions[name].turn
        if turn.known and not turn.terminated:
            served = _agents_at(everything, everything.places[name], turn.agent, agents)
            if served is not None and turn.agent not in served:
                have = ", ".join(sorted(served)) or "none"
                lacking.setdefault((turn.agent, have), []).append(name)
    for (agent, have), names in sorted(lacking.items()):
        waiting = [name for name in names if everything.sessions[name].turn.open]
        who = f"session {names[0]} needs agent {agent}"
        if len(names) > 1:
            who = f"{len(names)} sessions need agent {agent}"
            who += f" (with an open turn: {named(waiting)})" if waiting else ""
        text = f"{who}; the worker has {have}"
        yield Finding(
            "problem" if waiting else "note", "agents", text,
            "start the worker with --agent MODULE:ATTR for it, and all others too",
        )


def _agents_at(
    everything: Everything, partition: int, agent: str, agents: frozenset[str] | None
) -> Iterable[str] | None:
    """The agents served in a partition, as far as `agent` waits for them; None: not known."""
    holders = everything.holders.get(partition, partition_fold.INITIAL)
    holder = partition_fold.without(holders, agent)
    if holder is not None:
        return [named.name for named in holder.agents]
    is_said = any(holder.agents for holder in holders.holders)
    return None if is_said else agents


def workers_agree(everything: Everything, live: Iterable[str]) -> Iterator[Finding]:
    """The live workers serve the same agents. live: their worker ids."""
    announced = {
        partition_fold.worker_id(holder.owner): holder.agents
        for view in everything.holders.values()
        for holder in view.holders
        if holder.agents
    }
    (first, *others) = sorted(announced.keys() & set(live)) or [""]
    for other in others:
        if found := differences(announced[first], announced[other]):
            how = ", ".join(found).replace("only here", f"only in {first}")
            yield Finding(
                "problem", "agents",
                f"workers {first} and {other} serve different agents: "
                + how.replace("only there", f"only in {other}"),
                "start both with the same --agent: sessions wait where theirs is missing",
            )
