"""Writes the record header `by`, which contains the origin of an event.

The gateway sets ORIGIN after it has authenticated an HTTP request, and every event that this
request writes gets the header.
"""

from contextvars import ContextVar

from ..schemas.origin import HEADER, Origin

ORIGIN: ContextVar[Origin | None] = ContextVar("origin", default=None)


def origin_headers(default: Origin | None) -> list[tuple[str, bytes]]:
    """The header for the event to be written. `default`: the origin to record if ORIGIN is not
    set."""
    origin = ORIGIN.get() or default
    return [] if origin is None else [(HEADER, str(origin).encode())]
