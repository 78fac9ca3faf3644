"""The content-addressed blob store, for content that is too large for an event. A blob's name is
its SHA-256.

The store is a directory or a place in an object store, shared by all workers and producers. A blob
is stored durably before `put` returns, so an event that refers to it can always be resolved. Every
read verifies the bytes against the name. Error messages reach users of the gateway, so they name
blobs but no paths and no addresses; those are only logged.
"""

import contextlib
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from ..schemas.events.parts import BlobRef, Body
from .blob_cache import BlobCache
from .durable_files import delete_leftovers, fsync_directory, write_durably
from .errors import FoldlogError, LogUnreachable, SettingsError
from .object_store import RemoteObjects
from .objects import INCOMING, DirectoryObjects, Objects, ObjectsAway, StoredObject
from .setting_row import blob_place
from .settings import Settings

INLINE_BYTES_MAX = 64 * 1024  # larger content becomes a blob, so that events stay small
DELETION_S_MAX = 60.0
"""How long after it marked a blob a garbage collector may still delete it, in seconds. A mark that
is twice as old belongs to a process that died."""

_MARKS = "deleting/"
_MARK_POLL_S = 0.05
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

    For the operator: check that the blob store belongs to this log.
    """


class BlobCorrupt(BlobError):
    """The stored bytes are not those that were stored. For the operator: restore the blob."""


class BlobsAway(BlobError, LogUnreachable):
    """The blob store does not answer, or denies access. Nothing was stored and nothing is lost: the
    caller waits and tries again, as if no broker answered.
    """


class Stored(NamedTuple):
    """The result of `put`: the blob's name and its size."""

    sha256: str
    bytes: int


class BlobFiles(DirectoryObjects):
    """A directory of blobs. Unlike DirectoryObjects, it does not write a file again that has the
    same bytes, and it does not follow symbolic links.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self._incoming = self.directory / INCOMING
        self._incoming.mkdir(exist_ok=True)
        delete_leftovers(self._incoming)

    def put(self, name: str, data: Iterable[bytes]) -> None:
        """See Objects. A file with the same bytes becomes young."""
        path, whole = self._path(name), b"".join(data)
        if self._holds(path, whole):
            os.utime(path)
            return
        if not path.parent.is_dir():
            path.parent.mkdir(exist_ok=True)
            fsync_directory(self.directory)
        write_durably(path, [whole], self._incoming)

    @staticmethod
    def _holds(path: Path, data: bytes) -> bool:
        """Whether the file exists with these bytes; the caller rewrites a torn or corrupt file."""
        if path.is_symlink() or not path.is_file() or path.read_bytes() != data:
            return False
        fsync_directory(path.parent)  # its writer may have died between the rename and this
        return True

    def get(self, name: str) -> bytes:
        """The whole file. Raises FileNotFoundError."""
        fd = os.open(self._path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            return file.read()


class BlobStore:
    """The blobs in one place. Several threads and processes may use it at once."""

    def __init__(
        self, place: "Path | str | BlobFiles | RemoteObjects", cache: BlobCache | None = None
    ) -> None:
        """The store in a directory, or in the objects `place`. The cache has copies of blobs that
        were read.
        """
        self._objects = BlobFiles(Path(place)) if isinstance(place, Path | str) else place
        self._cache = cache

    @property
    def directory(self) -> Path:
        """The directory of the blobs."""
        assert isinstance(self._objects, BlobFiles), "the blobs are in an object store"
        return self._objects.directory

    @property
    def away(self) -> str:
        """Why the store counts as away; '' if it does not."""
        return self._objects.away if isinstance(self._objects, RemoteObjects) else ""

    @property
    def away_s(self) -> float:
        """For how many seconds the store has been away; 0 if it is not."""
        return self._objects.away_s if isinstance(self._objects, RemoteObjects) else 0.0

    def put(self, data: bytes) -> Stored:
        """Store some bytes durably. The same bytes are stored only once. Raises BlobError, and
        BlobsAway if the store does not answer.
        """
        name = sha256(data).hexdigest()
        try:
            self._objects.put(_key(name), [data])
            while self._is_deleted_soon(name):  # a collector saw only the old blob
                time.sleep(_MARK_POLL_S)
                self._objects.put(_key(name), [data])
        except ObjectsAway as error:
            raise self._away(f"{len(data)} bytes could not be kept", error) from error
        except OSError as error:
            _warn_once(f"blob store {self.place}: {error}")
            raise BlobError(
                f"{len(data)} bytes could not be kept in the blob store: {error.strerror}. Nothing "
                "was stored under their name. Free space or fix its directory, then try again."
            ) from error
        if self._cache is not None:
            self._cache.keep(name, data)
        return Stored(name, len(data))

    def get(self, name: str) -> bytes:
        """The blob's bytes, verified against its name. Raises BlobMissing, BlobCorrupt, BlobsAway.
        """
        _key(name)  # the name comes from a record, and could be a path
        if self._cache is not None and (copy := self._cache.find(name)) is not None:
            return copy
        data = self.get_stored(name)
        if self._cache is not None:
            self._cache.keep(name, data)
        return data

    def get_stored(self, name: str) -> bytes:
        """As `get`, but always from the store, never from the cache."""
        key = _key(name)
        try:
            data = self._objects.get(key)
        except FileNotFoundError:
            _warn_once(f"there is no blob {self._shown(key)}")
            raise BlobMissing(
                f"blob {name} is not in the blob store: the log names content that this store "
                "does not hold. Point FOLDLOG_BLOBS at the store that the writer used."
            ) from None
        except ObjectsAway as error:
            raise self._away(f"blob {name} could not be read", error) from error
        except OSError as error:
            _warn_once(f"blob {self._shown(key)} can't be read: {error}")
            raise BlobCorrupt(f"blob {name} can't be read: {error.strerror}") from error
        if sha256(data).hexdigest() != name:
            _warn_once(f"blob {self._shown(key)} is damaged: its bytes do not have this sha256")
            raise BlobCorrupt(
                f"blob {name} is damaged: its {len(data)} bytes do not have this sha256. "
                "Restore the file, or delete it and store it again."
            )
        return data

    def store(self, data: bytes, media_type: str) -> BlobRef:
        """Store some bytes and return the reference for an event."""
        stored = self.put(data)
        return BlobRef(sha256=stored.sha256, bytes=stored.bytes, media_type=media_type)

    def ensure(self, data: bytes, media_type: str) -> BlobRef:
        """As `store`, but an object store that has the blob is not sent its bytes again: the blob
        only becomes young. Raises BlobError, BlobsAway.
        """
        name = sha256(data).hexdigest()
        if isinstance(self._objects, RemoteObjects):
            with self._guarded():
                found = self._objects.renew(_key(name))
                is_there = found is not None and found.bytes == len(data)
                if is_there and not self._is_deleted_soon(name):
                    return BlobRef(sha256=name, bytes=len(data), media_type=media_type)
        return self.store(data, media_type)

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

    # -- maintenance -------------------------------------------------------------------------------

    def find(self, name: str) -> StoredObject | None:
        """A stored blob's size and age, or None. Raises BlobsAway."""
        with self._guarded():
            found = self._objects.find(_key(name))
            return None if found is None else found._replace(name=name)

    def list(self, shelf: str) -> Iterator[StoredObject]:
        """The stored blobs whose names begin with `shelf`, one of SHELVES. Raises BlobsAway."""
        with self._guarded():
            for found in self._objects.list(f"{shelf}/"):
                name = found.name.rpartition("/")[2]
                if _NAME.fullmatch(name) and found.name == _key(name):
                    yield found._replace(name=name)

    def delete_unless_young(self, name: str, before_s: float) -> bool:
        """Delete a blob that was stored, and stored again, before `before_s` (Unix seconds).
        Returns whether it was deleted. Raises BlobsAway.

        Safe beside `put` of the same bytes: the mark is set before the blob's age is checked, and
        removed after the blob is deleted; `put` looks for the mark after it has stored the blob,
        and for the blob after that. So either this method sees that the blob is young, or `put`
        sees the mark or the deletion, and stores the blob again.
        """
        mark = f"{_MARKS}{name}"
        with self._guarded():
            began = time.monotonic()
            self._objects.put(mark, [b""])
            try:
                found = self._objects.find(_key(name))
                in_time = time.monotonic() - began < DELETION_S_MAX
                if found is None or found.stored_at >= before_s or not in_time:
                    return False
                self._objects.delete(_key(name))
            finally:
                self._objects.delete(mark)
        return True

    def _is_deleted_soon(self, name: str) -> bool:
        """Whether a collector has deleted the blob, or may be about to."""
        mark = self._objects.find(f"{_MARKS}{name}")
        blob = self._objects.find(_key(name))  # in this order, see `delete_unless_young`
        if blob is None:
            return True
        # The store's clock gives both times.
        return mark is not None and mark.stored_at > blob.stored_at - 2 * DELETION_S_MAX

    # -- errors ------------------------------------------------------------------------------------

    @property
    def place(self) -> str:
        """The directory or the URL, for the operator."""
        if isinstance(self._objects, RemoteObjects):
            return self._objects.url
        return str(self._objects.directory)

    def _shown(self, key: str) -> str:
        return f"{self.place}/{key}"

    def _path(self, name: str) -> Path:
        return self.directory / _key(name)

    def _away(self, what: str, error: ObjectsAway) -> BlobsAway:
        _warn_once(f"blob store {self.place}: {error}")
        return BlobsAway(
            f"{what}, because the blob store is away: {error}. Nothing is lost. Start the store, "
            "or correct its URL and its credentials; work that needs it waits, and continues by "
            "itself."
        )

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except ObjectsAway as error:
            raise self._away("the blob store could not be searched", error) from error
        except OSError as error:
            raise BlobError(f"the blob store is inaccessible: {error.strerror}. Nothing was "
                            "changed. Fix its directory, then try again.") from error


SHELVES = tuple(f"{number:02x}" for number in range(256))
"""The first two digits of names: the directories of a store."""


def _key(name: str) -> str:
    """The object in which a blob is stored."""
    if _NAME.fullmatch(name) is None:
        raise BlobMissing(
            f"{name[:80]!r} is not the name of a blob, which is 64 hexadecimal digits"
        )
    return f"{name[:2]}/{name}"


def open_blobs(settings: Settings, *, cached: bool = True) -> BlobStore:
    """The blob store of an installation. Raises SettingsError."""
    if settings.blobs is None:
        return BlobStore(settings.blobs_dir)
    megabytes = settings.blob_cache_mb if cached else 0
    cache = BlobCache(settings.cache_dir / "blobs", megabytes * 1_000_000) if megabytes else None
    return BlobStore(_remote(settings.blobs), cache)


def open_place(text: str, *, exists: bool = False) -> BlobStore:
    """The blob store in a directory or at a URL, without a cache. exists: whether the directory
    must exist. Raises SettingsError.
    """
    url, directory = blob_place(text, "the place of the blobs")
    if directory is None:
        return BlobStore(_remote(url))
    if exists and not directory.is_dir():
        raise SettingsError(f"{directory} is no directory. Nothing was copied.")
    return BlobStore(directory)


@lru_cache(maxsize=16)
def _remote(url: str) -> RemoteObjects:
    """The objects at a URL: one client per process, so that connections are used again and all
    stores notice an outage together.
    """
    return RemoteObjects(url)


def objects_beside(settings: Settings, name: str, directory: Path | None) -> Objects:
    """The objects in `directory`, or, if it is None, below `name` in the place of the blobs."""
    if directory is None and settings.blobs is not None:
        return _remote(f"{settings.blobs}/{name}")
    return DirectoryObjects(directory or settings.blobs_dir / name)
