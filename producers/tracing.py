"""Writes the caller's trace context to the log, as the record header `traceparent` (W3C).

Set TRACEPARENT around the code that writes events, and each of these events has the header. The
gateway sets TRACEPARENT from the header of its HTTP requests. No fold reads the header; exported
traces link to the span in the header.
"""

import re
from contextvars import ContextVar

TRACEPARENT: ContextVar[str] = ContextVar("traceparent", default="")
_FORM = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def trace_headers() -> list[tuple[str, bytes]]:
    """The header for the event to be written, if TRACEPARENT is set and well-formed."""
    value = TRACEPARENT.get()
    return [("traceparent", value.encode())] if _FORM.fullmatch(value) else []
