"""What the fold says of an event before any view changes (design law 2).

accepted: the views change. ignored: late, duplicate or stale; nothing changes. refused: a producer
asked for what is not possible; nothing changes but the answer owed. Reasons are codes, with a
sentence for people where somebody is told.
"""

from typing import NamedTuple


class Ruling(NamedTuple):
    """The fold's word on one event. `verdict` is accepted, ignored or refused."""

    verdict: str
    code: str = ""
    detail: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the views change."""
        return self.verdict == "accepted"


ACCEPTED = Ruling("accepted")
DUPLICATE = Ruling("ignored", "duplicate")
STALE = Ruling("ignored", "stale")  # another input came between: wake decides anew
LATE = Ruling("ignored", "late")  # the turn it belongs to has ended
SUPERSEDED = Ruling("ignored", "superseded")  # another attempt counts
VOID = Ruling("ignored", "void")  # the turn is closing
MISTAKEN_WRITER = Ruling("ignored", "writer")
UNREADABLE = Ruling("ignored", "unreadable")
FROZEN = Ruling("ignored", "frozen")
UNKNOWN_CALL = Ruling("ignored", "unknown_call")
UNKNOWN_SESSION = Ruling("ignored", "unknown_session")  # its stub holds only the refusals owed


def refused(code: str, detail: str) -> Ruling:
    """A refusal: `code` for machines, `detail` for people."""
    return Ruling("refused", code, detail)
