"""Who recorded what a person asked for, and by what proof: a record header, `by`.

`by_user` of an event is what its writer says. The gateway and the command line add whom they asked,
and how. The header is not signed: whoever may write to the topic may write it too, so ACLs on the
topic are what it is worth. No fold reads it.
"""

from enum import StrEnum
from typing import NamedTuple

from .ids import is_id

HEADER = "by"


class Recorder(StrEnum):
    """What wrote the record."""

    GATEWAY = "gateway"
    COMMAND = "command"


class Proof(StrEnum):
    """How it knows who asked. none: nobody was asked (a gateway in development mode)."""

    TOKEN = "token"
    OS_USER = "os_user"
    NONE = "none"


class Origin(NamedTuple):
    """`subject`: of the token, or the name of the OS user."""

    recorder: Recorder
    proof: Proof
    subject: str

    def __str__(self) -> str:
        return f"{self.recorder} {self.proof} {self.subject}"


def origin_of(text: str) -> Origin | None:
    """The origin that a header says; None if it says none that is known."""
    try:
        recorder, proof, subject = text.split(" ")
        found = Origin(Recorder(recorder), Proof(proof), subject)
    except ValueError:
        return None
    return found if is_id(subject) else None
