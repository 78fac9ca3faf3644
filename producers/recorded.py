"""Whom the present call was made for, carried into the log as the header `by`.

The gateway sets ORIGIN once it knows who asks, and the events that the request writes have it.
"""

from contextvars import ContextVar

from ..schemas.origin import HEADER, Origin

ORIGIN: ContextVar[Origin | None] = ContextVar("origin", default=None)


def origin_headers(ours: Origin | None) -> list[tuple[str, bytes]]:
    """The header of the present call; `ours`: of a producer that always writes for the same."""
    origin = ORIGIN.get() or ours
    return [] if origin is None else [(HEADER, str(origin).encode())]
