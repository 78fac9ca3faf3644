"""A check of the blob store: whether it answers."""

import time
from collections.abc import Iterator

from ...log.blobs import SHELVES, BlobError, open_blobs
from ...log.settings import Settings
from .findings import Code, Finding, found


def blob_store(settings: Settings) -> Iterator[Finding]:
    """Look into the store, and yield one finding."""
    blobs = open_blobs(settings, cached=False)
    began = time.monotonic()
    try:
        next(blobs.list(SHELVES[0]), None)
    except BlobError as error:
        yield found(Code.BLOBS_AWAY, place=blobs.place, error=error)
        return
    took_ms = (time.monotonic() - began) * 1000
    yield found(Code.BLOBS_ANSWER, place=blobs.place, took_ms=took_ms)
