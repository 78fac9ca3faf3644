"""The names that users give their sessions: each user has names of their own.

Ids of sessions are shared by all users of a log. A client chooses a name (a chat's id, a thread, a
stream), and the session of a name that is new gets an id made of the name and the user, so that
nobody can take a name away from another, nor learn by trying whether another has it. Pure.
"""

from hashlib import sha256

from ...schemas.ids import ID_CHARS_MAX

DIGEST_CHARS = 24
"""96 bits of a digest: nobody finds a name and a user that lead to another's session."""


def own_id(user: str, name: str) -> str:
    """The id of the session that a user gives this name: NAME@DIGEST, a long name cut."""
    digest = sha256(f"{user}\0{name}".encode()).hexdigest()[:DIGEST_CHARS]
    return f"{name[: ID_CHARS_MAX - DIGEST_CHARS - 1]}@{digest}"
