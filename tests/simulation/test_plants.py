"""For every planted fault, the invariant that the plant names catches the fault."""

import pytest

from foldlog.tests.simulation import invariants, scenarios
from foldlog.tests.simulation.checks_requests import REQUESTS, RequestsAreLegal
from foldlog.tests.simulation.plants import PLANTS
from foldlog.tests.simulation.runner import run

SEEDS_MAX = 100  # each plant is caught within so many schedules


def checked(name: str) -> list:
    """The named invariant, alone or with the invariant that builds the requests for it."""
    invariant = invariants.BY_NAME[name]
    return [RequestsAreLegal, invariant] if invariant in REQUESTS[1:] else [invariant]


@pytest.mark.parametrize(
    "plant", [plant for plant in PLANTS if plant.simulated], ids=lambda plant: plant.name
)
def test_a_planted_fault_is_caught(plant, monkeypatch):
    plant.put(monkeypatch)
    caught_by, scenario, first = plant.simulated
    for seed in range(first, first + SEEDS_MAX):
        outcome = run(seed, scenarios.BY_NAME[scenario], checked(caught_by))
        if outcome.violation is not None and outcome.violation.name == caught_by:
            return
    pytest.fail(f"{caught_by} caught nothing in {SEEDS_MAX} schedules of {scenario}")


def test_every_plant_names_what_must_catch_it():
    assert all(plant.simulated or plant.searched for plant in PLANTS)
    assert len({plant.name for plant in PLANTS}) == len(PLANTS)
