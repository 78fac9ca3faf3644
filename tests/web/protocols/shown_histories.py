"""What viewers see of golden and random sessions: the input for the encoder of every protocol."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from foldlog.client.history import Place, missed
from foldlog.client.transcript_stream import INITIAL, Shown, Viewer, see
from foldlog.processors.fold.session import fold
from foldlog.processors.fold.sessions import FoldedEvent
from foldlog.processors.fold.views import SessionViews, initial
from foldlog.schemas.codec import entry_of
from foldlog.schemas.ids import PARTITION_KEY
from foldlog.tests.golden import golden
from foldlog.tests.laws.law import history_of


class Moment(NamedTuple):
    """What one event shows to a viewer, and the views and the viewer after the event."""

    shown: list[Shown]
    views: SessionViews
    viewer: Viewer


class Watched(NamedTuple):
    """A session as seen by a viewer that is connected from the start."""

    session_id: str
    moments: list[Moment]
    read: Any

    def things(self, after: int = 0) -> Iterator[tuple[Shown, SessionViews]]:
        """Everything that is shown from a moment on, each with the session's views at that time."""
        for moment in self.moments[after:]:
            for thing in moment.shown:
                yield thing, moment.views

    def late(self, moment: Moment) -> Iterator[tuple[Shown, SessionViews]]:
        """What a viewer that connects after a moment is shown: the history, and the text that is
        streaming."""
        for _, thing in missed(Place(), moment.views, moment.viewer, self.read):
            yield thing, moment.views


def golden_session(name: str) -> Watched:
    """A recorded session."""
    blobs = golden.blobs_of(golden.expected(name))
    records = (entry_of(record, chunks=True) for record in golden.records(name))
    return _watched(golden.SESSION_ID, records, lambda ref: blobs[ref.sha256])


def random_session(seed: int, *, forged: bool = False) -> Watched:
    """A session with a long random history, as the law tests generate it."""
    world = history_of(seed, forged)
    entries = (entry_of(record, chunks=True) for record in world.records)
    return _watched(world.session_id, entries, world.blobs.read)


def _watched(session_id: str, entries: Iterable[Any], read: Any) -> Watched:
    views, viewer, moments = initial(session_id), INITIAL, []
    for entry in entries:
        if entry.session_id != session_id or entry.session_id == PARTITION_KEY:
            continue
        before = views
        views, ruling = fold(before, entry)
        viewer, shown = see(viewer, FoldedEvent(entry, ruling, before, views), read)
        if shown:
            moments.append(Moment(shown, views, viewer))
    return Watched(session_id, moments, read)
