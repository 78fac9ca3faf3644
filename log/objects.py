"""Stores objects. An object is a byte string with a name: it is stored as a whole, listed by
prefix, read and deleted.

The operations are those that both a directory and an object store have: there is no append, no
rename and no link. An object exists completely or not at all; readers verify what they read.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from .durable_files import delete_leftovers, write_durably

CHUNK_BYTES = 1024 * 1024  # read at a time
INCOMING = "incoming"
_PART = r"[A-Za-z0-9%_=-][A-Za-z0-9%._=-]*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")


class StoredObject(NamedTuple):
    """A listed object. stored_at: Unix seconds, when it was last stored or renewed."""

    name: str
    bytes: int
    stored_at: float


class ObjectsAway(OSError):
    """An object store does not answer, or denies access. The message contains no address."""


class Objects(Protocol):
    """A place for objects. Names consist of parts of `[A-Za-z0-9%._=-]`, joined by slashes.

    Every method raises OSError if the place is inaccessible.
    """

    def put(self, name: str, data: Iterable[bytes]) -> None:
        """Store an object durably. It replaces an object of the same name."""

    def read(self, name: str) -> Iterator[bytes]:
        """The bytes of an object, in chunks. Raises FileNotFoundError if there is none."""

    def find(self, name: str) -> StoredObject | None:
        """Look up one object. Returns the object as `list` does, or None if it does not exist."""

    def renew(self, name: str) -> StoredObject | None:
        """Set the time of an object to now. Returns the object as `list` does, or None if it does
        not exist.
        """

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """The objects whose names begin with a prefix, which ends with a slash or is empty."""

    def delete(self, name: str) -> None:
        """Delete an object. Does nothing if it does not exist."""

    def delete_leftovers(self) -> None:
        """Delete the incomplete objects of processes that died while they stored them."""


class DirectoryObjects:
    """Objects as files below a directory. Safe for several threads and processes at once.

    Only the user that created the directory can access it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def put(self, name: str, data: Iterable[bytes]) -> None:
        """See Objects."""
        path, incoming = self._path(name), self.directory / INCOMING
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for parent in (incoming, path.parent):
            parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, data, incoming)

    def read(self, name: str) -> Iterator[bytes]:
        """See Objects."""
        with open(self._path(name), "rb", buffering=0) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    def find(self, name: str) -> StoredObject | None:
        """See Objects."""
        try:
            found = self._path(name).stat()
        except FileNotFoundError:
            return None
        return StoredObject(name, found.st_size, found.st_mtime)

    def renew(self, name: str) -> StoredObject | None:
        """See Objects."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self._path(name))
        return self.find(name)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """See Objects."""
        below = self._path(prefix.rstrip("/")) if prefix else self.directory
        for parent, directories, files in os.walk(below, onerror=_raise_unless_missing):
            if Path(parent) == self.directory and INCOMING in directories:
                directories.remove(INCOMING)
            for file in files:
                found = self.find(Path(parent, file).relative_to(self.directory).as_posix())
                if found is not None:  # else deleted just now, or a name that is not ours
                    yield found

    def delete(self, name: str) -> None:
        """See Objects."""
        self._path(name).unlink(missing_ok=True)

    def delete_leftovers(self) -> None:
        """See Objects."""
        with contextlib.suppress(FileNotFoundError):
            delete_leftovers(self.directory / INCOMING)

    def _path(self, name: str) -> Path:
        return self.directory / checked_name(name)


def checked_name(name: str) -> str:
    """The name of an object. Raises FileNotFoundError if no object can have it."""
    if _NAME.fullmatch(name) is None:
        raise FileNotFoundError(f"{name[:80]!r} names no object")
    return name


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
