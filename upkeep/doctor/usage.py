"""Reports how often tools and prompt blocks are used, and which belong in another place.

The rules are in `processors/advice/block_usage.py` and `placement.py`.
"""

from collections.abc import Iterator, Sequence

from ...client.show import Everything
from ...log.blobs import BlobError
from ...processors.advice.block_usage import advice, measure_usage
from ...processors.advice.mistakes import whole_prefix
from ...processors.advice.placement import asked_in_most_turns, critical_in_the_middle
from ...processors.advice.prefix_drift import parts
from ...processors.fold.projections.prefixes import Prefix as PrefixRow
from ...processors.fold.views import SessionViews
from ...processors.request.prefix import Prefix
from ...schemas.events.parts import ReadBlob
from .findings import Code, Finding, found

NO_PREFIX = (BlobError, ValueError, TypeError, AttributeError)
"""What is raised if the text of a prefix is lost, or foldlog did not write it."""
ARGS_SHOWN = 100


def usage(everything: Everything, read: ReadBlob, *, whole: bool) -> Iterator[Finding]:
    """Report how often each agent's tools and blocks are used, and which belong in another tier.

    whole: whether to yield a finding for each block in addition to one for each agent.
    """

    def parts_of(row: PrefixRow) -> dict[str, str] | None:
        try:
            prefix = whole_prefix(row, read)
            return None if prefix is None else parts(prefix)
        except NO_PREFIX:
            return None

    newest_first = sorted(everything.sessions, key=lambda name: -everything.last_at[name])
    sessions = (everything.sessions[name] for name in newest_first)
    for agent, measured in measure_usage(sessions, parts_of).items():
        if not measured.turns:
            continue
        yield found(Code.USAGE, agent=agent, usage=measured)
        for use in measured.uses if whole else ():
            yield found(Code.USAGE, agent=agent, usage=use)
        for each in advice(measured):
            yield found(Code.TIER, agent=agent, advice=each)


def placement(everything: Everything, read: ReadBlob) -> Iterator[Finding]:
    """Report content that an agent's model asks for in most turns, and instructions marked as
    critical in the middle of its newest system prompt.
    """
    of_agents: dict[str, list[SessionViews]] = {}
    for name in sorted(everything.sessions, key=lambda name: -everything.last_at[name]):
        views = everything.sessions[name]
        if views.turn.known:
            of_agents.setdefault(views.turn.agent, []).append(views)
    for agent, sessions in sorted(of_agents.items()):
        for each in asked_in_most_turns(sessions):
            yield found(
                Code.ASKED_IN_MOST_TURNS, agent=agent, tool=each.tool, args=each.args[:ARGS_SHOWN],
                asked=each.asked, turns=each.turns, tokens=each.tokens,
            )
        prefix = _newest_prefix(sessions, read)
        for critical in critical_in_the_middle(prefix) if prefix is not None else ():
            yield found(
                Code.CRITICAL_IN_THE_MIDDLE, agent=agent, line=critical.line,
                percent=round(100 * critical.place), tokens=critical.tokens,
            )


def _newest_prefix(newest_first: Sequence[SessionViews], read: ReadBlob) -> Prefix | None:
    rows = (views.context.prefixes[-1] for views in newest_first if len(views.context.prefixes))
    try:
        return next((whole_prefix(row, read) for row in rows), None)
    except NO_PREFIX:
        return None


__all__ = ["placement", "usage"]
