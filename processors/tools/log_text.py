"""Recognizes logs, and cuts them to their last lines.

A log grows at its end and has the newest errors there, so the last lines matter more than thousands
of first lines. Pure functions on text.
"""

import re
from collections.abc import Iterator
from itertools import islice

LOG_LINES_MAX = 200  # the last 200 lines are shown
SAMPLE_LINES = 400  # how many lines at the end of a text are examined: enough to decide
LOG_SHARE = 0.5  # share of lines that begin an entry; stack traces and wrapped lines are indented

_DATE = r"\d{4}[-/]\d\d[-/]\d\d"
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|SEVERE)"
_ENTRY = re.compile(
    # 2026-01-31T12:00:00Z, Jan 31 12:00:00, [31/Jan/2026:12:00:00 +0000], 12:00:00.123
    rf"\W?(?:{_DATE}[T ]|[A-Z][a-z]{{2}} [ \d]\d )?{_TIME}[\s\]|]"
    rf"|\S+ \S+ \S+ \[\d\d/[A-Z][a-z]{{2}}/\d{{4}}:"  # of web servers
    rf"|\W?{_LEVEL}\b"
    r"|\[ *\d+\.\d{6}\] "  # of kernels
    r"|time=\S+ level="
    r'|\{"(?:time|timestamp|ts|@timestamp|level)":'
)
NUMBERED = re.compile(r"\A *\d+\t")  # the format in which tools number the lines of a file


def looks_like_log(text: str, *, numbered: bool = False) -> bool:
    """Whether a text looks like a log, judged by its last lines.

    numbered: ignore the line numbers that a tool put before the lines.
    """
    lines = text[-SAMPLE_LINES * 200 :].splitlines()[-SAMPLE_LINES:]
    if numbered:
        lines = [NUMBERED.sub("", line, count=1) for line in lines]
    begins = [line for line in lines if line[:1].strip()]
    entries = sum(_ENTRY.match(line) is not None for line in begins)
    return entries > 2 and entries >= LOG_SHARE * len(begins)


def last_lines(text: str, count: int = LOG_LINES_MAX) -> str:
    """The last lines of a text; the whole text if it has fewer."""
    start = next(islice(_line_ends_backwards(text), count - 1, None), -1) + 1
    return text[start:]


def _line_ends_backwards(text: str) -> Iterator[int]:
    """The positions of line ends, from the last to the first, without the one at the text's end."""
    place = text.rfind("\n", 0, max(0, len(text) - 1))
    while place != -1:
        yield place
        place = text.rfind("\n", 0, place)


__all__ = ["LOG_LINES_MAX", "NUMBERED", "last_lines", "looks_like_log"]
