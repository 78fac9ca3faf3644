"""The names that users give their sessions: each user has a separate set of names.

All users of a log share one set of session ids. A client chooses a name (a chat id, a thread, a
stream), and the session of a new name gets an id made of the name and the user. So users cannot
take names from each other, or find out by trying whether another user has a name. Pure.
"""

from hashlib import sha256

from ...schemas.ids import ID_CHARS_MAX

DIGEST_CHARS = 24
"""The digest has 96 bits, so it is infeasible to find a name that gives another user's session."""


def own_id(user: str, name: str) -> str:
    """The id of the session to which a user gives this name. It has the form NAME@DIGEST, with a
    long NAME shortened.
    """
    digest = sha256(f"{user}\0{name}".encode()).hexdigest()[:DIGEST_CHARS]
    return f"{name[: ID_CHARS_MAX - DIGEST_CHARS - 1]}@{digest}"


def edited_id(session_id: str, *edit: str) -> str:
    """The id of the fork for an edit of a session. The same edit gives the same fork."""
    digest = sha256("\0".join(("edit", session_id, *edit)).encode()).hexdigest()[:DIGEST_CHARS]
    name = session_id.partition("@")[0]
    return f"{name[: ID_CHARS_MAX - DIGEST_CHARS - 1]}@{digest}"
