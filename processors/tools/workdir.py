"""Confines tools to a directory.

Every path is opened name by name with descriptors and O_NOFOLLOW, so no `..`, absolute path or
symbolic link leads out of the directory, not even a link that is created in the meantime. `.git` is
inaccessible, because git runs files in it as code. Errors are raised as ToolFailed, with a text for
the model.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .tool import ToolFailed

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a pipe without a writer must not block. The pipe is refused afterwards.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
PATH_CHARS_MAX = 1_024  # a longer path is a mistake; the kernel's own limit is 4,096 bytes
CLOSED = ".git"


class _Missing(ToolFailed):
    """The path does not exist, which is not a failure for every caller."""


class Workdir:
    """The directory to which tools are confined.
    The path of the directory itself may contain links."""

    def __init__(self, root: Path | None) -> None:
        if root is None:
            raise ToolFailed("this agent has no working directory: set Agent(workdir=...)")
        self.root = Path(root)

    @contextmanager
    def directory(self, path: str) -> Iterator[int]:
        """A descriptor of a directory, closed at the end of the block."""
        with self._walk(_names(path), path) as fd:
            yield fd

    @contextmanager
    def file(self, path: str) -> Iterator[int]:
        """A descriptor for reading a regular file, closed at the end of the block."""
        with self._parent(path) as (parent, name), _open(path, parent, name) as fd:
            yield fd

    @contextmanager
    def any(self, path: str) -> Iterator[tuple[int, bool]]:
        """A descriptor of a directory or a regular file, and whether it is a directory."""
        names = _names(path)
        if not names or self._is_directory(path):
            with self._walk(names, path) as fd:
                yield fd, True
        else:
            with self.file(path) as fd:
                yield fd, False

    def read(self, path: str, bytes_max: int) -> bytes | None:
        """The whole content of a file, or None if it does not exist."""
        try:
            with self._parent(path) as (parent, name):
                data = _read(path, parent, name, bytes_max)
        except _Missing:
            return None
        if data is not None and len(data) > bytes_max:
            raise ToolFailed(f"{path} is larger than {bytes_max} bytes")
        return data

    def replace(self, path: str, data: bytes, expected: bytes | None) -> None:
        """Replace a file's content atomically, or create the file if `expected` is None.

        Raises ToolFailed, and changes nothing, if the file no longer has the expected content.
        """
        with self._parent(path, create=expected is None) as (parent, name):
            if _read(path, parent, name, len(expected or b"")) != expected:
                raise ToolFailed(f"{path} was changed by somebody else, nothing was written")
            with _readable_errors(path):
                _write(parent, name, data, fresh=expected is None)

    def _is_directory(self, path: str) -> bool:
        with self._parent(path) as (parent, name), _readable_errors(path, parent, name):
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        return stat.S_ISDIR(found.st_mode)

    @contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """A descriptor of the directory that contains a path, and the path's last name."""
        names = _names(path)
        if not names:
            raise ToolFailed(f"{path or '.'} is a directory, a file is needed")
        with self._walk(names[:-1], path, create=create) as parent:
            yield parent, names[-1]

    @contextmanager
    def _walk(self, names: list[str], path: str, *, create: bool = False) -> Iterator[int]:
        with _readable_errors(str(self.root.name)):
            fd = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in names:
                with _readable_errors(path, fd, name):
                    if create:
                        with contextlib.suppress(FileExistsError):
                            os.mkdir(name, 0o755, dir_fd=fd)
                    inner = os.open(name, _DIRECTORY, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield fd
        finally:
            os.close(fd)


def _names(path: str) -> list[str]:
    """The names in a path below the directory.
    Raises ToolFailed for a path that leads out of it."""
    shown = repr(path[:100])
    if len(path) > PATH_CHARS_MAX:
        raise ToolFailed(f"the path {shown} is too long")
    if "\0" in path or path != path.encode("utf-8", "replace").decode():
        raise ToolFailed(f"the path {shown} has characters that no path has")
    if path.startswith(("/", "~")):
        raise ToolFailed(f"the path {shown} must be relative to the working directory")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise ToolFailed(f"the path {shown} must not contain '..'")
    if any(name.lower() == CLOSED for name in names):  # some file systems ignore case
        raise ToolFailed(f"the path {shown} is not open to tools: {CLOSED} belongs to git")
    return names


@contextmanager
def _readable_errors(path: str, parent: int | None = None, name: str = "") -> Iterator[None]:
    """Convert an OSError in the block to ToolFailed, with a text for the model. parent, name: the
    block opens this name in this directory. With them, the text can report that the name is a
    symbolic link."""
    try:
        yield
    except FileNotFoundError:
        raise _Missing(f"there is no {path}") from None
    except FileExistsError:
        raise ToolFailed(f"{path} already exists") from None
    except OSError as error:
        if parent is not None and error.errno in (errno.ELOOP, errno.ENOTDIR):
            with contextlib.suppress(OSError):
                target = os.readlink(name, dir_fd=parent)
                text = f"{path}: {name} is a symbolic link to {target}; links are not followed"
                raise ToolFailed(text) from None
        raise ToolFailed(f"{path}: {error.strerror}") from None


@contextmanager
def _open(path: str, parent: int, name: str) -> Iterator[int]:
    with _readable_errors(path, parent, name):
        fd = os.open(name, _FILE, dir_fd=parent)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise ToolFailed(f"{path} is a directory, a file is needed")
        if not stat.S_ISREG(mode):
            raise ToolFailed(f"{path} is not a regular file")
        yield fd
    finally:
        os.close(fd)


def _read(path: str, parent: int, name: str, bytes_max: int) -> bytes | None:
    """A file's content, or None if the file does not exist. If the file is too large, returns one
    byte more than the maximum, so that the caller notices."""
    try:
        with _open(path, parent, name) as fd, open(fd, "rb", closefd=False) as file:
            return file.read(bytes_max + 1)
    except _Missing:
        return None


def _write(parent: int, name: str, data: bytes, *, fresh: bool) -> None:
    """Write a temporary file and rename it,
    so that a reader gets either the old or the new content.
    """
    mode = 0o644 if fresh else stat.S_IMODE(os.stat(name, dir_fd=parent).st_mode)
    temporary = f".{secrets.token_hex(8)}.foldlog"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o600, dir_fd=parent)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        if fresh:  # unlike a rename, a link does not replace a file that was just created
            os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            os.unlink(temporary, dir_fd=parent)
        else:
            os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise
    os.fsync(parent)
