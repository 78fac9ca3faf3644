"""A progress bar on stderr: redrawn in place on a terminal, a line every LINE_S elsewhere."""

import sys
import time

from .printing import note

WIDTH = 30
DRAW_S = 0.1
LINE_S = 5.0  # where stderr is a file or a pipe


class Bar:
    """`bar(read, total)` draws the progress; the end of the block erases the bar."""

    def __init__(self, what: str, unit: str = "events") -> None:
        self._what, self._unit, self._drawn = what, unit, 0
        self._began = self._printed_at = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def __call__(self, read: int, total: int) -> None:
        now = time.monotonic()
        if total <= 0 or now - self._printed_at < (DRAW_S if self._terminal else LINE_S):
            return
        self._printed_at = now
        rate = read / max(now - self._began, 0.001)
        text = f"{self._what}: {read:,} of {total:,} {self._unit}, {rate:,.0f}/s"
        if not self._terminal:
            note(text)
            return
        filled = min(WIDTH, WIDTH * read // total)
        bar = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {100 * read // total:3d}% {text}"
        sys.stderr.write("\r" + bar.ljust(self._drawn))
        sys.stderr.flush()
        self._drawn = len(bar)

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            sys.stderr.write("\r" + " " * self._drawn + "\r")
            sys.stderr.flush()
