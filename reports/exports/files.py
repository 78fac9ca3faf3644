"""Writes an export atomically: first under a temporary name in the target's directory, then renamed
to the target.

An interrupted run leaves no partial files, and a second run is harmless. Existing files are kept
unless the caller forces their replacement.
"""

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...log.errors import FoldlogError


class CanNotWrite(FoldlogError):
    """The export cannot be written to the path. The message has the reason and what to do."""


@contextmanager
def new_file(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a temporary path to write to, which is renamed to `path` if the block succeeds."""
    if path.is_dir():
        raise CanNotWrite(f"{path} is a directory. Nothing was written. Name a file.")
    with _temporary_directory(path, force) as directory:
        temporary = directory / "export"
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)


@contextmanager
def new_directory(path: Path, ours: Collection[str], *, force: bool = False) -> Iterator[Path]:
    """Like `new_file`, for a directory. `ours`: the names of the files that an export may contain.

    Raises CanNotWrite if the directory to replace contains any other file.
    """
    if path.exists() and not path.is_dir():
        raise CanNotWrite(f"{path} is a file. Nothing was written. Name a directory for the "
                          "tables.")
    if path.is_dir():
        foreign = sorted({entry.name for entry in os.scandir(path)} - set(ours))
        if foreign:
            raise CanNotWrite(
                f"{path} contains a file that no export wrote ({foreign[0]}): nothing was written "
                "and nothing was deleted. Name another directory."
            )
        if not any(path.iterdir()):
            force = True
    with _temporary_directory(path, force) as directory:
        export, before = directory / "export", directory / "before"
        export.mkdir()
        yield export
        if path.exists():
            os.rename(path, before)
        os.rename(export, path)


@contextmanager
def _temporary_directory(path: Path, force: bool) -> Iterator[Path]:
    """A private directory on the same disk, which is deleted afterwards."""
    if path.exists() and not force:
        raise CanNotWrite(f"{path} already exists and was kept. Use --force to replace it.")
    try:
        directory = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise CanNotWrite(
            f"{path.parent} cannot be written to: {error.strerror}. Nothing was changed. Name "
            "another path."
        ) from error
    try:
        yield directory
    except OSError as error:
        raise CanNotWrite(
            f"{path} could not be written: {error.strerror or error}. What was there before is "
            "unchanged. Free up disk space, check the permissions, or name another path, then try "
            "again."
        ) from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)
