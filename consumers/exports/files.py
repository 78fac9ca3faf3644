"""Where an export goes: written beside its place under another name, then renamed.

So a run that is stopped leaves nothing half, and a second run is harmless. What is there already is
kept unless asked otherwise. This file must not know what is in an export.
"""

import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from ...log.errors import FoldlogError


class CanNotWrite(FoldlogError):
    """The export can not be put where it was asked for; the message says why and what to do."""


@contextmanager
def new_file(path: Path, *, force: bool = False) -> Iterator[Path]:
    """A temporary name to write to; when the block ends well it becomes `path`, whole."""
    if path.is_dir():
        raise CanNotWrite(f"{path} is a directory: name a file. Nothing was written.")
    with _beside(path, force) as directory:
        temporary = directory / "export"
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)


@contextmanager
def new_directory(path: Path, ours: Collection[str], *, force: bool = False) -> Iterator[Path]:
    """As `new_file`, a directory. `force` replaces one that holds nothing but files named so."""
    if path.exists() and not path.is_dir():
        raise CanNotWrite(f"{path} is a file: these tables need a directory. Nothing was written.")
    if path.is_dir():
        foreign = sorted({entry.name for entry in os.scandir(path)} - set(ours))
        if foreign:
            raise CanNotWrite(
                f"{path} holds what no export wrote ({foreign[0]}): nothing was written and "
                "nothing was deleted. Name another directory."
            )
        if not any(path.iterdir()):
            force = True
    with _beside(path, force) as directory:
        made, before = directory / "export", directory / "before"
        made.mkdir()
        yield made
        if path.exists():
            os.rename(path, before)
        os.rename(made, path)


@contextmanager
def _beside(path: Path, force: bool) -> Iterator[Path]:
    """A directory on the same disk, for the owner only, that is gone afterwards."""
    if path.exists() and not force:
        raise CanNotWrite(f"{path} is there already and was kept: --force replaces it.")
    try:
        directory = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise CanNotWrite(
            f"nothing can be written into {path.parent}: {error.strerror}. Nothing was changed; "
            "name another place."
        ) from error
    try:
        yield directory
    except OSError as error:
        raise CanNotWrite(
            f"{path} could not be written: {error.strerror or error}. What was there was kept."
        ) from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)
