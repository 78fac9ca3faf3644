"""How a test gets a session into a phase."""

from functools import cache

from foldlog.processors.fold.transitions import FIRST_PHASE, TRANSITIONS
from foldlog.tests.kit.history import History


@cache
def way_to(phase: str) -> tuple[str, ...]:
    """The triggers of a shortest way from the first phase to this one."""
    ways: dict[str, tuple[str, ...]] = {FIRST_PHASE: ()}
    for at in (found := [FIRST_PHASE]):
        for trigger, after in TRANSITIONS[at].items():
            if after not in ways:
                ways[after] = (*ways[at], trigger)
                found.append(after)
    return ways[phase]


def in_phase(history: History, phase: str) -> History:
    """The session, which is new, after its way to the phase."""
    for trigger in way_to(phase):
        assert history.trigger(trigger).accepted
    assert history.state.phase == phase
    return history
