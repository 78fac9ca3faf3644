"""Which cases the gate leaves out, and in which order it runs the files.

A pytest plugin, loaded by tests/conftest.py. A costly case that resembles others of its file has
the marker `full`, and runs only with `--full`. Files that need a broker come first, as their tests
take longest, then files with many tests, so that all processes work to the end. Between them come
those of the marker `spread`, one at a time: several clusters at once leave too little of the
machine to each other.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

BETWEEN = 20
"""How many other files begin from one file of the marker spread to the next."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run also the cases of the marker full")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--full"):
        left_out = [item for item in items if item.get_closest_marker("full")]
        items[:] = [item for item in items if not item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)
    of_file: dict[Path, list[pytest.Item]] = {}
    for item in items:
        of_file.setdefault(item.path, []).append(item)
    items[:] = [item for path in _order(of_file) for item in of_file[path]]


def _order(of_file: dict[Path, list[pytest.Item]]) -> list[Path]:
    """The files in the order in which they begin."""
    spread = [path for path, items in of_file.items() if _has(items, "spread")]
    others = sorted(
        of_file.keys() - {*spread},
        key=lambda path: (not _has(of_file[path], "broker"), -len(of_file[path]), path),
    )
    order: list[Path] = []
    for number, path in enumerate(others):
        if spread and number % BETWEEN == 0:
            order.append(spread.pop(0))
        order.append(path)
    return order + spread


def _has(items: Iterable[pytest.Item], marker: str) -> bool:
    return any(item.get_closest_marker(marker) for item in items)
