"""Which cases the gate leaves out: a costly one that resembles others of its file, with the marker
`full`. It runs only with `--full`. A pytest plugin, loaded by tests/conftest.py.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run also the cases of the marker full")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    items[:] = [item for item in items if not item.get_closest_marker("full")]
    config.hook.pytest_deselected(items=left_out)
