"""Search every state of a small system: `python -m foldlog.tests.states --faults 1 --jumps 1`.

Prints the number of states, which is the same on any machine. For a violation, it prints the
shortest schedule that leads to it, and exits with 1.
"""

import argparse
import sys

from foldlog.tests.states.search import Found, Search
from foldlog.tests.states.system import System
from foldlog.tests.states.variants import BY_NAME


def line(name: str, faults: int, jumps: int, found: Found) -> str:
    """The result of a search in one line."""
    extent = "every state" if found.complete else f"every state up to depth {found.depth}"
    return (
        f"{name}, {faults} faults, {jumps} jumps: {extent}, {found.states} states, "
        f"{found.transitions} transitions, {found.depth} actions deep, logs of up to "
        f"{found.records} records, longest continuation {found.longest} steps, "
        f"{found.seconds:.0f} s of CPU"
    )


def main(arguments: list[str] | None = None) -> int:
    """Search the variants that the command line selects."""
    parser = argparse.ArgumentParser(prog="foldlog.tests.states", description=__doc__)
    parser.add_argument("--variant", choices=sorted(BY_NAME), action="append", help="default: all")
    parser.add_argument("--faults", type=int, default=1, help="the most faults on a schedule")
    parser.add_argument("--jumps", type=int, default=0, help="the most jumps of the clock")
    parser.add_argument("--depth", type=int, default=10**9, help="the most actions on a schedule")
    parser.add_argument("--minutes", type=float, default=10**6, help="CPU time per variant")
    parser.add_argument("--states", type=int, default=10**9, help="the most states per variant")
    chosen = parser.parse_args(arguments)
    for name in chosen.variant or BY_NAME:
        search = Search(
            System(BY_NAME[name], chosen.faults, chosen.jumps),
            depth_max=chosen.depth,
            seconds=chosen.minutes * 60,
            states_max=chosen.states,
        )
        found = search.run()
        if found.violation is not None:
            print("\n".join(found.schedule))
            print(f"{name}, {chosen.faults} faults, {chosen.jumps} jumps: {found.violation}")
            return 1
        print(line(name, chosen.faults, chosen.jumps, found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
