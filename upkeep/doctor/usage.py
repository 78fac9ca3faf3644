"""Reports how often tools and prompt blocks are used, and in which tier they belong.

The rules are in `processors/advice/block_usage.py`; this file words their findings.
"""

from collections.abc import Iterator

from ...client.show import Everything
from ...log.blobs import BlobError
from ...processors.advice.block_usage import TURNS_MIN, AgentUsage, Place, advice, measure_usage
from ...processors.advice.mistakes import OURS, whole_prefix
from ...processors.advice.prefix_drift import parts
from ...processors.fold.projections.prefixes import Prefix as PrefixRow
from ...schemas.events.parts import ReadBlob
from .findings import Code, Finding, found

TOOLS_SHOWN_MAX = 5
"""The most tools of an agent printed for people, most used first; `--json` has every block."""


def usage(everything: Everything, read: ReadBlob, *, whole: bool) -> Iterator[Finding]:
    """Report how often each agent's tools and blocks are used, and which belong in another tier.

    whole: whether to yield a finding for each block in addition to one for each agent.
    """

    def parts_of(row: PrefixRow) -> dict[str, str] | None:
        try:
            prefix = whole_prefix(row, read)
            return None if prefix is None else parts(prefix)
        except (BlobError, ValueError, TypeError, AttributeError):  # not a prefix of foldlog
            return None

    newest_first = sorted(everything.sessions, key=lambda name: -everything.last_at[name])
    sessions = (everything.sessions[name] for name in newest_first)
    for agent, measured in measure_usage(sessions, parts_of).items():
        if not measured.turns:
            continue
        yield found(Code.USAGE, agent=agent, usage=_summary(measured))
        for use in measured.uses if whole else ():
            yield found(Code.USAGE, agent=agent, usage=use)
        for use, do in advice(measured):
            yield found(Code.TIER, agent=agent, usage=use, remedy=do)


def _summary(measured: AgentUsage) -> str:
    """The number of turns, and the share of them that used each of the most used tools."""
    places = (Place.FRONT, Place.BEHIND)
    tools = [use for use in measured.uses if use.place in places and use.name not in OURS]
    used = sorted((use for use in tools if use.used), key=lambda use: (-(use.share or 0), use.name))
    shown = [f"{use.name} {use.share or 0:.0%}" for use in used[:TOOLS_SHOWN_MAX]]
    if more := len(used) - len(shown):
        shown.append(f"{more} more")
    text = f"; tools by the share of turns that used them: {', '.join(shown)}" if shown else ""
    if never := len(tools) - len(used):
        text += f"; {never} never" if shown else f"; none of {never} tools was used"
    turns = "1 turn" if measured.turns == 1 else f"{measured.turns} turns"
    few = f" (tiers are recommended from {TURNS_MIN} on)" if measured.turns < TURNS_MIN else ""
    return f"{turns}{few}{text}"


__all__ = ["usage"]
