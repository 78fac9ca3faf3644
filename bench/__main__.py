"""`make bench`: measures ratios to baselines in the same run. Writes bench/results.json.

Absolute numbers depend on the load of the machine: read the ratios. A bench is a function that
takes the number of runs and returns a Ratio; the tables below list them all. A short run (the
default) has smaller sizes (sizes.py) and fewer pairs than a full run. The second of two full runs
publishes what both agree on, see published.py. results.json keeps the newest figure of each bench,
short and full; it is written after each bench, so an interrupted run keeps what it has measured.
"""

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from foldlog.bench import (
    append,
    caching,
    facts_cost,
    fleet_facts,
    fold_spread,
    frames,
    live,
    memory_search,
    published,
    refold,
    report,
    sizes,
    steps,
    storage,
    streams,
    takeover,
    targets,
    tokens,
    turn_bytes,
    viewers,
)
from foldlog.bench.measure import Installation, Missing, Ratio, installation
from foldlog.bench.published import Figure, Twice, as_json, from_json, why_unpublished
from foldlog.local.messages_api import ScriptedServer

RESULTS = Path(__file__).parent / "results.json"
RUNS, RUNS_FULL = 3, 5  # the pairs of a bench

# The benches are grouped by what they need, cheapest first.
ALONE: dict[str, Callable[[int], Ratio]] = {
    "bytes_per_turn": turn_bytes.bytes_per_turn,
    "token_estimate_error": tokens.token_estimate_error,
    "memory_search": memory_search.memory_search,
    "cache_saving": caching.cache_saving,
    "context_flatness": append.context_flatness,
}
BROKER: dict[str, Callable[[Installation, int], Ratio]] = {
    "fold": refold.fold,
    "storage_growth": storage.storage_growth,
    "append_context": append.append_context,
    "replay": refold.replay,
    "chunk_latency": viewers.chunk_latency,
    "idle_viewers_rss": viewers.idle_viewers_rss,
    "inspector_frames": frames.inspector_frames,
    "fold_spread": fold_spread.fold_spread,
    "takeover": takeover.takeover,
    "fleet_facts": fleet_facts.fleet_facts,
    "facts_cost": facts_cost.facts_cost,
    "step_turnaround": steps.step_turnaround,
    "durable_step": steps.durable_step,
    "flushed_step": steps.flushed_step,
    "stream_cost": streams.stream_cost,
    "streams_per_worker": streams.streams_per_worker,
}
WORKER: dict[str, Callable[[Installation, ScriptedServer, int], Ratio]] = {
    "message_to_request": live.message_to_request,
    "recovery": live.recovery,
    "journaled_stream": live.journaled_stream,
    "stop_latency": viewers.stop_latency,
}
NAMES = (*ALONE, *BROKER, *WORKER)


class Failed(Missing):
    """A bench that could not measure because of an error."""


class Measured(NamedTuple):
    """The result of a bench, and how long the bench took."""

    result: Ratio | Missing
    seconds: float


Results = dict[str, dict[str, Figure]]
"""The newest figure of each bench, by `SHORT` and `FULL`."""
SHORT, FULL = "short", "full"


def measured(runs: int, only: tuple[str, ...]) -> Iterator[tuple[str, Measured]]:
    """Run the selected benches one after the other, and yield their names and results."""
    wanted = set(only or NAMES)
    for name, bench in ALONE.items():
        if name in wanted:
            yield name, _timed(name, partial(bench, runs))
    for name, bench in BROKER.items():
        if name in wanted:
            yield name, _timed(name, partial(_on_a_broker, bench, runs))
    names = [name for name in WORKER if name in wanted]
    with ExitStack() as stack:  # one worker for all of them; the first bench pays for its start
        parts: list[tuple[Installation, ScriptedServer]] = []
        for name in names:
            yield name, _timed(name, partial(_on_a_worker, name, runs, parts, stack))


def _on_a_broker(bench: Callable[[Installation, int], Ratio], runs: int) -> Ratio:
    with installation() as here:  # each bench gets its own idle broker
        return bench(here, runs)


def _on_a_worker(
    name: str, runs: int, parts: list[tuple[Installation, ScriptedServer]], stack: ExitStack
) -> Ratio:
    if not parts:
        server = stack.enter_context(ScriptedServer(script=live.script()))
        here = stack.enter_context(installation())
        stack.enter_context(live.worker(here, server.base_url))
        parts.append((here, server))
    return WORKER[name](*parts[0], runs)


def _timed(name: str, bench: Callable[[], Ratio]) -> Measured:
    """Run a bench. An error is printed, and the other benches continue."""
    click.echo(f"{name} ...", err=True)
    began = time.monotonic()
    result: Ratio | Missing
    try:
        result = bench()
        targets.clauses(result)
    except Missing as missing:
        result = missing
    except Exception as error:
        traceback.print_exc()
        result = Failed(f"{type(error).__name__}: {error}")
    seconds = time.monotonic() - began
    click.echo(f"{name} took {seconds:.0f} s", err=True)
    return Measured(result, seconds)


def read_results() -> Results:
    """The figures of bench/results.json."""
    rows = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    return {
        size: {name: from_json(row) for name, row in rows.get(size, {}).items()}
        for size in (SHORT, FULL)
    }


def write_results(results: Results) -> None:
    """Replace bench/results.json."""
    rows = {
        size: {name: as_json(each[name]) for name in NAMES if name in each}
        for size, each in results.items()
    }
    published.replace_file(RESULTS, json.dumps(rows, indent=2) + "\n")


def publish(before: dict[str, Figure], now: dict[str, Figure]) -> None:
    """Publish each figure of a full run that the full run before agrees with, and print why the
    others are not published."""
    new: dict[str, Twice] = {}
    for name, figure in now.items():
        why = why_unpublished(before.get(name), figure)
        if why:
            click.echo(f"{name} is not published: {why}.", err=True)
        else:
            new[name] = (before[name], figure)
    if new:
        report.publish(new)
        click.echo(f"docs/performance.md shows {', '.join(new)}.", err=True)


def _show(name: str, row: Ratio | Missing, seconds: float) -> None:
    if isinstance(row, Missing):
        click.echo(f"{name:<20}not measured: {row}")
        return
    numbers = f"{row.ours:>14,.3f}{row.baseline:>14,.3f}"
    click.echo(
        f"{name:<20}{numbers}  {row.unit:<14}{row.shown:>22}{seconds:>7.0f} s  "
        f"{targets.with_verdicts(row)}"
    )
    if row.note:
        click.echo(f"{'':<20}{row.note}")


@click.command()
@click.option("--full", is_flag=True, help="Full sizes and five pairs, as published.")
@click.option("--page", is_flag=True, help="Measure nothing: draw docs/performance.md again.")
@click.argument("only", nargs=-1, type=click.Choice(NAMES))
def main(full: bool, page: bool, only: tuple[str, ...]) -> None:
    """Run all benches, or only those named. Example: make bench ARGS="fold replay --full".

    A full run publishes what the full run before it agrees with.
    """
    if page:
        return report.write_page()
    if not full:
        sizes.use(sizes.SHORT)
    size, runs = (FULL, RUNS_FULL) if full else (SHORT, RUNS)
    run, results = published.this_run(), read_results()
    before, now, found = dict(results[size]), {}, {}
    for name, each in measured(runs, only):
        found[name] = each
        if isinstance(each.result, Ratio):
            results[size][name] = now[name] = Figure(each.result, each.seconds, run)
        else:
            results[size].pop(name, None)  # an old figure must not look new
        write_results(results)
    if full:
        publish(before, now)
    click.echo(
        f"{'name':<20}{'ours':>14}{'baseline':>14}  {'unit':<14}{'ratio (spread)':>22}{'time':>9}  "
        "target"
    )
    for name in NAMES:
        if name in found:
            _show(name, *found[name])
    unmet = [name for name, figure in now.items() if not targets.is_met(figure.ratio)]
    minutes = sum(each.seconds for each in found.values()) / 60
    click.echo(
        f"{len(now) - len(unmet)} of {len(now)} targets are met"
        f"{', not: ' if unmet else ''}{', '.join(unmet)}. It took {minutes:.1f} minutes; the load "
        f"average was {run.load:.1f} at the start."
    )
    if any(isinstance(each.result, Failed) for each in found.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
