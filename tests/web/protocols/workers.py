"""A played worker for the tests of the protocols."""

from foldlog.tests.kit.played import Played
from foldlog.web.gateway.names import own_id

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)
"""A picture of one dot, in base64."""


def worker_of(log, name, turn=None):
    """Wait until Ana's session of this name has an open turn, and return a played worker for it.
    `turn`: the number of that turn."""
    worker = Played(log, own_id("ana", name))
    worker.wait(lambda views: views.turn.open and turn in (None, views.turn.number))
    return worker
