"""Checks the laws over any number of random sessions: `python -m foldlog.tests.laws [FIRST]
[COUNT]`.

Run it after a change of a fold, of a row of WAKE or of the builder. The tests check only some
hundred seeds; this command checks others, on one core. Start further processes with other values of
FIRST. Every second session has events that no correct worker writes. The command prints the first
session that breaks a law, with its seed.
"""

import sys
import time
from collections import Counter
from functools import partial

from foldlog.schemas import events as ev
from foldlog.tests.kit.law9 import check_law_9
from foldlog.tests.laws import (
    test_compaction_laws,
    test_fact_laws,
    test_fold_laws,
    test_rendered_laws,
    test_request_laws,
    test_resume_laws,
    test_wake_laws,
)
from foldlog.tests.laws.law import LAWS, Law, history_of
from foldlog.tests.laws.random_history import RandomHistory
from foldlog.tests.laws.resumed import resumes

REPORT_EVERY = 1_000  # sessions
MODULES = (  # each adds its laws to LAWS
    test_compaction_laws, test_fact_laws, test_fold_laws, test_rendered_laws, test_request_laws,
    test_resume_laws, test_wake_laws,
)


def law_9_at_views(rows: Counter, history: RandomHistory) -> None:
    """Check law 9 at a third of the views of a session; the next seed checks a different third."""
    for step in history.steps[(history.seed or 0) % 3 :: 3]:
        check_law_9(history, step, rows)


def count_coverage(coverage: Counter, history: RandomHistory) -> None:
    """Count the events and steps of a session that exercise compaction and resumed answers."""
    for step in history.steps:
        event, before, after = step.entry.event, step.before.compaction, step.views.compaction
        coverage["events"] += 1
        if not step.ruling.accepted:
            continue
        coverage["summaries"] += isinstance(event, ev.ContextCompacted)
        coverage["short forms"] += isinstance(event, ev.ResultCompacted)
        coverage["answers resumed"] += resumes(event)
        coverage["failed requests of background work"] += len(getattr(event, "earlier", ()))
        if isinstance(event, ev.LlmCalled):
            coverage["requests"] += 1
            coverage["summaries adopted"] += before.checkpoint_at != after.checkpoint_at
            adopted = before.compacted_upto != after.compacted_upto
            coverage["short forms adopted in batches"] += adopted


def main(first: int, count: int) -> int:
    """Check `count` sessions, beginning with seed `first`; returns the exit code."""
    rows, coverage, began = Counter(), Counter(), time.monotonic()
    laws = (Law("law 9", partial(law_9_at_views, rows), False), *LAWS)
    for number in range(first, first + count):
        forged = number % 2 == 1
        try:
            history = history_of.__wrapped__(number // 2, forged)
        except Exception:
            print(f"session {number} raised while it was made")
            raise
        count_coverage(coverage, history)
        for law in laws:
            if forged and not law.forged:
                continue
            try:
                law.check(history)
            except Exception:
                print(f"{history}\nsession {number} breaks {law.name}")
                raise
        if (checked := number - first + 1) % REPORT_EVERY == 0:
            speed = checked / (time.monotonic() - began)
            events = coverage["events"]
            print(f"{checked} sessions, {events} events, {speed:.1f} sessions/s", flush=True)
    print(f"{count} sessions, {len(laws)} laws, none broken. They had:")
    print(", ".join(f"{times} {name}" for name, times in coverage.items()))
    print("How often each row was owed:")
    print("  ".join(f"{row} {times}" for row, times in sorted(rows.items())))
    return 0


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:]]
    raise SystemExit(main(*(numbers + [0, 4_000][len(numbers) :])))
