"""The search finds every planted fault, by the property that the plant names."""

import pytest

from foldlog.tests.states.plants import PLANTS
from foldlog.tests.states.search import Search
from foldlog.tests.states.system import System
from foldlog.tests.states.variants import BY_NAME

STATES_MAX = 5_000  # each plant is found within so many states


@pytest.mark.parametrize("planted", PLANTS, ids=lambda planted: planted.plant.name)
def test_a_planted_fault_is_found(planted, monkeypatch):
    plant = planted.plant
    if isinstance(plant.where, dict):
        right = plant.where[plant.attribute]
        monkeypatch.setitem(plant.where, plant.attribute, plant.wrong(right))
    else:
        right = getattr(plant.where, plant.attribute)
        monkeypatch.setattr(plant.where, plant.attribute, plant.wrong(right))
    system = System(BY_NAME[plant.scenario], planted.faults, planted.jumps)
    found = Search(system, states_max=STATES_MAX).run()
    if found.violation is None:
        pytest.fail(f"no schedule in {found.states} states violates {plant.caught_by}")
    schedule = "\n".join((*found.schedule, str(found.violation)))
    assert found.violation.name == plant.caught_by, schedule
    assert found.schedule, found.violation
