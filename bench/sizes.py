"""The sizes of the benches in a short run, by module. The full sizes, with which figures are
published, are the constants of the modules themselves.
"""

from collections.abc import Mapping
from types import ModuleType

from foldlog.bench import (
    append,
    facts_cost,
    fleet_facts,
    fold_spread,
    frames,
    memory_search,
    refold,
    steps,
    streams,
    takeover,
)

Sizes = Mapping[ModuleType, Mapping[str, object]]

SHORT: Sizes = {
    append: {"SIZES": (100, 1_000)},
    memory_search: {"MANY": 1_000},
    refold: {"SESSIONS": 60},
    fold_spread: {"SPREADS": (10, 1_000, 10_000), "SESSIONS": 2_000},
    takeover: {"LONG": 100_000},
    fleet_facts: {"USERS": 40},
    facts_cost: {"PAIRS": 10},
    frames: {"EVENTS": 2_000, "SESSIONS": 200, "FRAMES": 100},
    steps: {"TURNS": 1},
    streams: {"STREAMS": 30, "STEPS_MAX": 3},
}


def use(sizes: Sizes) -> None:
    """Use these sizes in this process."""
    for module, values in sizes.items():
        for name, value in values.items():
            setattr(module, name, value)
