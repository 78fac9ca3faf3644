"""How slow this machine is. A limit of a test is meant for an amount of work, so on a slow machine
every limit is longer by this factor. A test that hangs still ends, somewhat later.
"""

from time import thread_time

USUAL_S = 0.0065
"""CPU time of the loop on the machine for which the limits were chosen."""
MOST = 4.0


def _loop_s() -> float:
    began, total = thread_time(), 0
    for number in range(300_000):
        total += number
    return thread_time() - began


SLOWNESS = min(MOST, max(1.0, min(_loop_s() for _ in range(3)) / USUAL_S))


def allowed(limit_s: float) -> float:
    """The limit on this machine, in seconds."""
    return limit_s * SLOWNESS
