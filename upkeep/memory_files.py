"""Synchronizes a directory of memory files with the log, in both directions.

    1 read the state file: the hash and the offset of each file when it was last written
    2 fold the memory of the directory's scope up to now, and up to each of those offsets
    3 read the edited files, and turn the edits into events
    4 produce the events and fold them
    5 write the files that differ from the folded memory
    6 write the state file

After a crash at any point, run it again: the id of an edit is computed from its content, so nothing
is written twice. Paths stay inside the directory, symbolic links are not followed, and a file that
cannot be memory is left unchanged and reported.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..log.door import Log
from ..log.errors import Refused
from ..processors.memory.files import FILE_BYTES_MAX, FileRefused, edits_of, lines_in
from ..processors.memory.fold import MemoryView, paths_of, text_of
from ..processors.memory.framing import core_left_out
from ..processors.tools.tool import ToolFailed
from ..processors.tools.workdir import Workdir
from ..producers.memory import MemoryWriter
from ..schemas.memory_paths import tier_of
from ..schemas.topics import MEMORY_EVENTS
from .memory import read_memory

STATE = ".foldlog-memory.json"
STATE_BYTES_MAX = 8 * 1024 * 1024  # 20,000 files at 300 bytes
NAMES_MAX = 20_000  # files in the directory and its subdirectories
DEPTH_MAX = 5  # archive/ and four levels below it


class WrittenFile(NamedTuple):
    """A file as it was last written: the hash of its bytes, and the offset up to which the memory
    in it was folded.
    """

    sha256: str
    offset: int


class State(msgspec.Struct, frozen=True):
    """The content of the state file."""

    scope: str
    log: str
    files: dict[str, WrittenFile]


@dataclass(slots=True)
class Report:
    """The result, by path. `took`: the number of events that each file's edits became. Messages:
    `conflicts` (both versions are kept), `refused` (the file is unchanged and needs action),
    `ignored` (not memory files) and `left_out` (what prompts leave out, or '').
    """

    scope: str
    directory: str
    wrote: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    took: dict[str, int] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    left_out: str = ""


class MemoryFiles:
    """The memory files of one scope in one directory.

    Raises Refused for a directory of another scope.
    """

    def __init__(self, log: Log, scope: str, directory: Path, user: str) -> None:
        self._log, self._scope, self._user = log, scope, user
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._root, self._dir = directory, Workdir(directory)
        self._log_name = f"{log.identity()}/{log.topic_id(MEMORY_EVENTS)}"
        self._state = self._read_state()

    def synchronize(self, writer: MemoryWriter | None) -> Report:
        """Write the edits to the log, then the files.

        Without a writer, edited files stay unchanged.
        """
        report = Report(self._scope, str(self._root))
        last_written = self._state.files
        on_disk = dict(self._read_files(report))
        skipped = {path for path, data in on_disk.items() if data is None}
        offsets = {each.offset for each in last_written.values()}
        memory = read_memory(self._log, self._scope, at=offsets)
        edited = self._edited(on_disk, memory.now, report)
        now = memory.now
        if writer is None:
            for path in edited:
                report.refused.append(f"{path} was edited and left as it is; `--sync` writes the "
                                      f"edit to the log")
            skipped |= set(edited)
        else:
            for path in edited:
                before = last_written.get(path)
                base = None if before is None else memory.then.get(before.offset)
                if before is not None and base is not None:
                    is_of_this_log = _sha(text_of(base, path)) == before.sha256
                    base = base if is_of_this_log else None
                if not self._take(path, on_disk.get(path), base, memory.now, writer, report):
                    skipped.add(path)
            last = max((w.offset for w in self._written), default=None)
            if last is not None:
                now = read_memory(self._log, self._scope, upto=last).now
            if now.refused > memory.now.refused:
                report.refused.append(
                    f"not every edit was accepted: {now.why}; the edited files are left unchanged"
                )
                skipped |= set(report.took)
        self._write_files(now, on_disk, skipped, report)
        report.left_out = core_left_out(now)
        return report

    # -- 1, 3: reading the directory ---------------------------------------------------------------

    def _read_state(self) -> State:
        self._written: list = []
        empty = State(self._scope, self._log_name, {})
        with _refusing(self._root / STATE):
            data = self._dir.read(STATE, STATE_BYTES_MAX)
        if data is None:
            return empty
        try:
            state = msgspec.json.decode(data, type=State)
        except msgspec.MsgspecError as error:
            raise Refused(
                f"{self._root / STATE} cannot be read ({error}). Nothing was changed. Delete it: "
                "then missing files do not count as deleted, and everything is kept."
            ) from error
        if state.scope != self._scope:
            raise Refused(
                f"{self._root} has the memory of {state.scope}, not of {self._scope}. Nothing "
                "was changed. Name another directory with --dir."
            )
        # The state file has offsets of another log, so the files written earlier are unknown.
        return state if state.log == self._log_name else empty

    def _read_files(self, report: Report) -> Iterator[tuple[str, bytes | None]]:
        """Every file in the directory that may be memory; None if it cannot be read."""
        for path in sorted(self._names()):
            if tier_of(path) is None:
                report.ignored.append(path)
                continue
            try:
                data = self._dir.read(path, FILE_BYTES_MAX)
            except ToolFailed as error:
                report.refused.append(f"{error}; the file is left unchanged")
                data = None
            yield path, data

    def _names(self) -> list[str]:
        found: list[str] = []
        todo = [""]
        while todo:
            folder = todo.pop()
            with self._dir.directory(folder) as fd, os.scandir(fd) as entries:
                for entry in entries:
                    path = f"{folder}{entry.name}"
                    if entry.name.startswith("."):
                        continue  # the state file, and files of editors and systems
                    if len(found) >= NAMES_MAX:
                        raise Refused(
                            f"{self._root} has more than {NAMES_MAX} files. Nothing was read or "
                            "changed. Name another directory with --dir."
                        )
                    if entry.is_dir(follow_symlinks=False) and path.count("/") < DEPTH_MAX:
                        todo.append(f"{path}/")
                    else:
                        found.append(path.encode("utf-8", "replace").decode())
        return found

    def _edited(
        self, on_disk: Mapping[str, bytes | None], now: MemoryView, report: Report
    ) -> list[str]:
        """The files that differ from what was last written, including deleted files."""
        last_written = self._state.files
        deleted = [path for path in last_written if path not in on_disk and text_of(now, path)]
        if deleted and not any(path in on_disk for path in last_written):
            report.refused.append(
                f"all {len(deleted)} files are missing from {self._root}. No memory was deleted, "
                "and the files are written again. To retire memory, delete single files"
            )
            deleted = []
        edited = [
            path
            for path, data in on_disk.items()
            if data is not None
            and (path not in last_written or _sha(data) != last_written[path].sha256)
            and data != text_of(now, path).encode()
        ]
        return sorted([*edited, *deleted])

    # -- 4: writing to the log ---------------------------------------------------------------------

    def _take(
        self,
        path: str,
        data: bytes | None,
        base: MemoryView | None,
        now: MemoryView,
        writer: MemoryWriter,
        report: Report,
    ) -> bool:
        """Turn the edits of a file into events and produce them; False if the file is no valid
        memory.
        """
        try:
            edits = edits_of(path, lines_in(path, data or b""), base, now, self._user)
        except FileRefused as why:
            report.refused.append(f"{why}; the file is left unchanged, and nothing in it was "
                                  f"written to the log")
            return False
        report.conflicts += edits.conflicts
        if edits.events:
            report.took[path] = len(edits.events)
        self._written += [writer.write(self._scope, event) for event in edits.events]
        return True

    # -- 5, 6: writing to the disk -----------------------------------------------------------------

    def _write_files(
        self,
        now: MemoryView,
        on_disk: Mapping[str, bytes | None],
        skipped: set[str],
        report: Report,
    ) -> None:
        files = {path: old for path, old in self._state.files.items() if path in skipped}
        for path in sorted({*paths_of(now), *on_disk, *self._state.files} - skipped):
            data = text_of(now, path).encode()
            before = on_disk.get(path)
            try:
                if data and data != before:
                    self._dir.replace(path, data, before)
                    report.wrote.append(path)
                elif not data and before is not None:
                    self._remove(path, before)
                    report.removed.append(path)
            except ToolFailed as error:
                report.refused.append(f"{error}; the file is left unchanged, run sync again")
                if path in self._state.files:
                    files[path] = self._state.files[path]
                continue
            if data:
                files[path] = WrittenFile(_sha(data), now.offset)
        state = State(self._scope, self._log_name, files)
        content = msgspec.json.format(msgspec.json.encode(state), indent=1)
        with _refusing(self._root / STATE):
            self._dir.replace(STATE, content, self._dir.read(STATE, STATE_BYTES_MAX))

    def _remove(self, path: str, expected: bytes) -> None:
        """Delete a file whose entries were all removed. Raises ToolFailed if the file has changed
        since it was read.
        """
        if self._dir.read(path, FILE_BYTES_MAX) != expected:
            raise ToolFailed(f"{path} was changed meanwhile, so it was not removed")
        parent, _, name = path.rpartition("/")
        with self._dir.directory(parent) as fd, suppress(FileNotFoundError):
            os.unlink(name, dir_fd=fd)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn errors of Workdir into the error of a command."""
    try:
        yield
    except ToolFailed as error:
        raise Refused(f"{path}: {error}. The state file was not changed. Correct this and run the "
                      f"command again.") from error


def _sha(data: str | bytes) -> str:
    return sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def report_json(report: Report) -> dict:
    """A report for `--json`."""
    return json.loads(msgspec.json.encode(report))
