"""Helpers that several tests of the fold share: a history in its first model call, and the codes of
rulings."""

from foldlog.processors.fold.ruling import Ruling
from foldlog.tests.kit.history import History, opened


def code(ruling: Ruling) -> str:
    """The code of a ruling, or `accepted`."""
    return ruling.code or ruling.verdict


def streaming() -> History:
    """A session with a claim for its first model call."""
    s = opened()
    s.say("go", "m1")
    return s.work()
