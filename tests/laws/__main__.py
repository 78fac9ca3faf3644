"""The laws over as many random sessions as wanted: `python -m foldlog.tests.laws [FIRST] [COUNT]`.

For whoever changed a fold, a row of WAKE or the builder: the test run takes some hundred seeds,
this takes the rest, on one core; begin elsewhere in another process. Every second session has
events that no right worker writes. Prints the first that breaks a law, with its seed and the law.
"""

import sys
import time
from collections import Counter
from functools import partial

from foldlog.schemas import events as ev
from foldlog.tests.laws import (
    test_compaction_laws,
    test_fold_laws,
    test_rendered_laws,
    test_request_laws,
    test_resume_laws,
    test_wake_laws,
)
from foldlog.tests.laws.law import LAWS, Law, world_of
from foldlog.tests.laws.law9 import check_law_9
from foldlog.tests.laws.resumed import resumes
from foldlog.tests.laws.worlds import World

SAY_EVERY = 1_000  # sessions
MODULES = (  # each adds its laws to LAWS
    test_compaction_laws, test_fold_laws, test_rendered_laws, test_request_laws, test_resume_laws,
    test_wake_laws,
)


def views_all_over(rows: Counter, world: World) -> None:
    """Law 9 at a third of the views of a session: others of the next one."""
    for step in world.steps[(world.seed or 0) % 3 :: 3]:
        check_law_9(world, step, rows)


def counted(what: Counter, world: World) -> None:
    """What a session had of what compaction and resumed answers are about."""
    for step in world.steps:
        event, before, after = step.entry.event, step.before.compaction, step.views.compaction
        what["events"] += 1
        if not step.ruling.accepted:
            continue
        what["summaries"] += isinstance(event, ev.ContextCompacted)
        what["short forms"] += isinstance(event, ev.ResultCompacted)
        what["answers resumed"] += resumes(event)
        what["failed requests of background work"] += len(getattr(event, "earlier", ()))
        if isinstance(event, ev.LlmCalled):
            what["requests"] += 1
            what["summaries adopted"] += before.checkpoint_at != after.checkpoint_at
            what["short forms adopted in batches"] += before.compacted_upto != after.compacted_upto


def main(first: int, count: int) -> int:
    """Check so many sessions, from that one on; 1 if a law was broken."""
    rows, what, began = Counter(), Counter(), time.monotonic()
    laws = (Law("law 9", partial(views_all_over, rows), False), *LAWS)
    for number in range(first, first + count):
        forged = number % 2 == 1
        try:
            world = world_of.__wrapped__(number // 2, forged)
        except Exception:
            print(f"session {number} can not go on")
            raise
        counted(what, world)
        for law in laws:
            if forged and not law.forged:
                continue
            try:
                law.check(world)
            except Exception:
                print(f"{world}\nsession {number} breaks {law.name}")
                raise
        if (done := number - first + 1) % SAY_EVERY == 0:
            speed = done / (time.monotonic() - began)
            print(f"{done} sessions, {what['events']} events, {speed:.1f} sessions/s", flush=True)
    print(f"{count} sessions, {len(laws)} laws, every one held. Of them:")
    print(", ".join(f"{times} {name}" for name, times in what.items()))
    print("How often each row was owed:")
    print("  ".join(f"{row} {times}" for row, times in sorted(rows.items())))
    return 0


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:]]
    raise SystemExit(main(*(numbers + [0, 4_000][len(numbers) :])))
