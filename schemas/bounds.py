"""The largest numbers that an event may hold, as types. The codec rejects larger numbers.

Folds add these numbers up and stores keep the sums in 64 bits. Within these bounds, no history that
fits on a disk adds up to 2**63, so views can always be encoded. Token counts come from a provider:
the codec accepts any number, and `Usage.counts` drops impossible ones (parts.py).
"""

from typing import Annotated

from msgspec import Meta

COUNT_MAX = 2**53 - 1
"""Turns, steps, attempts, offsets: the largest integer that every JSON reader preserves exactly."""

TIME_MAX = 253_402_300_799_999
"""Unix ms: the end of the year 9999."""

TOKENS_MAX = 1_000_000_000
"""Tokens of one text, which would be about 3 GB long."""

ITEMS_MAX = 1_000_000_000
"""Items of one batch."""

BYTES_MAX = 2**36
"""Bytes of one blob: 64 GiB."""

SUM_MAX = 2**62
"""The value at which a running total stops growing; no genuine session comes near it."""

REQUEST_TOKENS_MAX = 4_000_000
"""Tokens of one request and its answer: several times the largest context window."""

USAGE_TOKENS_MAX = 100_000_000
"""Tokens charged for one attempt: a provider's own tools may read the context many times."""

Count = Annotated[int, Meta(ge=-COUNT_MAX, le=COUNT_MAX)]
TimeMs = Annotated[int, Meta(ge=-TIME_MAX, le=TIME_MAX)]
Tokens = Annotated[int, Meta(ge=-TOKENS_MAX, le=TOKENS_MAX)]
Items = Annotated[int, Meta(ge=-ITEMS_MAX, le=ITEMS_MAX)]  # a fold refuses a negative number
Bytes = Annotated[int, Meta(ge=0, le=BYTES_MAX)]
