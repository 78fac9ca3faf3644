"""The fingerprint of a message: two messages with the same fingerprint are duplicates."""

from hashlib import sha256

from ....schemas.events import Body


def message_sha(role: str, content: Body) -> str:
    """Hex sha256 of the role and the content, which may be inline or a blob."""
    whole = content.ref.sha256.encode() if content.ref is not None else content.inline or b""
    return sha256(role.encode() + b"\0" + whole).hexdigest()
