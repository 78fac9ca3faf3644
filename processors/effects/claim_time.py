"""The clock of an effect: Unix ms, anchored where the worker read the effect's claim.

A claim may be read seconds before its request is sent, because the SDK is imported, a slot is taken
or a blob is read. If the time counted from the request, a retry would come too early by as much.
"""

import time
from collections.abc import Callable

Now = Callable[[], int]
"""Returns the time, Unix ms."""


def claim_clock(
    claimed_at: int, read_at: float | None, clock: Callable[[], float] = time.monotonic
) -> Now:
    """The clock that showed `claimed_at` (Unix ms) when `clock` showed `read_at` (seconds).
    `read_at` is None if the claim is read now."""
    begin = clock() if read_at is None else read_at
    return lambda: claimed_at + int((clock() - begin) * 1000)
