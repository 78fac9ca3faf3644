"""fold_spread: CPU time per event of a worker, by the number of sessions that are open at once.

Each log has sessions of one short turn (about 13 events) in one partition, of which 10, 1,000,
10,000 or 100,000 are open at once. The open sessions write in turn, each what comes without a wait:
its opening, then a message with the decision and the claim, then the answer (history.interleaved).
A `foldlog worker` process with an empty store folds the log, measured as by `fold`: CPU time of the
whole process, without its start. All settings are the defaults: the cache holds about a quarter of
100,000 open sessions; the others are read from the store again each time it is their turn to write.
"""

import statistics
from itertools import count

from foldlog.bench.history import interleaved
from foldlog.bench.measure import Installation, Plot, Ratio, separate, spread_of
from foldlog.bench.refold import STARTS, Spent, fold_once
from foldlog.log import partition_for
from foldlog.schemas.codec import encode, headers_for
from foldlog.schemas.topics import SESSION_EVENTS

SPREADS = (10, 1_000, 10_000, 100_000)
SESSIONS = 10_000  # of a log; at least as many as are open at once
FLUSH_EVERY = 20_000  # records
PATIENCE_S = 60.0


def fold_spread(here: Installation, runs: int) -> Ratio:
    """The cost per event at the most expensive number of open sessions, over that at the first."""
    logs = {spread: separate(here, f"spread-{spread}-") for spread in SPREADS}
    first = logs[SPREADS[0]]
    starts = [fold_once(first) for _ in range(STARTS)]
    start = Spent(*map(statistics.median, zip(*starts, strict=True)))
    events = {
        spread: write_spread(log, spread, max(spread, SESSIONS)) for spread, log in logs.items()
    }
    costs: dict[int, list[float]] = {spread: [] for spread in SPREADS}
    for _ in range(runs):
        for spread, log in logs.items():
            costs[spread].append(fold_once(log).without(start).cpu_s / events[spread] * 1e6)
    for log in logs.values():
        log.log.close()
    base = costs[SPREADS[0]]
    ratios = {
        spread: [mine / other for mine, other in zip(found, base, strict=True)]
        for spread, found in costs.items()
    }
    worst = max(ratios, key=lambda spread: statistics.median(ratios[spread]))
    shown = ", ".join(
        f"{statistics.median(found):.1f} at {spread:,} ({min(found):.1f} to {max(found):.1f})"
        for spread, found in costs.items()
    )
    note = f"microseconds of CPU time per event: {shown} open sessions"
    medians = {spread: statistics.median(found) for spread, found in costs.items()}
    line = [(float(spread), cost) for spread, cost in medians.items()]
    plot = Plot("sessions open at once", "us of CPU time per event", {"foldlog": line})
    return Ratio(
        "fold_spread", medians[worst], statistics.median(base), "us/event",
        statistics.median(ratios[worst]), runs, "at most 1.5", note, plot,
        spread_of(ratios[worst]),
    )


def write_spread(here: Installation, spread: int, sessions: int) -> int:
    """Produce the sessions to partition 0; returns the number of records. Nobody else may write
    meanwhile, see refold.write_log."""
    partitions = here.settings.partitions
    ids = (name for n in count() if not partition_for(name := f"bench-{n}", partitions))
    names = [next(ids) for _ in range(sessions)]
    producer, written = here.log.producer(), 0
    offsets = count(here.log.end_offsets(SESSION_EVENTS)[0])
    for name, writer, event in interleaved(names, spread, offsets):
        producer.append(SESSION_EVENTS, name, encode(event), headers_for(event, writer))
        written += 1
        if written % FLUSH_EVERY == 0:
            producer.flush(PATIENCE_S)
    producer.close()
    return written
