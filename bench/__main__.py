"""`make bench`: measures ratios to baselines in the same run. Writes bench/results.json, and
after a complete run docs/performance.md.

Absolute numbers depend on the load of the machine: read the ratios. A bench is a function that
takes the number of runs and returns a Ratio; the tables below list them all. A run is complete if
every bench was measured, with at least RUNS runs each. results.json is written after each bench, so
an interrupted run keeps the figures that it has measured.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

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
    refold,
    report,
    steps,
    storage,
    streams,
    takeover,
    targets,
    tokens,
    turn_bytes,
    viewers,
)
from foldlog.bench.measure import Installation, Measured, Missing, Ratio, installation
from foldlog.local.messages_api import ScriptedServer

RESULTS = Path(__file__).parent / "results.json"
RUNS = 5
FEW_RUNS = 3  # of a bench whose run takes half a minute and measures many times


def _few(bench: Callable[[Installation, int], Ratio]) -> Callable[[Installation, int], Ratio]:
    return lambda here, runs: bench(here, min(runs, FEW_RUNS))


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
    "takeover": _few(takeover.takeover),
    "fleet_facts": _few(fleet_facts.fleet_facts),
    "facts_cost": facts_cost.facts_cost,
    "step_turnaround": steps.step_turnaround,
    "durable_step": _few(steps.durable_step),
    "stream_cost": _few(streams.stream_cost),
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


def result_rows(found: dict[str, Measured]) -> list[dict]:
    """The rows of the results file: new rows, and the old rows of benches that were not run.

    A bench that ran but could not measure has no row, because an old figure must not look new.
    """
    old = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    rows = {row["name"]: row for row in old if row["name"] not in found}
    for name, (row, seconds) in found.items():
        if isinstance(row, Ratio):
            more = {"met": targets.is_met(row), "seconds": round(seconds, 1)}
            rows[name] = row._asdict() | more
    order = {name: n for n, name in enumerate(NAMES)}
    return sorted(rows.values(), key=lambda row: order.get(row["name"], len(order)))


def why_incomplete(found: dict[str, Measured], runs: int) -> str:
    """Why docs/performance.md cannot be written from these results, or "" if it can."""
    if left := [name for name in NAMES if name not in found]:
        return f"{len(left)} benches were not selected"
    if runs < RUNS:
        return f"{runs} runs are fewer than {RUNS}"
    missing = [name for name, each in found.items() if isinstance(each.result, Missing)]
    return f"not measured: {', '.join(missing)}" if missing else ""


def _show(name: str, row: Ratio | Missing, seconds: float) -> None:
    if isinstance(row, Missing):
        click.echo(f"{name:<20}not measured: {row}")
        return
    numbers = f"{row.ours:>14,.3f}{row.baseline:>14,.3f}"
    click.echo(
        f"{name:<20}{numbers}  {row.unit:<14}{row.ratio:>9.3f}{seconds:>7.0f} s  "
        f"{targets.with_verdicts(row)}"
    )
    if row.note:
        click.echo(f"{'':<20}{row.note}")


@click.command()
@click.option("--runs", default=RUNS, show_default=True, help="The number of runs of each pair.")
@click.argument("only", nargs=-1, type=click.Choice(NAMES))
def main(runs: int, only: tuple[str, ...]) -> None:
    """Run all benches, or only those named. Example: make bench ARGS="fold --runs 3".

    A complete run also writes docs/performance.md.
    """
    load, found = os.getloadavg()[0], {}
    for name, each in measured(runs, only):
        found[name] = each
        report.replace_file(RESULTS, json.dumps(result_rows(found), indent=2) + "\n")
    if why := why_incomplete(found, runs):
        click.echo(f"docs/performance.md stays as it is: {why}.", err=True)
    else:
        complete = {n: each.result for n, each in found.items() if isinstance(each.result, Ratio)}
        report.write(complete, sum(each.seconds for each in found.values()), load)
        click.echo("The report is docs/performance.md.", err=True)
    click.echo(
        f"{'name':<20}{'ours':>14}{'baseline':>14}  {'unit':<14}{'ratio':>9}{'time':>9}  target"
    )
    for name in NAMES:
        if name in found:
            _show(name, *found[name])
    rows = [each.result for each in found.values() if isinstance(each.result, Ratio)]
    unmet = [row.name for row in rows if not targets.is_met(row)]
    minutes = sum(each.seconds for each in found.values()) / 60
    click.echo(
        f"{len(rows) - len(unmet)} of {len(rows)} targets are met"
        f"{', not: ' if unmet else ''}{', '.join(unmet)}. It took {minutes:.1f} minutes; the load "
        f"average was {load:.1f} at the start."
    )
    if any(isinstance(each.result, Failed) for each in found.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
