"""`make bench`: measures ratios to baselines in the same run. Writes bench/results.json, and
after a run of all benches docs/performance.md.

Absolute numbers depend on the load of the machine: read the ratios. A bench is a function that
takes the number of runs and returns a Ratio; the tables below list them all.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from foldlog.bench import (
    append,
    caching,
    fold_spread,
    live,
    memory_search,
    peers,
    refold,
    report,
    steps,
    storage,
    streams,
    takeover,
    tokens,
    turn_bytes,
    viewers,
)
from foldlog.bench.measure import Installation, Missing, Ratio, installation
from foldlog.local.messages_api import ScriptedServer

RESULTS = Path(__file__).parent / "results.json"

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
    "fold_spread": fold_spread.fold_spread,
    "takeover": takeover.takeover,
    "step_turnaround": steps.step_turnaround,
    "durable_step": steps.durable_step,
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


def measured(runs: int, only: tuple[str, ...]) -> Iterator[tuple[str, Ratio | Missing]]:
    """Run the selected benches one after the other, and yield their names and results."""
    wanted = set(only or NAMES)
    for name, bench in ALONE.items():
        if name in wanted:
            yield name, _run(name, lambda bench=bench: bench(runs))
    for name, bench in BROKER.items():
        if name in wanted:
            with installation() as here:  # each bench gets its own idle broker
                yield name, _run(name, lambda bench=bench, here=here: bench(here, runs))
    if WORKER.keys() & wanted:
        click.echo("a worker, a broker, a model server ...", err=True)
        with ScriptedServer(script=live.script()) as server, installation() as here:
            with live.worker(here, server.base_url):
                for name, bench in WORKER.items():
                    if name in wanted:
                        yield name, _run(name, lambda bench=bench: bench(here, server, runs))


def _run(name: str, bench: Callable[[], Ratio]) -> Ratio | Missing:
    click.echo(f"{name} ...", err=True)
    try:
        return bench()
    except Missing as missing:
        return missing


def result_rows(found: dict[str, Ratio | Missing]) -> list[dict]:
    """The rows of the results file: new rows, and the old rows of benches that were not run.

    A bench that ran but could not measure has no row, because an old figure must not look new.
    """
    old = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    rows = {row["name"]: row for row in old if row["name"] not in found}
    rows.update((name, row._asdict()) for name, row in found.items() if isinstance(row, Ratio))
    order = {name: n for n, name in enumerate(NAMES)}
    return sorted(rows.values(), key=lambda row: order.get(row["name"], len(order)))


def _show(row: Ratio | Missing, name: str) -> None:
    if isinstance(row, Missing):
        click.echo(f"{name:<20}not measured: {row}")
        return
    numbers = f"{row.ours:>14,.3f}{row.baseline:>14,.3f}"
    click.echo(f"{row.name:<20}{numbers}  {row.unit:<14}{row.ratio:>9.3f}  {row.aim}")
    if row.note:
        click.echo(f"{'':<20}{row.note}")


@click.command()
@click.option("--runs", default=5, show_default=True, help="The number of runs of each pair.")
@click.argument("only", nargs=-1, type=click.Choice(NAMES))
def main(runs: int, only: tuple[str, ...]) -> None:
    """Run all benches, or only those named. Example: make bench ARGS="fold --runs 3".

    A run of all benches also writes docs/performance.md.
    """
    found = dict(measured(runs, only))
    RESULTS.write_text(json.dumps(result_rows(found), indent=2) + "\n")
    if not only and peers.PYTHON.exists():
        report.write(found)
        click.echo("The report is docs/performance.md.", err=True)
    click.echo(f"{'name':<20}{'ours':>14}{'baseline':>14}  {'unit':<14}{'ratio':>9}  aim")
    for name in NAMES:
        if name in found:
            _show(found[name], name)


if __name__ == "__main__":
    main()
