"""What every test gets: broker fixtures, a hypothesis profile, a root that is no test package.

There is no `__init__.py` below tests/ (pytest runs in importlib mode). Helpers that several test
files share are imported as `from foldlog.tests.NAME import ...`: the editable install maps the
package to the checkout, so that spelling works from any directory and loads a helper once.
"""

import atexit
import logging
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# A run in the background of a script has SIGINT ignored, and every child would inherit that: tests
# that press Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)



def _end_without_duckdbs_report() -> None:
    """Close stderr where DuckDB is loaded: at the end of a process with a thread that still runs it
    lists every object of its own, hundreds of lines behind what pytest says of the tests."""
    if "_duckdb" in sys.modules:
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


atexit.register(_end_without_duckdbs_report)  # the first one registered runs last

# print_blob: a failing example is printed as a decorator that reproduces it elsewhere.
# No deadline: a test must not depend on how busy the machine is.
settings.register_profile(
    "foldlog", print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("foldlog")

_SHARED = ("broker", "node", "browser", "played")
_FIXTURES = tuple(f"foldlog.tests.{name}_fixture" for name in _SHARED)
pytest_plugins = [name for name in _FIXTURES if find_spec(name)]


class RootIsNoTestPackage:
    """Collects the repository root as a plain directory.

    The root holds an `__init__.py` because it is the package `foldlog`. Left alone, pytest takes
    it for a package of tests and imports it a second time, named after the checkout directory.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(self, path, parent):
        return pytest.Dir.from_parent(parent, path=path) if path == ROOT else None


def pytest_configure(config):
    config.pluginmanager.register(RootIsNoTestPackage())


# What a test run keeps of the caller's settings: the mark of .ci/run and where downloads lie.
_KEPT = {"FOLDLOG_CI_RUN", "FOLDLOG_CACHE_DIR"}


@pytest.fixture(scope="session", autouse=True)
def no_settings_of_the_caller(tmp_path_factory):
    """No broker, key, home or client file of whoever runs the tests reaches a test or its children.

    Above all no API key: a test must never be answered, or billed, by a real model.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("FOLDLOG_", "KAFKA_", "ANTHROPIC_")) and name not in _KEPT:
                patch.delenv(name)
        patch.setenv("FOLDLOG_HOME", str(tmp_path_factory.mktemp("foldlog-home")))
        yield


@pytest.fixture(autouse=True)
def no_log_lines_of_other_tests():
    """A command of ours sends log lines to the stderr of its test, which is closed behind it."""
    before = list(logging.getLogger().handlers)
    yield
    for handler in list(logging.getLogger().handlers):
        if type(handler) is logging.StreamHandler and handler not in before:
            logging.getLogger().removeHandler(handler)
