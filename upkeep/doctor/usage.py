"""Reports how often tools and prompt blocks are used, and in which tier they belong.

The rules are in `processors/advice/block_usage.py`.
"""

from collections.abc import Iterator

from ...client.show import Everything
from ...log.blobs import BlobError
from ...processors.advice.block_usage import advice, measure_usage
from ...processors.advice.mistakes import whole_prefix
from ...processors.advice.prefix_drift import parts
from ...processors.fold.projections.prefixes import Prefix as PrefixRow
from ...schemas.events.parts import ReadBlob
from .findings import Code, Finding, found


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
        yield found(Code.USAGE, agent=agent, usage=measured)
        for use in measured.uses if whole else ():
            yield found(Code.USAGE, agent=agent, usage=use)
        for each in advice(measured):
            yield found(Code.TIER, agent=agent, advice=each)


__all__ = ["usage"]
