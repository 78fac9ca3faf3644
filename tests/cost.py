"""With `--cost`, prints the CPU time of the tests per directory and of the ten dearest files.

A pytest plugin, loaded by tests/conftest.py. It counts this process and the children that have
ended; a server that lives as long as the run (a broker) counts for the run alone.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath

import pytest

FILES_SHOWN = 10


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class _Costs:
    """CPU seconds: those of this process at the last report, and of each file (in the process that
    prints)."""

    last = 0.0
    files: Counter[str] = Counter()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cost", action="store_true", help="print the CPU time per directory")


def pytest_sessionstart() -> None:
    _Costs.last = _cpu_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Add what the phase of a test cost to its report, which pytest-xdist sends to one process."""
    report = yield
    now = _cpu_s()
    report.cpu_s, _Costs.last = now - _Costs.last, now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _Costs.files[report.nodeid.partition("::")[0]] += getattr(report, "cpu_s", 0.0)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if not config.getoption("--cost"):
        return
    directories: Counter[str] = Counter()
    for file, cpu_s in _Costs.files.items():
        directories["/".join(PurePath(file).parts[:2])] += cpu_s
    write = terminalreporter.write_line
    terminalreporter.section("CPU seconds")
    for name, cpu_s in [*directories.most_common(), *_Costs.files.most_common(FILES_SHOWN)]:
        write(f"{cpu_s:8.1f}  {name}")
    write(f"{sum(directories.values()):8.1f}  in all, without servers that live as long as the run")
