"""The time for decisions: the wall clock, or broker time if the two disagree.

A broker stamps every record. When a worker reads back its own PARTITION_TAKEN, it learns broker
time with an error of at most the record's round trip. The monotonic clock measures the time since
then. The record itself names when it was produced, so the worker recognizes the record even if it
was written twice, or was reported as lost.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ...schemas.record import Record

PRODUCED = "p"  # header of a PARTITION_TAKEN: when its owner produced it, monotonic ms
DIGITS_MAX = 15  # of that time: 30,000 years
MARGIN_MS = 10_000  # tolerated difference of clocks; takeovers wait this long after a deadline


class Clock(Protocol):
    """The wall clock and the monotonic clock of this process, in ms."""

    def now_ms(self) -> int: ...
    def monotonic_ms(self) -> int: ...


class Anchor(NamedTuple):
    """One of the worker's own records:
    when it was produced and read (monotonic ms), and its broker time."""

    produced_at: int
    read_at: int
    broker_at: int


def produced_header(monotonic_ms: int) -> tuple[str, bytes]:
    """The header of a record that is produced now."""
    return PRODUCED, str(monotonic_ms).encode()


def anchor_of(record: Record, read_at: int) -> Anchor | None:
    """The anchor that a record of this process gives. None if the record does not say when it was
    produced, or names a time that this process has not reached."""
    value = dict(record.headers).get(PRODUCED) or b""
    if not value.isdigit() or len(value) > DIGITS_MAX or int(value) > read_at:
        return None
    return Anchor(int(value), read_at, record.timestamp_ms)


class Reading(NamedTuple):
    """`now`: the time for decisions, Unix ms. `skew_ms`: how far the wall clock is certainly ahead
    of broker time (negative: behind)."""

    now: int
    skew_ms: int

    @property
    def is_off(self) -> bool:
        """Whether the wall clock is too wrong to be used for decisions."""
        return abs(self.skew_ms) > MARGIN_MS


def reading(clock: Clock, anchor: Anchor | None, newest_at: int) -> Reading:
    """The time for decisions. It is never before `newest_at`, the broker time of the newest
    record."""
    wall = clock.now_ms()
    if anchor is None:
        return Reading(max(wall, newest_at), 0)
    monotonic = clock.monotonic_ms()
    earliest = anchor.broker_at + monotonic - anchor.read_at
    latest = anchor.broker_at + monotonic - anchor.produced_at
    found = Reading(max(wall, newest_at), max(wall - latest, 0) or min(wall - earliest, 0))
    return found._replace(now=max(earliest, newest_at)) if found.is_off else found


class ClockWatch:
    """Logs once when the wall clock differs from broker time, and once when it agrees again."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._is_off = say, False

    def check(self, skew_ms: int) -> None:
        """Log if the clock became wrong, or right again."""
        if Reading(0, skew_ms).is_off != self._is_off:
            self._is_off = not self._is_off
            self._say(in_words(skew_ms) if self._is_off else "the clock agrees with the brokers'")


SET_CLOCK = "Set the clock (NTP)"


def in_words(skew_ms: int) -> str:
    """The message about a wrong clock, with the effect and the remedy."""
    return f"{off_in_words(skew_ms)}. {SET_CLOCK}"


def off_in_words(skew_ms: int) -> str:
    """The message about a wrong clock, with the effect."""
    side = "ahead of" if skew_ms > 0 else "behind"
    return (
        f"this machine's clock is {abs(skew_ms) // 1000} s {side} the brokers'. Nothing expires by "
        "it: time is taken from the brokers until the clocks agree"
    )
