"""Progress on stderr: a slow command shows it, a quick one shows nothing, and stdout has only
data."""

import io
import sys
import threading

import pytest

from foldlog.cli.edge import Edge
from foldlog.cli.terminal import progress
from foldlog.cli.terminal.progress import Bar, Clock
from foldlog.client.session import Session
from foldlog.tests.cli.harness import WAIT_S
from foldlog.tests.kit.played import memory_log, settings_in


class Screen(io.StringIO):
    """A stderr that is a terminal. `see` waits until a text is written."""

    def __init__(self) -> None:
        super().__init__()
        self._written = threading.Condition()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._written:
            self._written.notify_all()
            return super().write(text)

    def see(self, text: str) -> None:
        with self._written:
            assert self._written.wait_for(lambda: text in self.getvalue(), WAIT_S), self.getvalue()


def at_terminal(monkeypatch) -> Screen:
    """Make stderr a terminal. This is not a fixture, because pytest sets stderr again before the
    test."""
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    return screen


def test_quick_work_shows_no_bar(monkeypatch):
    screen = at_terminal(monkeypatch)
    bar = Bar("read", "records")
    for read in range(1000):
        bar(read, 1000)
    bar(1000, 1000)
    assert screen.getvalue() == ""


def test_a_bar_disappears_when_all_is_read_and_before_other_text(monkeypatch):
    screen = at_terminal(monkeypatch)
    monkeypatch.setattr(progress, "SHOW_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "DRAW_S", 0.0)
    bar = Bar("read", "records")
    bar(50, 200)
    assert " 25% read: 50 of 200 records" in screen.getvalue()
    bar.erase()
    assert screen.getvalue().endswith(" \r")
    bar(100, 200)
    bar(200, 200)
    assert " 50% " in screen.getvalue() and screen.getvalue().endswith(" \r")


@pytest.mark.parametrize("command", ["client.everything()", "Session(client, 's1').views()"])
def test_every_read_of_the_log_by_a_command_is_counted(tmp_path, command):
    client = Edge(settings_in(tmp_path), memory_log()).client()
    assert isinstance(client.progress, Bar)
    Session(client, "s1").open()
    seen: list[tuple[int, int]] = []
    client.progress = lambda read, total: seen.append((read, total))
    eval(command)
    assert seen[0][0] == 0 and seen[-1][0] == seen[-1][1] > 0


def test_a_clock_shows_how_long_and_stays_below_notes(monkeypatch):
    screen = at_terminal(monkeypatch)
    monkeypatch.setattr(progress, "TICK_S", 0.01)
    with Clock("waiting for the answer") as clock:
        screen.see("… waiting for the answer, 0 s")
        clock.note("the session waits for approval")
        screen.see("the session waits for approval\n\r… waiting for the answer, ")
    written = screen.getvalue()
    assert " \rthe session waits" in written, "the clock is removed first"
    assert written.endswith(" \r")


def test_in_a_file_the_clock_is_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(progress, "CLOCK_LINE_S", 0.01)
    printed = threading.Event()
    real = progress.note
    monkeypatch.setattr(progress, "note", lambda text: (real(text), printed.set()))
    with Clock("moving"):
        assert printed.wait(WAIT_S)
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("moving, 0 s\n")
