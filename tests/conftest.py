"""Applies to every test: shared fixtures, a hypothesis profile, an environment without settings.

There is no `__init__.py` below tests/ (pytest runs in importlib mode). Import a helper that several
test files use as `from foldlog.tests.NAME import ...`: the editable install maps the package to the
checkout, so such an import works in any directory and loads a helper once.
"""

import atexit
import gc
import logging
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# A script's background job ignores SIGINT, and so would every child: tests that press Ctrl-C would
# wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)



def _end_without_duckdbs_report() -> None:
    """Close stderr if DuckDB is loaded. Otherwise, when a process with a running thread ends,
    DuckDB lists all its objects in hundreds of lines after pytest's summary."""
    if "_duckdb" in sys.modules:
        sys.stderr.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


atexit.register(_end_without_duckdbs_report)  # the first one registered runs last

# print_blob: print a failing example as a decorator that reproduces it elsewhere.
# No deadline: a test must not depend on the load of the machine.
settings.register_profile(
    "foldlog", print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("foldlog")

_SHARED = ("broker", "s3", "node", "browser", "played")
_FIXTURES = tuple(f"foldlog.tests.kit.{name}_fixture" for name in _SHARED)
pytest_plugins = [
    "foldlog.tests.limits",
    "foldlog.tests.cost",
    "foldlog.tests.gate",
    *(name for name in _FIXTURES if find_spec(name)),
]


class RootIsNotATestPackage:
    """Collects the repository root as a plain directory.

    The root has an `__init__.py` because it is the package `foldlog`. Without this, pytest takes
    it for a package of tests and imports it again, under the name of the checkout directory.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(self, path, parent):
        return pytest.Dir.from_parent(parent, path=path) if path == ROOT else None


def pytest_configure(config):
    config.pluginmanager.register(RootIsNotATestPackage())


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Exclude what the collection creates from garbage collection.

    It is a million objects that live until the end. Scanning them again and again took a tenth of
    the CPU time of the tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


# The only settings of the caller that tests get: the mark of .ci/run, and the downloads' place.
_PASSED = {"FOLDLOG_CI_RUN", "FOLDLOG_CACHE_DIR", "FOLDLOG_RUNNING_TESTS"}


@pytest.fixture(scope="session", autouse=True)
def no_settings_of_the_caller(tmp_path_factory):
    """Remove the caller's broker, key, home and client file from the environment.

    The API key is the most important: a test must never call a real model, and pay for it.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("FOLDLOG_", "KAFKA_", "ANTHROPIC_")) and name not in _PASSED:
                patch.delenv(name)
        patch.setenv("FOLDLOG_HOME", str(tmp_path_factory.mktemp("foldlog-home")))
        yield


@pytest.fixture(autouse=True)
def no_log_lines_of_other_tests():
    """Remove log handlers that a command added, because they write to the closed stderr of that
    command's test."""
    before = list(logging.getLogger().handlers)
    yield
    for handler in list(logging.getLogger().handlers):
        if type(handler) is logging.StreamHandler and handler not in before:
            logging.getLogger().removeHandler(handler)
