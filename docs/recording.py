"""Records docs/images/killed-worker.svg from a real run: `make recording`.

It starts a broker, `foldlog dev` with the README's agent, and two terminals: a chat, and a shell
that kills the worker with SIGKILL while its answer streams. The model is scripted, so the answer is
always the same; everything else is what happened on this machine. In the picture, a longer pause is
shortened to PAUSE_S.
"""

import codecs
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from inspect import getsource
from pathlib import Path

from foldlog.docs import terminal_svg
from foldlog.docs.running import ANSWER, QUESTION, fingerprint, running
from foldlog.docs.tables import ROOT
from foldlog.docs.terminal_svg import Recording, Row, Screen, shortened, svg

PICTURE = ROOT / "docs" / "images" / "killed-worker.svg"
DESCRIPTION = (
    "Two terminals. In the first a person chats with an agent; while the answer streams, its "
    "worker is killed with SIGKILL in the second. A new worker takes over, and the answer arrives "
    "whole. The log shows two attempts, of which the second completed."
)
COLUMNS = 80
KEY_S = 0.03  # between two keys
PAUSE_S = 2.0
WAIT_S = 120.0
KILL_AFTER = "If you wore"  # words of the answer, in the middle of a sentence


class Terminal:
    """A shell in its own terminal, with the time and content of each change of the screen."""

    def __init__(
        self, title: str, rows: int, directory: Path, env: Mapping[str, str]
    ) -> None:
        self.title, self.screen = title, Screen(COLUMNS, rows)
        self.moments: list[tuple[float, tuple[Row, ...]]] = []
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            ["sh", "-i"], stdin=slave, stdout=slave, stderr=slave, cwd=directory,
            env={**env, "PS1": "$ ", "TERM": "xterm"}, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def read(self) -> None:
        """Read the new output and note the screen."""
        self.screen.feed(self._decoder.decode(os.read(self.master, 65_536)))
        self.moments.append((time.monotonic(), self.screen.rows()))

    def close(self) -> None:
        """End the shell and the processes in it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGHUP)
        self.process.kill()
        self.process.wait()
        os.close(self.master)


class Terminals:
    """Both terminals, which are read together, so that typing in one does not stop recording the
    other.
    """

    def __init__(self, terminals: Sequence[Terminal]) -> None:
        self.terminals = terminals

    def read(self, timeout_s: float) -> None:
        """Read the output of all terminals, waiting at most `timeout_s` for it."""
        by_fd = {terminal.master: terminal for terminal in self.terminals}
        for fd in select.select(list(by_fd), [], [], timeout_s)[0]:
            by_fd[fd].read()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Read until the condition is true. Raises TimeoutError, which names `what` was awaited."""
        end = time.monotonic() + WAIT_S
        while not condition():
            if time.monotonic() > end:
                shown = "\n\n".join(terminal.screen.text() for terminal in self.terminals)
                raise TimeoutError(f"{what} did not appear within {WAIT_S:g} s:\n{shown}")
            self.read(0.1)

    def type(self, terminal: Terminal, keys: str) -> None:
        """Type keys at a readable pace."""
        for key in keys:
            os.write(terminal.master, key.encode())
            end = time.monotonic() + KEY_S
            while (rest := end - time.monotonic()) > 0:
                self.read(rest)


def main() -> None:
    """Record, and write the picture."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        env = stack.enter_context(running(directory)).env
        chat = Terminal("terminal 1: a chat", 17, directory, env)
        stack.callback(chat.close)
        shell = Terminal("terminal 2: the machine that the worker runs on", 8, directory, env)
        stack.callback(shell.close)
        _play(Terminals([chat, shell]), chat, shell)
    times = sorted({at for terminal in (chat, shell) for at, _ in terminal.moments})
    recordings = [
        Recording(t.title, COLUMNS, t.screen.height, shortened(t.moments, times, PAUSE_S))
        for t in (chat, shell)
    ]
    PICTURE.write_text(svg(recordings, DESCRIPTION, made_by()), "utf-8")
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size / 1024:.0f} KB")


def made_by() -> str:
    """The fingerprint of the sources of the picture."""
    return fingerprint(getsource(sys.modules[__name__]), getsource(terminal_svg))


def _play(both: Terminals, chat: Terminal, shell: Terminal) -> None:
    """Chat, kill the worker in the middle of its answer, and wait for the whole answer."""
    both.until(lambda: "$" in chat.screen.text() and "$" in shell.screen.text(), "a prompt")
    both.type(chat, "foldlog chat --agent shop returns\r")
    both.until(lambda: _last_line(chat) == ">", "the prompt of the chat")
    both.type(shell, "foldlog status | grep -o 'process [0-9]*'\r")
    both.until(lambda: _worker(shell), "the worker's process")
    pid = _worker(shell)
    both.until(lambda: _last_line(shell) == "$", "the prompt of the shell")
    both.type(chat, QUESTION + "\r")
    both.type(shell, f"kill -9 {pid}")
    both.until(lambda: KILL_AFTER in _flat(chat), "the middle of the answer")
    both.type(shell, "\r")
    killed = time.monotonic()
    both.until(lambda: "attempt 2" in _flat(chat), "the takeover")
    print(f"the next worker took over {time.monotonic() - killed:.1f} s after the kill")
    both.until(lambda: f"{' '.join(ANSWER.split())} [turn 1:" in _flat(chat), "the whole answer")
    both.until(lambda: _last_line(chat) == ">", "the prompt of the chat")
    both.type(shell, "foldlog tail returns | grep -o 'GEN_.* attempt [0-9]*'\r")
    both.until(lambda: "GEN_COMPLETE" in shell.screen.text(), "the attempts in the log")
    both.until(lambda: _last_line(shell) == "$", "the prompt of the shell")


def _worker(terminal: Terminal) -> str | None:
    """The worker's process id, as `foldlog status` printed it."""
    found = re.search(r"^process (\d+)$", terminal.screen.text(), re.MULTILINE)
    return found and found[1]


def _flat(terminal: Terminal) -> str:
    """The text on a terminal, with its lines joined."""
    rows = ["".join(cell.text for cell in row) for row in terminal.screen.rows()]
    full = [row if len(row) == COLUMNS else row + "\n" for row in rows]
    return " ".join("".join(full).split())


def _last_line(terminal: Terminal) -> str:
    return next(line for line in reversed(terminal.screen.text().splitlines()) if line)


if __name__ == "__main__":
    main()
