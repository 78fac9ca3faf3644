"""Runs commands in the test's process: the real command line, over a log in memory."""

import contextlib
import io
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from foldlog.cli.__main__ import main
from foldlog.cli.edge import Edge
from foldlog.log import Log
from foldlog.tests.kit.played import Played, memory_log, settings_in

WAIT_S = 20.0
"""Long enough for a busy machine: an expected event arrives at once, or never."""

UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What can control a terminal, or change the direction of its text."""


class Ran(NamedTuple):
    """The result of one command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> list[dict]:
        """Each line of stdout as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


class Shell:
    """Runs commands: `shell("send s1", "hello there", "--wait")`. The first argument is split at
    spaces."""

    def __init__(self, log: Log, directory: Path, capsys: pytest.CaptureFixture) -> None:
        self.log, self.settings, self._capsys = log, settings_in(directory), capsys

    def __call__(self, command: str, *more: str, stdin: str = "") -> Ran:
        edge = Edge(self.settings, self.log)
        before, sys.stdin = sys.stdin, io.StringIO(stdin)
        self._capsys.readouterr()
        try:
            code = main([*command.split(), *more], edge)
        finally:
            sys.stdin = before
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return Ran(code, out, err)


def make_shell(tmp_path: Path, capsys: pytest.CaptureFixture, *, threaded: bool = False) -> Shell:
    return Shell(memory_log(threaded=threaded), tmp_path, capsys)


@contextlib.contextmanager
def playing(work: Callable[[], None]) -> Iterator[None]:
    """Run a worker in a thread; an exception in the thread fails the test."""
    failed: list[BaseException] = []

    def run():
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(WAIT_S)
        assert not failed, failed
        assert not thread.is_alive(), "the played worker still waits for an event"


def turn_opens(played: Played, number: int = 1) -> None:
    played.wait(lambda views: views.turn.open and views.turn.number == number)
