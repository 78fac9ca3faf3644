"""`make bench`: ratios against baselines of the same run; writes bench/results.json.

A number alone says little on a machine that does other things as well: read the ratios.
"""

import json
from pathlib import Path

import click

from foldlog.bench import fold, live
from foldlog.bench.measure import Ratio, installation
from foldlog.local.messages_api import ScriptedServer

RESULTS = Path(__file__).parent / "results.json"


def measured(runs: int, only: tuple[str, ...]) -> list[Ratio]:
    """Every bench that is asked for, one after the other."""

    def wanted(name: str) -> bool:
        return not only or name in only

    found = []
    if wanted("bytes_per_turn"):
        found.append(fold.bytes_per_turn())
    if wanted("fold"):
        click.echo("fold: writing the log ...", err=True)
        with installation() as here:
            found.append(fold.fold_ratio(here, runs))
    names = ("message_to_request", "recovery", "journaled_stream")
    if any(wanted(name) for name in names):
        click.echo("live: a worker, a broker, a model server ...", err=True)
        with ScriptedServer(script=live.script()) as server, installation() as here:
            with live.worker(here, server.base_url):
                for name in names:
                    if wanted(name):
                        click.echo(f"{name} ...", err=True)
                        found.append(getattr(live, name)(here, server, runs))
    return found


@click.command()
@click.option("--runs", default=5, show_default=True, help="Runs of each pair.")
@click.argument("only", nargs=-1)
def main(runs: int, only: tuple[str, ...]) -> None:
    """Measure everything, or the benches named. Example: make bench ARGS="fold --runs 3"."""
    found = measured(runs, only)
    RESULTS.write_text(json.dumps([row._asdict() for row in found], indent=2) + "\n")
    click.echo(f"{'name':<20}{'ours':>14}{'baseline':>14}  {'unit':<14}{'ratio':>8}  aim")
    for row in found:
        numbers = f"{row.ours:>14,.2f}{row.baseline:>14,.2f}"
        click.echo(f"{row.name:<20}{numbers}  {row.unit:<14}{row.ratio:>8.2f}  {row.aim}")


if __name__ == "__main__":
    main()
