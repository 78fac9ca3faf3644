"""Searches small systems with every run of the tests; `make check-states` searches larger ones."""

import os
import sys

import pytest

from foldlog.tests.kit.programs import run
from foldlog.tests.states.__main__ import main
from foldlog.tests.states.continuations import Continuations
from foldlog.tests.states.search import Search, described
from foldlog.tests.states.system import System
from foldlog.tests.states.variants import BY_NAME

# (variant, faults, jumps of the clock, depth) and the number of states within it. Another number
# means that the code does something else than before, or that the search has other actions.
BOUNDS = {
    ("once", 0, 0, None): 107,
    ("idempotent", 0, 0, None): 105,
    ("reconciled", 0, 0, None): 107,
    ("approved", 0, 0, None): 152,
    ("streamed", 0, 0, None): 188,
    ("once", 0, 1, 9): 1682,
    ("once", 1, 0, 6): 1416,
    ("streamed", 1, 0, 6): 1556,
    ("once", 1, 1, 5): 4508,
}


@pytest.mark.parametrize("bounds", BOUNDS, ids=lambda bounds: "-".join(map(str, bounds)))
def test_every_property_holds_in_every_state(bounds):
    name, faults, jumps, depth = bounds
    found = Search(System(BY_NAME[name], faults, jumps), depth_max=depth or 10**9).run()
    if found.violation is not None:
        pytest.fail("\n".join((*found.schedule, str(found.violation))))
    assert found.states == BOUNDS[bounds]
    assert found.complete == (depth is None)


def test_a_dispute_lasts_until_the_doubt_of_an_ended_turn_is_settled():
    """The defect: after TURN_ENDED the session counted as done, but row T8w still had to find out
    whether the call happened."""
    system = System(BY_NAME["once"], faults=1, jumps=0)
    state = system.initial
    claimed = ("a assign", "a round 3", "a round 3", "a end 0 answers", "a round 1")
    for action in (*claimed, "move", "b assign", "cancel"):
        label = next(one for one in system.labels(state) if described(one) == action)
        state = system.after(state, label)
    Continuations(system).check(state)


def test_the_search_is_the_same_in_every_process():
    """The hash of a text differs from process to process, and nothing may depend on it."""
    command = [sys.executable, "-m", "foldlog.tests.states", "--variant", "reconciled"]
    command += ["--faults", "1", "--depth", "4"]
    lines = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        ran = run(command, env=environment, check=True)
        lines.append(ran.stdout.rpartition(", ")[0])  # without the time
    assert lines[0] == lines[1]
    assert "every state up to depth 4" in lines[0]


def test_a_violation_is_reported_with_its_shortest_schedule(capsys, monkeypatch):
    monkeypatch.setattr("foldlog.tests.states.continuations.STEPS_MAX", 3)
    assert main(["--variant", "once", "--faults", "0"]) == 1
    output = capsys.readouterr().out.splitlines()
    assert output[0].strip() == "1 continue without a fault"
    assert output[-1].startswith("once, 0 faults, 0 jumps: Liveness: not done after 3 steps")
