"""Serves a session as a durable stream of the transcript's lines, each a frame of plain JSON.

Streaming output is left out, because it may be superseded and a durable stream never changes: an
answer becomes a frame once it is settled.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter

from ....processors.fold.projections.transcript import Line
from ....processors.fold.views import SessionViews
from ....schemas.canonical import compact
from ....schemas.events.parts import ReadBlob
from ..plain import line_json


class SessionStream:
    """A session's views as a stream.

    The stream is closed if the session is terminated and none of its calls is in doubt.
    """

    def __init__(self, views: SessionViews, read: ReadBlob) -> None:
        self._lines, self._read = views.transcript.lines, read
        turn = views.turn
        self.tail = self._lines[-1].offset + 1 if len(self._lines) else 0
        self.closed = turn.terminated and not turn.open and not turn.doubts

    def since(self, place: int) -> Iterator[tuple[int, list[bytes]]]:
        """The lines of each event from a place on.

        All inherited lines of a fork belong to its first event.
        """
        first = bisect_left(self._lines, place, key=attrgetter("offset"))
        for offset, lines in groupby(self._lines.since(first), attrgetter("offset")):
            yield offset + 1, [_frame(line, self._read) for line in lines]


def _frame(line: Line, read: ReadBlob) -> bytes:
    return compact(line_json(line, read)).encode()
