"""The record header `by`: who recorded a person's command, and how the person was authenticated.

The writer of an event sets the field `by_user`, and nothing proves that its value is true. The
gateway and the command line add this header with the authenticated person and the kind of
authentication. The header is not signed: anyone who may write to the topic can forge it, so it is
only as trustworthy as the ACLs of the topic. No fold reads it.
"""

from enum import StrEnum
from typing import NamedTuple

from .ids import is_id

HEADER = "by"


class Recorder(StrEnum):
    """The program that wrote the record."""

    GATEWAY = "gateway"
    COMMAND = "command"


class Proof(StrEnum):
    """How the person was authenticated.

    operator: by a token with the roles to answer for the user whom the event names.
    app: by the application that contains the gateway.
    none: not at all (a gateway in development mode).
    """

    TOKEN = "token"
    OPERATOR = "operator"
    APP = "app"
    OS_USER = "os_user"
    NONE = "none"


class TokenRole(StrEnum):
    """What a person may do in the sessions of others. A token lists its roles in the claim `roles`.

    operator: may read the sessions of all users; each look is recorded (looks.py).
    decide: with `operator`, may also answer approvals and settle doubts in them.
    """

    OPERATOR = "operator"
    DECIDE = "decide"


class Origin(NamedTuple):
    """The value of the header. `subject`: the id of the user, or the name of the OS user."""

    recorder: Recorder
    proof: Proof
    subject: str

    def __str__(self) -> str:
        return f"{self.recorder} {self.proof} {self.subject}"


def origin_of(text: str) -> Origin | None:
    """Parses the value of the header; None if it is invalid."""
    try:
        recorder, proof, subject = text.split(" ")
        found = Origin(Recorder(recorder), Proof(proof), subject)
    except ValueError:
        return None
    return found if is_id(subject) else None
