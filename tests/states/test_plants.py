"""The search finds every planted fault, by the property that the plant names."""

import pytest

from foldlog.tests.simulation.plants import PLANTS
from foldlog.tests.states.search import Search
from foldlog.tests.states.system import System
from foldlog.tests.states.variants import BY_NAME

STATES_MAX = 5_000  # each plant is found within so many states


@pytest.mark.parametrize(
    "plant", [plant for plant in PLANTS if plant.searched], ids=lambda plant: plant.name
)
def test_a_planted_fault_is_found(plant, monkeypatch):
    plant.put(monkeypatch)
    wanted = plant.searched
    system = System(BY_NAME[wanted.variant], wanted.faults, wanted.jumps)
    found = Search(system, states_max=STATES_MAX).run()
    if found.violation is None:
        pytest.fail(f"no schedule in {found.states} states violates {wanted.caught_by}")
    schedule = "\n".join((*found.schedule, str(found.violation)))
    assert found.violation.name == wanted.caught_by, schedule
    assert found.schedule, found.violation
