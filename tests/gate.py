"""Which cases the gate leaves out, and in which order it runs the files.

A pytest plugin, loaded by tests/conftest.py. A costly case that resembles others of its file has
the marker `full`, and runs only with `--full`. Files that kill processes or use a broker come
first, because their tests are long: the run then ends with short ones, on every core.
"""

import pytest

_FIRST = ("crash", "broker")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run also the cases of the marker full")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ranks = {item.path: len(_FIRST) for item in items}
    for item in items:
        ranks[item.path] = min(ranks[item.path], _rank(item))
    items.sort(key=lambda item: ranks[item.path])
    if not config.getoption("--full"):
        left_out = [item for item in items if item.get_closest_marker("full")]
        items[:] = [item for item in items if not item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)


def _rank(item: pytest.Item) -> int:
    found = [n for n, name in enumerate(_FIRST) if item.get_closest_marker(name)]
    return min(found, default=len(_FIRST))
