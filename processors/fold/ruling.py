"""The fold's verdict on an event, reached before any view changes (design law 2).

accepted: the views change. ignored: late, duplicate or stale; nothing changes. refused: a
producer's command is invalid now; nothing changes but the pending answer. Reasons are codes; a
refusal also has a sentence for people.
"""

from typing import NamedTuple


class Ruling(NamedTuple):
    """The verdict on one event. `verdict` is accepted, ignored or refused."""

    verdict: str
    code: str = ""
    detail: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the views change."""
        return self.verdict == "accepted"


ACCEPTED = Ruling("accepted")
DUPLICATE = Ruling("ignored", "duplicate")
STALE = Ruling("ignored", "stale")  # another input came in between: WAKE decides again
LATE = Ruling("ignored", "late")  # the turn it belongs to has ended
SUPERSEDED = Ruling("ignored", "superseded")  # another attempt counts
VOID = Ruling("ignored", "void")  # the turn is closing
MISTAKEN_WRITER = Ruling("ignored", "writer")
UNREADABLE = Ruling("ignored", "unreadable")
FROZEN = Ruling("ignored", "frozen")
UNKNOWN_CALL = Ruling("ignored", "unknown_call")
UNKNOWN_SESSION = Ruling("ignored", "unknown_session")  # its stub holds only pending refusals


def refused(code: str, detail: str) -> Ruling:
    """A refusal: `code` for machines, `detail` for people."""
    return Ruling("refused", code, detail)
