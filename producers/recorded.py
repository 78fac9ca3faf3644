"""The header `by`: on whose behalf the current call is made.

The gateway sets ORIGIN after authentication, and the events that the request writes carry it.
"""

from contextvars import ContextVar

from ..schemas.origin import HEADER, Origin

ORIGIN: ContextVar[Origin | None] = ContextVar("origin", default=None)


def origin_headers(ours: Origin | None) -> list[tuple[str, bytes]]:
    """The header of the present call; `ours`: of a producer that always writes for the same."""
    origin = ORIGIN.get() or ours
    return [] if origin is None else [(HEADER, str(origin).encode())]
