"""Failures of a call of a server's tool that prove that the tool never ran."""


class Unreachable(Exception):
    """There is no connection, and nothing was sent."""


class Rejected(Exception):
    """The server refused the call and ran nothing.
    forgotten: the server no longer knows the session."""

    def __init__(self, why: str, *, forgotten: bool = False) -> None:
        super().__init__(why)
        self.forgotten = forgotten
