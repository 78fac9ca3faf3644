"""Writes the header `by`, which contains the origin of the current call.

The gateway sets ORIGIN after authentication, and every event that the request writes gets the
origin as a header.
"""

from contextvars import ContextVar

from ..schemas.origin import HEADER, Origin

ORIGIN: ContextVar[Origin | None] = ContextVar("origin", default=None)


def origin_headers(default: Origin | None) -> list[tuple[str, bytes]]:
    """The header for the current call. `default`: the origin to record if ORIGIN is not
    set for the call."""
    origin = ORIGIN.get() or default
    return [] if origin is None else [(HEADER, str(origin).encode())]
