"""For every planted fault, the invariant that the plant names catches the fault."""

import pytest

from foldlog.tests.simulation import invariants, scenarios
from foldlog.tests.simulation.checks_requests import REQUESTS, RequestsAreLegal
from foldlog.tests.simulation.plants import PLANTS
from foldlog.tests.simulation.plants_background import BACKGROUND
from foldlog.tests.simulation.runner import run

SEEDS_MAX = 100  # each plant is caught within so many schedules


def checked(name: str) -> list:
    """The named invariant, alone or with the invariant that builds the requests for it."""
    invariant = invariants.BY_NAME[name]
    return [RequestsAreLegal, invariant] if invariant in REQUESTS[1:] else [invariant]


@pytest.mark.parametrize("plant", (*PLANTS, *BACKGROUND), ids=lambda plant: plant.name)
def test_a_planted_fault_is_caught(plant, monkeypatch):
    for where, attribute, wrong in ((plant.where, plant.attribute, plant.wrong), *plant.also):
        if isinstance(where, dict):
            monkeypatch.setitem(where, attribute, wrong(where[attribute]))
        else:
            monkeypatch.setattr(where, attribute, wrong(getattr(where, attribute)))
    scenario = scenarios.BY_NAME[plant.scenario]
    for seed in range(SEEDS_MAX):
        outcome = run(seed, scenario, checked(plant.caught_by))
        if outcome.violation is not None and outcome.violation.name == plant.caught_by:
            return
    pytest.fail(f"{plant.caught_by} caught nothing in {SEEDS_MAX} schedules of {plant.scenario}")
