"""The request journal: an append-only, fsynced record of what reached the server.

A fact is one JSON line: {at_ms, n, kind, canary, attempt, sha256, ...}. Tests count physical calls
in the journal, independently of foldlog's own log.

Kinds: started, accepted (valid, about to be answered: billed), refused (the request is wrong),
waiting (at a gate), answered (the whole reply was written), faulted (a scripted fault happened),
client_gone (the client disconnected first), dropped (this server stopped first), counted
(count_tokens), failed (a bug of the script or of this server).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Entry = dict[str, Any]
Found = TypeVar("Found")
# How long an assertion waits on a busy machine; a passing test never waits this long.
WAIT_S = 20.0


def read_journal(path: str | Path) -> list[Entry]:
    """Every complete line of a journal file, without a line that is still being written."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


class Journal:
    """Facts in memory and, with a path, in a file. A fact is written and fsynced before `note`
    returns. An existing file is continued with its numbering, so an `n` is never used twice.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._entries: list[Entry] = read_journal(path) if path else []
        self._last = max((entry["n"] for entry in self._entries), default=0)
        self._changed = threading.Condition()
        self._file: int | None = None
        if path:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            self._cut_torn_line(Path(path))

    def _cut_torn_line(self, path: Path) -> None:
        # A kill during a write leaves a partial line, which would make the next line unreadable.
        data = path.read_bytes()
        complete = data.rfind(b"\n") + 1
        if complete != len(data):
            os.truncate(path, complete)

    def next_n(self) -> int:
        """The number for a request that has just arrived."""
        with self._changed:
            self._last += 1
            return self._last

    def note(self, kind: str, n: int = 0, **facts: Any) -> Entry:
        """Append a fact and wake threads that wait for one."""
        entry = {"at_ms": int(time.time() * 1000), "n": n, "kind": kind, **facts}
        with self._changed:
            if self._file is not None:
                os.write(self._file, json.dumps(entry, ensure_ascii=False).encode() + b"\n")
                os.fsync(self._file)
            self._entries.append(entry)
            self._changed.notify_all()
        return entry

    def entries(self, kind: str | None = None, **equal: Any) -> list[Entry]:
        """The facts of a kind whose fields have the given values, oldest first."""
        with self._changed:
            entries = list(self._entries)
        return [
            entry
            for entry in entries
            if (kind is None or entry["kind"] == kind)
            and all(entry.get(key) == value for key, value in equal.items())
        ]

    def count(self, kind: str | None = None, **equal: Any) -> int:
        """The number of facts that `entries` would return."""
        return len(self.entries(kind, **equal))

    def wait_for(self, found: Callable[[Journal], Found], timeout_s: float = WAIT_S) -> Found:
        """Wait until `found(journal)` is true and return its value.

        Raises TimeoutError with the journal's last facts in its message.
        """
        end = time.monotonic() + timeout_s
        checked = -1
        while True:
            value = found(self)
            if value:
                return value
            with self._changed:
                # Do not sleep if a fact was added between the check and the lock.
                if checked == len(self._entries):
                    remaining_s = end - time.monotonic()
                    if remaining_s <= 0 or not self._changed.wait(remaining_s):
                        tail = "\n".join(map(json.dumps, self._entries[-12:]))
                        raise TimeoutError(f"not seen within {timeout_s} s; last facts:\n{tail}")
                checked = len(self._entries)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
