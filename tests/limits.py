"""Ends a run that would not end by itself, and names the test: the limit after pytest-timeout.

A pytest plugin, loaded by tests/conftest.py. pytest-timeout fails a test from a signal, in the main
thread. It cannot end a thread (`asyncio.to_thread` is joined when its loop closes), so this plugin
ends the whole process GRACE_S later; `make test` does not replace it, so the run ends too.
"""

import contextlib
import faulthandler
import os
import threading
from collections.abc import Iterator
from time import monotonic, sleep  # bound here: tests replace those of the module `time`
from typing import NoReturn

import pytest

GRACE_S = 30.0
POLL_S = 0.5
EXIT_CODE = 70

_stderr = 2


class _Limit:
    """What this process does now, and when (monotonic seconds) it must have ended."""

    what = "the start"
    deadline = float("inf")


def end_run(reason: str) -> NoReturn:
    """End this process at once: print the reason and the stack of every thread."""
    os.write(_stderr, f"\nfoldlog tests: {reason}\n".encode(errors="replace"))
    faulthandler.dump_traceback(_stderr)
    os._exit(EXIT_CODE)


def _watch() -> None:
    while True:
        sleep(POLL_S)
        if monotonic() > _Limit.deadline:
            end_run(f"{_Limit.what} did not end within its limit and {GRACE_S:g} s")


def _limit_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    if marker is not None:
        return float(marker.kwargs.get("timeout", marker.args[0] if marker.args else 0))
    return float(item.config.getini("timeout") or 0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the limit of this machine."""
    from foldlog.tests.kit.slowness import allowed

    for item in items:
        if limit_s := _limit_s(item):
            item.add_marker(pytest.mark.timeout(allowed(limit_s)), append=False)


def pytest_configure() -> None:
    global _stderr
    _stderr = os.dup(2)  # pytest captures the descriptor 2 during tests
    threading.Thread(target=_watch, name="limits", daemon=True).start()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Start the clock of a test, its fixtures included."""
    limit_s = _limit_s(item)
    _Limit.what = item.nodeid
    _Limit.deadline = monotonic() + limit_s + GRACE_S if limit_s else float("inf")
    with _named(item.nodeid):
        yield
    _Limit.deadline = float("inf")


@contextlib.contextmanager
def _named(nodeid: str) -> Iterator[None]:
    """Write the running test to the directory that .ci/run prints when its own limit passes."""
    directory = os.environ.get("FOLDLOG_RUNNING_TESTS")
    if directory is None:
        yield
        return
    path = os.path.join(directory, str(os.getpid()))
    with open(path, "w", encoding="utf-8") as file:
        file.write(nodeid + "\n")
    yield
    os.unlink(path)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Threads that outlive the tests are joined at exit; that must end as well.

    A process of pytest-xdist now waits until the others have ended, and is killed then.
    """
    _Limit.what = f"the exit after {_Limit.what}"
    if not hasattr(config, "workerinput"):
        _Limit.deadline = monotonic() + GRACE_S


@contextlib.contextmanager
def alive(pid: int, what: str, log: str) -> Iterator[None]:
    """End the run when the process `pid`, which tests share, dies during the block.

    what: its name. log: the path of its log, whose tail is printed.
    """
    from foldlog.local.kafka import process

    stopping = threading.Event()

    def watch() -> None:
        while not stopping.is_set():
            if process.wait_gone(pid, POLL_S) and not stopping.is_set():
                with open(log, encoding="utf-8", errors="replace") as file:
                    tail = file.read()[-4000:]
                end_run(f"{what} (process {pid}) died during {_Limit.what}; its log ends:\n{tail}")

    watcher = threading.Thread(target=watch, name=f"health of {what}", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stopping.set()
        watcher.join(GRACE_S)
