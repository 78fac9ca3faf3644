"""What viewers are shown of histories, for the protocols' tests: live, cut, late, and at the end."""

from collections.abc import Iterator

from foldlog.consumers.history import history
from foldlog.consumers.session_fold import Seen
from foldlog.consumers.transcript_stream import INITIAL, Shown, Viewer, see
from foldlog.processors.session import SessionViews, fold, initial
from foldlog.schemas.codec import entry_of
from foldlog.schemas.record import Record


def seen(session_id: str, records: list[Record], read) -> Iterator[tuple[Seen, Viewer, list[Shown]]]:
    """Each event of a session, the viewer behind it, and what it shows to whoever was there."""
    views, viewer = initial(session_id), INITIAL
    for record in records:
        entry = entry_of(record)
        if entry.session_id != session_id:
            continue
        before = views
        views, ruling = fold(before, entry)
        event = Seen(entry, ruling, before, views)
        viewer, shown = see(viewer, event, read)
        yield event, viewer, shown


def turns_of(views: SessionViews) -> range:
    """The turns that there were."""
    return range(1, views.turn.number + 1)


def late(views: SessionViews, read) -> list[Shown]:
    """What somebody is shown who comes when all is over."""
    return [thing for _, thing in history(views, read)]
