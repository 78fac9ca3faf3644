"""RocksDB as the backend of a store. Decides which errors of RocksDB mean damaged files.

Only this file imports rocksdict.
"""

import errno
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...log.errors import Corrupt


class DiskFailed(OSError):
    """The disk under a store returned an I/O error. The store is rebuilt once; if the disk fails
    under the new store too, the worker ends.

    For the operator: check the disk, or set FOLDLOG_STATE_DIR to a directory on another one.
    """


class RocksBackend:
    """A RocksDB database of raw bytes. Only one process at a time can open its directory.

    Every method raises Corrupt for damaged files, and OSError if the operating system refused an
    operation.
    """

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        from rocksdict import (
            AccessType,
            BlockBasedOptions,
            Cache,
            Checkpoint,
            Options,
            Rdict,
            WriteBatch,
        )

        options = Options(raw_mode=True)
        options.create_if_missing(not read_only)
        options.set_write_buffer_size(8 * 1024 * 1024)  # the default is 64 MiB per partition
        options.set_keep_log_file_num(2)
        table = BlockBasedOptions()
        table.set_block_cache(Cache(8 * 1024 * 1024))
        options.set_block_based_table_factory(table)
        access = AccessType.read_only() if read_only else AccessType.read_write()
        if not read_only:
            directory.mkdir(parents=True, exist_ok=True)
        with _Errors():
            self._db = Rdict(str(directory), options, access_type=access)
        self._new_batch = partial(WriteBatch, raw_mode=True)
        self._checkpoint_of = Checkpoint
        self._is_open = True
        self._closing = threading.Lock()

    def get(self, key: bytes) -> bytes | None:
        with _Errors():
            return self._db.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with _Errors():
            return list(self._db.get(list(keys)) or ())

    def scan(self, *prefixes: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        # Not the client's items(), which ends at a damaged block as if there were no more items.
        with _Errors():
            place = self._db.iter()
            for prefix in prefixes:
                place.seek(max(prefix, start))
                while place.valid() and (key := place.key()).startswith(prefix):
                    yield key, place.value()
                    place.next()
                place.status()

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        batch = self._new_batch()
        for key, value in puts:
            batch.put(key, value)
        for key in deletes:
            batch.delete(key)
        with _Errors():
            self._db.write(batch)

    def checkpoint(self, directory: Path) -> bool:
        with self._closing:
            if not self._is_open:
                return False
            with _Errors():
                self._checkpoint_of(self._db).create_checkpoint(str(directory))
        return True

    def close(self) -> None:
        with self._closing, _Errors():
            if not self._is_open:
                return
            self._is_open = False
            try:
                self._db.close()
            finally:
                del self._db  # a failed flush must not keep the lock


# Errors of the operating system in a RocksDB message: the files may be intact and must be kept.
# RocksDB reports some of these errors as corruption or as a wrong option.
_SYSTEM_ERRORS = {
    os.strerror(code): code
    for code in (
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOMEM,
        errno.EIO,
        errno.ENOLCK,  # RocksDB's error for a lock held by this process
        errno.EAGAIN,  # for a lock held by another process
    )
}
_FILE_MISSING = f"IO error: {os.strerror(errno.ENOENT)}"


def classified(error: Exception) -> Exception:
    """Converts an error of RocksDB, for which rocksdict raises a plain Exception. An error about
    damaged files becomes Corrupt, a refusal of the operating system becomes OSError, and an unknown
    error stays unchanged.

    Only Corrupt leads to the deletion of a store, so a full disk, too few descriptors or a held
    lock must never become Corrupt.
    """
    text = str(error)
    for words, code in _SYSTEM_ERRORS.items():
        if words in text:
            return DiskFailed(code, text) if code == errno.EIO else OSError(code, text)
    if text.startswith(("Corruption", _FILE_MISSING)):
        return Corrupt(text)
    return error


class _Errors:
    """A context manager that raises RocksDB's exceptions as `classified` converts them."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, _where: Any) -> None:
        # Errors of the client's own files (rocksdict-config.json) are an OSError without errno.
        unnamed = kind is Exception or (isinstance(error, OSError) and error.errno is None)
        if unnamed and isinstance(error, Exception) and (found := classified(error)) is not error:
            raise found from error
