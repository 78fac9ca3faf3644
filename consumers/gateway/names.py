"""The names that users give their sessions: each user has a separate set of names.

Session ids are shared by all users of a log. A client chooses a name (a chat id, a thread, a
stream), and the session of a new name gets an id made of the name and the user. So one user cannot
take a name from another, nor find out by trying whether another user has it. Pure.
"""

from hashlib import sha256

from ...schemas.ids import ID_CHARS_MAX

DIGEST_CHARS = 24
"""96 bits: it is infeasible to find a name and a user that give another user's session."""


def own_id(user: str, name: str) -> str:
    """The id of the session that a user gives this name: NAME@DIGEST, with a long name shortened.
    """
    digest = sha256(f"{user}\0{name}".encode()).hexdigest()[:DIGEST_CHARS]
    return f"{name[: ID_CHARS_MAX - DIGEST_CHARS - 1]}@{digest}"
