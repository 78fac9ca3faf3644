"""The laws over as many long histories as wanted: `python -m foldlog.tests.laws [FIRST] [COUNT]`.

For whoever changed a fold, a row of WAKE or the builder: the test run takes some hundred seeds,
this takes the rest. Prints the first history that breaks a law, with its seed and the law's name.
"""

import sys
from collections import Counter
from functools import partial

from foldlog.tests.laws import test_fold_laws, test_request_laws, test_wake_laws
from foldlog.tests.laws.law import LAWS, Law, world_of
from foldlog.tests.laws.law9 import check_law_9
from foldlog.tests.laws.worlds import World

SAY_EVERY = 500  # histories
MODULES = (test_fold_laws, test_wake_laws, test_request_laws)  # each adds its laws to LAWS


def every_view(rows: Counter, world: World) -> None:
    """Law 9 at every view of a history."""
    for step in world.steps:
        check_law_9(world, step, rows)


def main(first: int, count: int) -> int:
    """Check histories first to first + count; 1 if a law was broken."""
    rows: Counter = Counter()
    events = 0
    for seed in range(first, first + count):
        plain, wild = world_of.__wrapped__(seed), world_of.__wrapped__(seed, True)
        events += len(plain.steps) + len(wild.steps)
        for law in (Law("law 9", partial(every_view, rows), False), *LAWS):
            world = wild if law.forged else plain
            try:
                law.check(world)
            except Exception:
                print(f"{world}\nseed {seed} breaks {law.name}")
                raise
        if (seed - first) % SAY_EVERY == SAY_EVERY - 1:
            print(f"{seed - first + 1} histories, {events} events", flush=True)
    print(f"{count} histories, {events} events, every law held. How often each row was owed:")
    print("  ".join(f"{row} {times}" for row, times in sorted(rows.items())))
    return 0


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:]]
    raise SystemExit(main(*(numbers + [0, 2_000][len(numbers) :])))
