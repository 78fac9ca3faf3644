"""Writes files that are on disk completely or not at all, for the blob store, snapshots and tools.

A file is written under a temporary name, fsynced and renamed. The temporary files of processes that
died are deleted when they are old enough.
"""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

LEFTOVER_AGE_S = 3600
"""A temporary file that is older than this, in seconds, belongs to a process that died."""


def write_durably(path: Path, chunks: Iterable[bytes], incoming: Path) -> None:
    """Replace a file atomically, through a temporary file in `incoming`. The file is on disk when
    this returns.
    """
    fd, temporary = tempfile.mkstemp(dir=incoming)
    try:
        with open(fd, "wb") as file:
            file.writelines(chunks)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    fsync_directory(path.parent)


def delete_leftovers(incoming: Path) -> None:
    """Delete the temporary files in `incoming` that are older than LEFTOVER_AGE_S."""
    before = time.time() - LEFTOVER_AGE_S
    for entry in os.scandir(incoming):
        with contextlib.suppress(OSError):
            if entry.stat(follow_symlinks=False).st_mtime < before:
                os.unlink(entry.path)


def fsync_directory(path: Path) -> None:
    """Make a rename in this directory survive a power loss."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
