"""Laws as tests: each law checks one history, and all laws share the same histories.

Long histories come from a seed and are made once; histories that hypothesis draws shrink to a small
counterexample. A failing history is printed with its seed, and `history_of(SEED)` makes it again.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

from hypothesis import given, settings, strategies as st

from foldlog.tests.laws.random_history import ACTS, RandomHistory, Rolled
from foldlog.tests.laws.resumed import recovery_fields

SEEDS = 120  # seeds of the shared long histories; `python -m foldlog.tests.laws` takes more
DRAWN_ACTS = 25  # per drawn history: draws are slow, and shrinking needs hundreds of them
LAW = settings(max_examples=30)  # per law; all laws share the seeded histories


@cache
def _numbers(low: int, high: int):
    return st.integers(low, high)


class Drawn:
    """Choices that hypothesis makes."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def number(self, low: int, high: int) -> int:
        return self._draw(_numbers(low, high))

    def pick(self, options: Any) -> Any:
        return options[self._draw(_numbers(0, len(options) - 1))]

    def chance(self, percent: int) -> bool:
        return self._draw(_numbers(0, 99)) >= 100 - percent  # shrinks to False


@lru_cache(maxsize=1_000)
def history_of(seed: int, forged: bool = False) -> RandomHistory:
    """The long history of a seed. It is made once, and all laws share it."""
    history = RandomHistory(Rolled(seed), forged, recovery_fields(seed, forged))
    history.seed = seed
    return history.grow(ACTS)


@st.composite
def _drawn(draw: Any, forged: bool) -> RandomHistory:
    return RandomHistory(Drawn(draw), forged).grow(draw(_numbers(0, DRAWN_ACTS)))


def histories(*, forged: bool = False) -> st.SearchStrategy[RandomHistory]:
    """Histories: long ones from a seed, and drawn ones that shrink to a small counterexample.

    `forged`: they include events that no correct worker writes.
    """
    seeded = _numbers(0, SEEDS - 1).map(lambda seed: history_of(seed, forged))
    return st.one_of(seeded, _drawn(forged), seeded)


class Law(NamedTuple):
    """A check of one history. `forged`: the check also holds for histories with forged events."""

    name: str
    check: Callable[[RandomHistory], None]
    forged: bool


LAWS: list[Law] = []


def law(*, forged: bool = False) -> Callable[[Callable[[RandomHistory], None]], Callable[[], None]]:
    """Make a test that checks a law over many histories: `@law(forged=True) def
    test_...(history)`."""

    def over_histories(check: Callable[[RandomHistory], None]) -> Callable[[], None]:
        LAWS.append(Law(check.__name__, check, forged))
        return LAW(given(histories(forged=forged))(check))

    return over_histories
