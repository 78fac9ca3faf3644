"""How a call of a server's tool can come to nothing, known for sure: nothing ran there."""


class Unreachable(Exception):
    """There is no connection, and nothing was sent."""


class Rejected(Exception):
    """The server was asked, and ran nothing. forgotten: it does not know this connection."""

    def __init__(self, why: str, *, forgotten: bool = False) -> None:
        super().__init__(why)
        self.forgotten = forgotten
