"""A local cache of blobs from an object store, limited in bytes.

A copy is a file named by its SHA-256, which every read verifies; a damaged copy is deleted. The
processes of a user share the directory. If the disk fails, nothing is cached.
"""

import contextlib
import os
import tempfile
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from .durable_files import delete_leftovers

CHECK_SHARE = 16
"""A process counts the bytes of all files again whenever it has added this fraction (1/16) of the
limit."""

KEPT_SHARE = 0.75
"""The share of the limit that remains after a deletion, so that several processes stay below it."""


class _Copy(NamedTuple):
    used_at: float
    bytes: int
    path: Path


class BlobCache:
    """The copies in one directory. Safe for several threads and processes at once."""

    def __init__(self, directory: Path, bytes_max: int) -> None:
        self._directory, self._bytes_max = directory, bytes_max
        self._incoming = directory / "incoming"
        self._lock = Lock()
        self._added: int | None = None  # bytes since the files were counted; None: not yet
        with contextlib.suppress(OSError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._incoming.mkdir(exist_ok=True)
            delete_leftovers(self._incoming)

    def find(self, name: str) -> bytes | None:
        """The bytes of a blob, or None if there is no undamaged copy."""
        path = self._directory / name
        try:
            data = path.read_bytes()
            if sha256(data).hexdigest() != name:
                path.unlink()
                return None
            os.utime(path)
        except OSError:
            return None
        return data

    def keep(self, name: str, data: bytes) -> None:
        """Add a copy, and delete the copies that were not used for the longest time."""
        if len(data) > self._bytes_max // CHECK_SHARE * 4:
            return  # it would displace everything else
        with contextlib.suppress(OSError):
            fd, temporary = tempfile.mkstemp(dir=self._incoming)
            try:
                with open(fd, "wb") as file:
                    file.write(data)
                os.replace(temporary, self._directory / name)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
            self._count(len(data))

    def _count(self, added: int) -> None:
        with self._lock:
            due = self._added is None or self._added + added > self._bytes_max // CHECK_SHARE
            self._added = 0 if due else (self._added or 0) + added
        if due:
            self._trim()

    def _trim(self) -> None:
        copies = []
        for entry in os.scandir(self._directory):
            with contextlib.suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    found = entry.stat(follow_symlinks=False)
                    copies.append(_Copy(found.st_mtime, found.st_size, Path(entry.path)))
        total = sum(copy.bytes for copy in copies)
        if total <= self._bytes_max * (1 - 1 / CHECK_SHARE):
            return
        for copy in sorted(copies):
            if total <= self._bytes_max * KEPT_SHARE:
                return
            with contextlib.suppress(OSError):
                copy.path.unlink()
            total -= copy.bytes
