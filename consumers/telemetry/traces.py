"""The traces of a session, read from its log: at any time, as often as one likes.

What the writers of its events were traced as is in header `traceparent`, if they had one; such a
span is linked to the turn that its event began. This file must not know where traces go.
"""

import re
from collections.abc import Iterator

from ...schemas.topics import SESSION_EVENTS
from ..client import Client
from ..follow import POLL_S
from ..show import UnknownSession
from .spans import Link, Span, spans_of

_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}.*")


def traces(client: Client, session_id: str) -> Iterator[Span]:
    """Every span of the session that has ended. Raises UnknownSession, LogUnreachable."""
    log = client.log
    origin = f"{log.identity()}/{log.topic_id(SESSION_EVENTS)}"
    with client.fold(session_id) as folded:
        end = folded.end()
        comes_from = linked(client, session_id, folded.partition, end)
        yield from spans_of(folded.upto(end), origin, comes_from)
        if not folded.views.turn.known:
            raise UnknownSession(f"there is no session {session_id}: see `foldlog sessions`")


def linked(client: Client, session_id: str, partition: int, end: int) -> dict[int, Link]:
    """Offset -> what the writer of that event was traced as."""
    first = client.log.first_offsets(SESSION_EVENTS)[partition]
    reader = client.log.reader(SESSION_EVENTS, {partition: first})
    found, key = {}, session_id.encode()
    try:
        while reader.positions()[partition] < end:
            before = reader.positions()
            for record in reader.poll(POLL_S):
                held = _TRACEPARENT.fullmatch(record.header("traceparent") or b"")
                if record.key == key and held is not None:
                    found[record.offset] = Link(held[1].decode(), held[2].decode())
            if reader.positions() == before:
                break  # links are a nicety: who reads the events says it when the log is away
    finally:
        reader.close()
    return found
