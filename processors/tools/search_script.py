"""The search of the tool search_files, run as a separate process; it must not import foldlog.

It is run as `python -I -S search_script.py FD REQUEST`, where FD is an open directory or file and
REQUEST is JSON. A regular expression that backtracks forever cannot be interrupted inside a worker,
but a process can be killed. The script prints each row that it finds as a JSON string, then one
object with counts.
"""

import fnmatch
import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from typing import Any

# Never searched: version control, installed packages and generated files.
SKIPPED = frozenset({".git", "node_modules", ".venv", "__pycache__"})
FILE_BYTES_MAX = 2 * 1024 * 1024  # a larger text file is data that would only fill the rows
BINARY_PROBE_BYTES = 8 * 1024
LINE_CHARS_MAX = 200  # limit of a shown line, because minified files have one line
MATCHES_MAX = 10_000  # the search ends at this count of matches
SEARCH_S = 10.0  # seconds; then the matches found so far are returned
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def files(fd: int) -> Iterator[tuple[str, int, str]]:
    """The files below FD, sorted: (path, descriptor of the directory, name).
    Links are not followed."""
    for path, directories, names, directory in os.fwalk(".", dir_fd=fd):
        directories[:] = sorted(name for name in directories if name not in SKIPPED)
        for name in sorted(names):
            yield os.path.normpath(os.path.join(path, name)), directory, name


def wanted(path: str, glob: str | None) -> bool:
    """Whether a glob matches the name or the whole path; None matches all."""
    if glob is None:
        return True
    short = glob.removeprefix("**/")
    return fnmatch.fnmatchcase(os.path.basename(path), short) or fnmatch.fnmatchcase(path, glob)


def text_of(fd: int) -> str | None:
    """The text of an open file; None if it is not a regular file, too large or binary."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size > FILE_BYTES_MAX:
        return None
    with open(fd, "rb", closefd=False) as file:
        data = file.read(FILE_BYTES_MAX)
    return None if b"\0" in data[:BINARY_PROBE_BYTES] else data.decode("utf-8", "replace")


def matches(path: str, text: str, search: re.Pattern[str]) -> Iterator[str]:
    """One row per matching line."""
    for number, line in enumerate(text.splitlines(), 1):
        if search.search(line):
            line = line.strip()
            cut = line if len(line) <= LINE_CHARS_MAX else line[: LINE_CHARS_MAX - 3] + "..."
            yield f"{path}:{number}: {cut}"


def rows(fd: int, request: dict[str, Any], counts: dict[str, int]) -> Iterator[str]:
    """Yield every row. `counts` gets the number of files searched and skipped."""
    search = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        yield from matches(request["name"], text_of(fd) or "", search)
        return
    for path, directory, name in files(fd):
        shown = os.path.normpath(os.path.join(request["name"], path))
        if not wanted(path, request["glob"]) and not wanted(shown, request["glob"]):
            continue
        try:
            opened = os.open(name, _FLAGS, dir_fd=directory)
        except OSError:  # it is a link, unreadable, or was just deleted
            counts["skipped"] += 1
            continue
        try:
            text = text_of(opened)
        finally:
            os.close(opened)
        counts["skipped" if text is None else "files"] += 1
        if not request["pattern"]:
            yield shown
        elif text is not None:
            yield from matches(shown, text, search)


def main(fd: int, request: dict[str, Any]) -> None:
    """Print the requested rows and count all further rows."""
    until = time.monotonic() + SEARCH_S
    counts = {"files": 0, "skipped": 0, "more": 0, "complete": True}
    first, last = request["offset"], request["offset"] + request["rows"]
    for index, row in enumerate(rows(fd, request, counts)):
        if first <= index < last:
            print(json.dumps(row), flush=True)
        counts["more"] += index >= last
        if index >= MATCHES_MAX or time.monotonic() > until:
            counts["complete"] = False
            break
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), json.loads(sys.argv[2]))
    except (re.error, RecursionError, OverflowError) as error:
        sys.exit(f"the pattern is not a regular expression: {error}")
