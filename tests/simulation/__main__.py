"""Search for a violation of an invariant: `python -m foldlog.tests.simulation --seeds N --from S`.

Prints the end of the history that led to the first violation, and exits with 1. The same seed shows
the violation again on any machine.
"""

import argparse
import sys
import traceback

from foldlog.tests.simulation import scenarios
from foldlog.tests.simulation.runner import TAIL, Search, history_sha, tail


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds that the command line selects."""
    parser = argparse.ArgumentParser(prog="foldlog.tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=500, help="how many schedules")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    names = sorted(scenarios.BY_NAME)
    parser.add_argument("--scenario", choices=names, help="run only this scenario")
    parser.add_argument("--tail", type=int, default=TAIL, help="lines printed of a violation")
    parser.add_argument("--sha", action="store_true", help="print a hash of each history")
    chosen = parser.parse_args(arguments)
    scenario = scenarios.BY_NAME[chosen.scenario] if chosen.scenario else None
    search = Search()
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        outcome = search.one(seed, scenario)
        if chosen.sha:
            print(seed, outcome.world.scenario.name, history_sha(outcome.world))
        if outcome.violation is not None:
            print("\n".join(tail(outcome.world, chosen.tail)))
            if outcome.violation.__cause__ is not None:
                traceback.print_exception(outcome.violation.__cause__)
            name = outcome.world.scenario.name
            print(f"seed {seed} scenario {name} violates {outcome.violation}")
            return 1
    print("\n".join(search.report()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
