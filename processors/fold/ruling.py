"""The fold's ruling on an event, reached before any view changes.

Reasons are codes; a refusal also has a message for people.
"""

from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """accepted: the event counts, and the views change.
    ignored: the event does not count, for the reason in the ruling's code.
    refused: a producer's command is invalid now; only an answer to the producer becomes pending.

    An ignored event changes nothing, with two exceptions (session.py): the ledger counts the tokens
    of a model call whose outcome is late, superseded or a duplicate, each attempt once; and an
    event that cannot be decoded or folded freezes the session.
    """

    ACCEPTED = "accepted"
    IGNORED = "ignored"
    REFUSED = "refused"


_ACCEPTED, _IGNORED, REFUSED = Verdict  # Python 3.11 looks enum members up slowly


class Ruling(NamedTuple):
    """The verdict on one event, and the reason for it."""

    verdict: Verdict
    code: str = ""
    detail: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the event counts."""
        return self.verdict == _ACCEPTED


ACCEPTED = Ruling(_ACCEPTED)
DUPLICATE = Ruling(_IGNORED, "duplicate")
STALE = Ruling(_IGNORED, "stale")  # another input came in between: WAKE decides again
LATE = Ruling(_IGNORED, "late")  # the turn it belongs to has ended
SUPERSEDED = Ruling(_IGNORED, "superseded")  # another attempt counts instead
VOID = Ruling(_IGNORED, "void")  # the turn is closing
MISTAKEN_WRITER = Ruling(_IGNORED, "writer")
UNREADABLE = Ruling(_IGNORED, "unreadable")
FROZEN = Ruling(_IGNORED, "frozen")
MISPLACED = Ruling(_IGNORED, "misplaced")  # it is about a partition, not about a session
UNSUPPORTED = Ruling(_IGNORED, "unsupported")
UNKNOWN_CALL = Ruling(_IGNORED, "unknown_call")
UNKNOWN_SESSION = Ruling(_IGNORED, "unknown_session")  # its stub holds only pending refusals


def refused(code: str, detail: str) -> Ruling:
    """A refusal: `code` for machines, `detail` for people."""
    return Ruling(REFUSED, code, detail)
