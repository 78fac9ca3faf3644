"""Failures of a server's tool call that prove the tool never ran."""


class Unreachable(Exception):
    """There is no connection, and nothing was sent."""


class Rejected(Exception):
    """The server refused the call and ran nothing. forgotten: it does not know the connection."""

    def __init__(self, why: str, *, forgotten: bool = False) -> None:
        super().__init__(why)
        self.forgotten = forgotten
