"""Writes the caller's trace context to the log: W3C `traceparent`, as a record header.

Set TRACEPARENT around a call, and every event that the call writes has the header; the gateway sets
it from the header of its HTTP requests. No fold reads it; exported traces link to that span.
"""

import re
from contextvars import ContextVar

TRACEPARENT: ContextVar[str] = ContextVar("traceparent", default="")
_FORM = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def trace_headers() -> list[tuple[str, bytes]]:
    """The header of the current call, if it has a well-formed one."""
    value = TRACEPARENT.get()
    return [("traceparent", value.encode())] if _FORM.fullmatch(value) else []
