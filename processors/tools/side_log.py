"""The side log: a record of a tool call's effect, stored outside the log, which survives crashes.

There is one file per call, named by session and call key; the attempts of the call share it. An
idempotent call that ran before returns the earlier result. A `once` tool may record its effect, so
that a reconciler finds the record. If a file is lost, an idempotent call is repeated or a person is
asked, but no result becomes wrong.
"""

import contextlib
import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...log.durable_files import fsync_directory, write_durably

_MISSING = object()
ENTRIES_MAX = 20_000  # an entry is needed until its turn ends; 20,000 calls are days of work


class SideLogStore:
    """Side logs below one directory, which several workers may share."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)

    def of(self, session_id: str, call_key: str) -> "SideLog":
        """The side log of one call."""
        return SideLog(self.directory, session_id, call_key)

    def prune(self, keep: int = ENTRIES_MAX) -> int:
        """Delete all but the newest entries. Returns how many were deleted.
        Called when a worker starts."""
        found = []
        for path in self.directory.glob("??/*"):
            with contextlib.suppress(FileNotFoundError):
                found.append((path.stat().st_mtime_ns, path))
        surplus = sorted(found)[: max(0, len(found) - keep)]
        for _, path in surplus:
            path.unlink(missing_ok=True)
        return len(surplus)


class SideLog:
    """The record of one call. A tool uses it as `ctx.side_log`."""

    def __init__(self, directory: Path, session_id: str, call_key: str) -> None:
        self._named = {"session_id": session_id, "call_key": call_key}
        name = sha256(f"{session_id}\n{call_key}".encode()).hexdigest()
        self._path = directory / name[:2] / name

    @property
    def has_result(self) -> bool:
        """Whether an attempt of this call has recorded a result."""
        return self._read().get("value", _MISSING) is not _MISSING

    def result(self, default: Any = None) -> Any:
        """The value that an attempt of this call recorded, else the default."""
        return self._read().get("value", default)

    def record(self, value: Any, *, beside: Mapping[str, Any] | None = None) -> None:
        """Store a JSON value. It is on disk when this returns. Raises TypeError if the value is not
        JSON, and OSError if the disk fails.

        beside: further data that is not part of the result (triggers, reminders).
        """
        self._write(value=value, beside=dict(beside or {}))

    def intend(self, what: Mapping[str, Any]) -> None:
        """Store what the call is about to do, so that a later attempt can find out whether it was
        done. If a result is recorded for the call later, it replaces this record."""
        self._write(intent=dict(what))

    @property
    def intent(self) -> Mapping[str, Any]:
        """What an earlier attempt was about to do; empty if nothing is known."""
        found = self._read().get("intent")
        return found if isinstance(found, dict) else {}

    def _write(self, **content: Any) -> None:
        entry = self._named | content
        data = json.dumps(entry, ensure_ascii=False, allow_nan=False).encode()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(self._path, [data], self._path.parent)
        fsync_directory(self._path.parent.parent)

    @property
    def beside(self) -> Mapping[str, Any]:
        """The further data that was recorded with the result."""
        found = self._read().get("beside")
        return found if isinstance(found, dict) else {}

    def _read(self) -> Mapping[str, Any]:
        """The content of the file; empty if the file is missing, damaged or of another call."""
        try:
            entry = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        if not isinstance(entry, dict):
            return {}
        mine = all(entry.get(key) == value for key, value in self._named.items())
        return entry if mine else {}
