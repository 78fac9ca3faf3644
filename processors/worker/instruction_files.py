"""Reads instruction files and memory for the prefix of a session's requests.

A bad file never stops a turn: it is left out or cut, and a notice reports it to the operator.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from ...log.settings import Settings
from ..agent import Agent
from ..request.layers import FILE, LOCAL, OTHERWISE, Layer, Layers
from ..tools.tool import ToolFailed
from ..tools.workdir import Workdir

FILE_BYTES_MAX = 16 * 1024
"""Size limit of one instruction file. The part of a request before the conversation should have at
most 50,000 tokens. Four files of this size are half of that, at 2.6 bytes a token.
"""

MEMORY_LINES_MAX = {"core": 100, "index": 200}
MEMORY_BYTES_MAX = 16 * 1024  # the same as for a file


class MemoryReader(Protocol):
    """Reads memory; a scope is `user:ID` or `project:ID`."""

    def core(self, scopes: Sequence[str]) -> str:
        """The text of the memory files of the tier HOT. This text is in every prompt."""
        ...

    def index(self, scopes: Sequence[str]) -> str:
        """One line for each preference and each memory file that can be loaded."""
        ...


class Places(NamedTuple):
    """Where this installation keeps instruction files outside of working directories."""

    managed: Path | None = None
    user: Path | None = None
    owner: str = ""  # the user id whose sessions get the user layer; no other user gets it


def places_of(settings: Settings) -> Places:
    """The places according to the settings."""
    user = None if settings.config_dir is None else settings.config_dir / FILE
    return Places(settings.managed_instructions, user, settings.user)


def read_layers(
    agent: Agent,
    *,
    places: Places = Places(),  # noqa: B008 - an immutable value
    memory: MemoryReader | None = None,
    user_id: str = "",
    project_id: str | None = None,
) -> Layers:
    """The current content of the files and the memory, for a session of this user and project.

    An agent with `instructions=False` gets only the managed layer and memory. A bad file causes no
    exception: an unusable file is left out, a file that is too long is cut, and a notice names the
    file.
    """
    collector = _Collector()
    if places.managed is not None:
        collector.named_file("managed", places.managed)
    if agent.instructions:
        if places.user is not None and user_id and user_id == places.owner:
            collector.named_file("user", places.user)
        if agent.workdir is not None:
            collector.tree_file("project", agent.workdir, FILE, OTHERWISE)
            collector.tree_file("local", agent.workdir, LOCAL)
    if memory is not None:
        scopes = [f"user:{user_id}"] if user_id else []
        scopes += [f"project:{project_id}"] if project_id else []
        for name, read in (("core", memory.core), ("index", memory.index)):
            collector.memory(name, read, scopes)
    return Layers(tuple(collector.texts), tuple(collector.notices))


class _Collector:
    """Collects the texts of the layers, and a notice for each text that was left out or cut."""

    def __init__(self) -> None:
        self.texts: list[Layer] = []
        self.notices: list[str] = []

    def named_file(self, layer: str, path: Path) -> None:
        """Add a file that the settings name.
        Links are followed, because people link to their settings."""
        try:
            data, size = _read(path)
        except FileNotFoundError:
            return
        except OSError as error:
            self._refused(layer, str(path), error.strerror or str(error))
            return
        self._add(layer, path.name, str(path), data, size)

    def tree_file(self, layer: str, root: Path, *names: str) -> None:
        """Add the first of these files that exists,
        unless it is a link that leads out of the tree."""
        for name in names:
            shown = str(root / name)
            if not os.path.lexists(root / name):
                continue
            inside = os.path.relpath(os.path.realpath(root / name), os.path.realpath(root))
            if inside.split(os.sep)[0] == os.pardir:
                self._refused(layer, shown, "it is a link that leads out of the working directory")
                return
            try:  # no name is followed as a link, so a concurrent change is refused
                with Workdir(root).file(inside) as fd, open(fd, "rb", closefd=False) as file:
                    data, size = file.read(FILE_BYTES_MAX + 1), os.fstat(fd).st_size
            except ToolFailed as error:
                self._refused(layer, shown, str(error))
                return
            self._add(layer, name, shown, data, size)
            return

    def memory(self, name: str, read, scopes: Sequence[str]) -> None:
        """Add a part of the memory. A failed read becomes a notice, so that the turn continues."""
        try:
            text = read(scopes) if scopes else ""
        except Exception as error:  # a store may be third-party code
            why = f"{type(error).__name__}: {error}"
            self.notices.append(f"memory {name} is not in the prompt, it cannot be read: {why}")
            return
        lines = text.strip("\r\n").splitlines()
        whole = "\n".join(lines[: MEMORY_LINES_MAX[name]]).encode("utf-8", "replace")
        shown = _cut(whole, MEMORY_BYTES_MAX).decode().rstrip("\n")
        left_out = len(lines) - len(shown.splitlines())
        if left_out or len(shown.encode()) < len(whole):
            more = f"{left_out} of {len(lines)} lines are left out"
            self.notices.append(f"memory {name} is too long for the prompt, {more}; shorten it")
            shown += f"\n[{more}]"
        if shown.strip():
            self.texts.append(Layer(name, "memory", shown))

    def _add(self, layer: str, source: str, shown: str, data: bytes, size: int) -> None:
        whole = _cut(data, FILE_BYTES_MAX)
        try:
            text = whole.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self._refused(layer, shown, f"byte {error.start} is not UTF-8; save the file as UTF-8")
            return
        if "\0" in text:
            self._refused(layer, shown, "it is binary")
            return
        if len(whole) < size:
            more = f"only the first {len(whole)} of {size} bytes are here"
            self.notices.append(
                f"{layer} instructions are too long, {more.replace('here', 'used')}: {shown}. Keep "
                "only what every turn needs, and refer to other files for the rest."
            )
            text = f"{text.rstrip()}\n[This file is too long: {more}.]"
        if text.strip():
            self.texts.append(Layer(layer, source, text.strip("\r\n")))

    def _refused(self, layer: str, shown: str, why: str) -> None:
        self.notices.append(f"{layer} instructions are not in the prompt: {shown}: {why}")


def _read(path: Path) -> tuple[bytes, int]:
    """The beginning of a regular file (at most one byte over the limit),
    and the size of the file."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a pipe must not block
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "it is not a regular file")
        return file.read(FILE_BYTES_MAX + 1), found.st_size


def _cut(data: bytes, bytes_max: int) -> bytes:
    """The whole lines that fit into `bytes_max`. If the first line does not fit, returns the
    beginning of that line.
    """
    if len(data) <= bytes_max:
        return data
    head = data[:bytes_max]
    end = head.rfind(b"\n") + 1
    if end:
        return head[:end]
    for back in range(1, 4):  # do not cut within a character
        if head[-back] & 0xC0 == 0xC0:
            return head[:-back]
    return head
