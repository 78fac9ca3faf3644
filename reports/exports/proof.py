"""The proof of who wrote a command: the origin in the record's header."""

from typing import NamedTuple, assert_never

from ...schemas.codec import Entry
from ...schemas.origin import Proof, origin_of


class Proven(NamedTuple):
    """Whether it is proven that the command came from the user that it names, or from a person who
    may act for this user, and a description of the proof."""

    is_proven: bool
    text: str


def proof_of(entry: Entry) -> Proven:
    """The proof of who wrote a command. The header is not signed, so the proof is only as strong as
    the topic's ACLs.
    """
    event = entry.event
    claimed = getattr(event, "by_user", "") or getattr(event, "user_id", "")
    origin = origin_of(entry.by)
    if origin is None:
        return Proven(False, "unproven")
    match origin.proof:
        case Proof.TOKEN if origin.subject == claimed:
            return Proven(True, f"recorded by the {origin.recorder}: a token of {claimed}")
        case Proof.TOKEN:
            return Proven(False, f"unproven: the {origin.recorder} saw a token of {origin.subject}")
        case Proof.OPERATOR:
            return Proven(
                True, f"recorded by the {origin.recorder}: a token of the operator {origin.subject}"
            )
        case Proof.APP if origin.subject == claimed:
            return Proven(
                True, f"recorded by the {origin.recorder}: its application authenticated {claimed}"
            )
        case Proof.APP:
            return Proven(
                False,
                f"unproven: the {origin.recorder}'s application authenticated {origin.subject}",
            )
        case Proof.OS_USER:
            return Proven(True, f"recorded by a {origin.recorder} of OS user {origin.subject}")
        case Proof.NONE:
            return Proven(False, f"unproven: the {origin.recorder} did not authenticate users")
        case _:
            assert_never(origin.proof)
