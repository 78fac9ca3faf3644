"""Waits while the blob store is away, so that the outcome of an effect is not lost.

The effect is over, and its outcome needs a blob. The wait takes no thread, so effects without blobs
continue. If the worker dies meanwhile, its successor takes the effect over, as always.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from ...log.blobs import BlobsAway

T = TypeVar("T")

RETRY_S = 1.0


async def when_stored(work: Callable[[], T]) -> T:
    """The result of `work`, which runs in a thread, again and again until the store is there."""
    while True:
        try:
            return await asyncio.to_thread(work)
        except BlobsAway:
            await asyncio.sleep(RETRY_S)
