"""Shows progress on stderr: a bar for work that can be counted, a clock for a wait.

On a terminal the bar and the clock are redrawn in place and disappear at the end; otherwise a line
is printed every LINE_S. Nothing is shown for work that takes less than a moment.
"""

import shutil
import sys
import threading
import time

from .printing import note

WIDTH = 30
SHOW_AFTER_S = 0.5
DRAW_S = 0.1
LINE_S = 5.0  # where stderr is a file or a pipe
TICK_S, CLOCK_LINE_S = 1.0, 15.0


class Line:
    """A line on stderr that is drawn again in place."""

    _drawn = 0

    def draw(self, text: str) -> None:
        """Draw the text, as far as it fits the terminal."""
        text = text[: max(1, shutil.get_terminal_size().columns - 1)]
        sys.stderr.write("\r" + text.ljust(self._drawn))
        sys.stderr.flush()
        self._drawn = len(text)

    def erase(self) -> None:
        """Remove the line if it is drawn, so that other text may follow."""
        if self._drawn:
            sys.stderr.write("\r" + " " * self._drawn + "\r")
            sys.stderr.flush()
        self._drawn = 0


class Bar(Line):
    """`bar(read, total)` draws the progress.

    The call with `read` equal to `total`, or the end of the block, erases the bar.
    """

    def __init__(self, what: str, unit: str = "events") -> None:
        self._what, self._unit = what, unit
        self._terminal = sys.stderr.isatty()
        self._restart()

    def _restart(self) -> None:
        self._began = time.monotonic()
        first = SHOW_AFTER_S if self._terminal else LINE_S
        self._next = self._began + first

    def __call__(self, read: int, total: int) -> None:
        now = time.monotonic()
        if read >= total:
            self.erase()
        if read == 0 or read >= total:
            self._restart()
        if read >= total or now < self._next:
            return
        self._next = now + (DRAW_S if self._terminal else LINE_S)
        rate = read / max(now - self._began, 0.001)
        text = f"{self._what}: {read:,} of {total:,} {self._unit}, {rate:,.0f}/s"
        if not self._terminal:
            note(text)
            return
        filled = min(WIDTH, WIDTH * read // total)
        self.draw(f"[{'#' * filled}{'.' * (WIDTH - filled)}] {100 * read // total:3d}% {text}")

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        self.erase()


class Clock(Line):
    """`with Clock("waiting") as clock:` shows how long the block has taken; print with its `note`.
    """

    def __init__(self, what: str) -> None:
        self._what, self._terminal = what, sys.stderr.isatty()
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)

    def note(self, text: str) -> None:
        """Print a line above the clock."""
        with self._lock:
            self.erase()
            note(text)

    def _run(self) -> None:
        began = time.monotonic()
        pause = TICK_S if self._terminal else CLOCK_LINE_S
        while not self._stop.wait(pause):
            text = f"{self._what}, {time.monotonic() - began:.0f} s"
            with self._lock:
                self.draw(f"… {text}") if self._terminal else note(text)

    def __enter__(self) -> "Clock":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.erase()
