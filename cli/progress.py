"""A progress bar on stderr: drawn again in place on a terminal, now and then a line elsewhere."""

import sys
import time

from .printing import note

WIDTH = 30
DRAW_S = 0.1
LINE_S = 5.0  # where stderr is a file or a pipe


class Bar:
    """bar(read, there) says how far it has come; leave the block and it is gone."""

    def __init__(self, what: str) -> None:
        self._what, self._drawn = what, 0
        self._began = self._told_at = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def __call__(self, read: int, there: int) -> None:
        now = time.monotonic()
        if there <= 0 or now - self._told_at < (DRAW_S if self._terminal else LINE_S):
            return
        self._told_at = now
        rate = read / max(now - self._began, 0.001)
        text = f"{self._what}: {read:,} of {there:,} events, {rate:,.0f}/s"
        if not self._terminal:
            note(text)
            return
        done = min(WIDTH, WIDTH * read // there)
        shown = f"[{'#' * done}{'.' * (WIDTH - done)}] {100 * read // there:3d}% {text}"
        sys.stderr.write("\r" + shown.ljust(self._drawn))
        sys.stderr.flush()
        self._drawn = len(shown)

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            sys.stderr.write("\r" + " " * self._drawn + "\r")
            sys.stderr.flush()
