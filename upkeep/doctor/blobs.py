"""A check of the blob store: whether it answers."""

import time
from collections.abc import Iterator

from ...log.blobs import SHELVES, BlobError, open_blobs
from ...log.settings import Settings
from .checks import Finding


def blob_store(settings: Settings) -> Iterator[Finding]:
    """Look into the store, and yield one finding."""
    blobs = open_blobs(settings, cached=False)
    began = time.monotonic()
    try:
        next(blobs.list(SHELVES[0]), None)
    except BlobError as error:
        yield Finding(
            "problem", "blobs", f"{blobs.place}: {error}",
            "sessions whose content is there wait; see docs/blobs.md",
        )
        return
    took_ms = (time.monotonic() - began) * 1000
    yield Finding("ok", "blobs", f"{blobs.place} answers in {took_ms:.0f} ms")
