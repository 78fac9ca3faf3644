"""Reads the traces of a session from the log, at any time and any number of times.

The header `traceparent` of a record names the span in which the event was written, if there was
one. This span is linked to the turn that the event began.
"""

import re
from collections.abc import Iterator

from ...client.follow import read_before
from ...client.log_client import LogClient
from ...client.show import UnknownSession
from ...schemas.topics import SESSION_EVENTS
from .spans import Link, Span, spans_of

_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}.*")


def traces(client: LogClient, session_id: str) -> Iterator[Span]:
    """Every finished span of the session. Raises UnknownSession, LogUnreachable."""
    log = client.log
    origin = f"{log.identity()}/{log.topic_id(SESSION_EVENTS)}"
    with client.fold(session_id) as folded:
        end = folded.end()
        comes_from = producer_links(client, session_id, folded.partition, end)
        yield from spans_of(folded.upto(end), origin, comes_from)
        if not folded.views.turn.known:
            raise UnknownSession(f"there is no session {session_id}. See `foldlog sessions`.")


def producer_links(client: LogClient, session_id: str, partition: int, end: int) -> dict[int, Link]:
    """The span of the writer of each event, by the event's offset."""
    found, key = {}, session_id.encode()
    for record in read_before(client.log, SESSION_EVENTS, partition, end):
        match = _TRACEPARENT.fullmatch(record.header("traceparent") or b"")
        if record.key == key and match is not None:
            found[record.offset] = Link(match[1].decode(), match[2].decode())
    return found
