"""The content-addressed blob store, for content that is too large for an event. A blob's name is
its SHA-256.

The store is one directory, shared by all workers and producers. A blob is on disk (file and
directory fsynced) before `put` returns, so an event that refers to it can always be resolved. Error
messages reach users of the gateway, so they name blobs but no paths; paths are only logged.
"""

import logging
import os
import re
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from ..schemas.events.parts import BlobRef, Body
from .durable_files import delete_leftovers, fsync_directory, write_durably
from .errors import FoldlogError

INLINE_BYTES_MAX = 64 * 1024  # larger content becomes a blob, so that events stay small
_NAME = re.compile(r"[0-9a-f]{64}")
_log = logging.getLogger("foldlog.blobs")


@lru_cache(maxsize=1024)
def _warn_once(message: str) -> None:
    """Log a message only once, because a missing blob may be requested very often."""
    _log.warning("%s", message)


class BlobError(FoldlogError):
    """A blob cannot be stored or read; the message names it and says what to do."""


class BlobMissing(BlobError):
    """There is no blob of this name.

    For the operator: check that the blob directory belongs to this log.
    """


class BlobCorrupt(BlobError):
    """The bytes on disk are not those that were stored. For the operator: restore the file."""


class Stored(NamedTuple):
    """The result of `put`: the blob's name and its size."""

    sha256: str
    bytes: int


class BlobStore:
    """The blobs below one directory. Several threads and processes may use it at once."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._incoming = self.directory / "incoming"
        self._incoming.mkdir(exist_ok=True)
        delete_leftovers(self._incoming)

    def put(self, data: bytes) -> Stored:
        """Store some bytes durably. The same bytes are stored only once. Raises BlobError."""
        name = sha256(data).hexdigest()
        path = self._path(name)
        try:
            if not self._holds(path, data):
                self._write(path, data)
        except OSError as error:
            _warn_once(f"blob store {self.directory}: {error}")
            raise BlobError(
                f"{len(data)} bytes could not be kept in the blob store: {error.strerror}. Nothing "
                "was stored under their name. Free space or fix its directory, then try again."
            ) from error
        return Stored(name, len(data))

    def get(self, name: str) -> bytes:
        """The blob's bytes, verified against its name. Raises BlobMissing, BlobCorrupt."""
        path = self._path(name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with open(fd, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            _warn_once(f"there is no blob {path}")
            raise BlobMissing(
                f"blob {name} is not in the blob store: the log names content that this store "
                "does not hold. Point FOLDLOG_BLOBS at the store that the writer used."
            ) from None
        except OSError as error:
            _warn_once(f"blob {path} can't be read: {error}")
            raise BlobCorrupt(f"blob {name} can't be read: {error.strerror}") from error
        if sha256(data).hexdigest() != name:
            _warn_once(f"blob {path} is damaged: its bytes do not have this sha256")
            raise BlobCorrupt(
                f"blob {name} is damaged: its {len(data)} bytes do not have this sha256. "
                "Restore the file, or delete it and store it again."
            )
        return data

    def store(self, data: bytes, media_type: str) -> BlobRef:
        """Store some bytes and return the reference for an event."""
        stored = self.put(data)
        return BlobRef(sha256=stored.sha256, bytes=stored.bytes, media_type=media_type)

    def body(self, data: bytes, media_type: str) -> Body:
        """A Body with this content: inline up to INLINE_BYTES_MAX, else a reference to a new blob.
        The reference has no preview.
        """
        if len(data) <= INLINE_BYTES_MAX:
            return Body(inline=data)
        return Body(ref=self.store(data, media_type))

    def resolve(self, body: Body) -> bytes:
        """The whole content of a Body; its preview is ignored."""
        return self.get(body.ref.sha256) if body.ref is not None else body.inline or b""

    def _path(self, name: str) -> Path:
        if _NAME.fullmatch(name) is None:
            raise BlobMissing(
                f"{name[:80]!r} is not the name of a blob, which is 64 hexadecimal digits"
            )
        return self.directory / name[:2] / name

    @staticmethod
    def _holds(path: Path, data: bytes) -> bool:
        """Whether the file exists with these bytes; the caller rewrites a torn or corrupt file."""
        if path.is_symlink() or not path.is_file() or path.read_bytes() != data:
            return False
        fsync_directory(path.parent)  # its writer may have died between the rename and this
        return True

    def _write(self, path: Path, data: bytes) -> None:
        if not path.parent.is_dir():
            path.parent.mkdir(exist_ok=True)
            fsync_directory(self.directory)
        write_durably(path, [data], self._incoming)
