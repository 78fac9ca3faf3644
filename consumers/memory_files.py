"""A directory of memory files, brought in line with the log, and the log with it.

    1 read what was last written here (a small state file: per file a hash and an offset)
    2 fold the scope, now and as it was at those offsets
    3 read the files that were edited, and make events of the edits
    4 produce them, fold them
    5 write the files that differ from the view
    6 note what was written

A crash at any point is made good by doing it again: edits have ids that follow from what they say.
Paths stay inside the directory, links are not followed, and a file that can not be memory is left
as it is and said. This file must not know who asked, nor how it is shown.
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
NAMES_MAX = 20_000  # in the directory, all below it counted
DEPTH_MAX = 5  # archive/ and four names below it


class WrittenFile(NamedTuple):
    """How a file was left here: the hash of its bytes, and of which offset they are."""

    sha256: str
    offset: int


class State(msgspec.Struct, frozen=True):
    """What is noted in the state file."""

    scope: str
    log: str
    files: dict[str, WrittenFile]


@dataclass(slots=True)
class Report:
    """What was done, by path; `took`: how many events. In words: `conflicts` (both are kept),
    `refused` (left as it is, do something), `ignored` (files that are no memory) and `left_out`
    (what enters no prompt, '' where all of it does).
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
    """One directory, of one scope. Raises Refused for a directory that is another scope's."""

    def __init__(self, log: Log, scope: str, directory: Path, user: str) -> None:
        self._log, self._scope, self._user = log, scope, user
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._root, self._dir = directory, Workdir(directory)
        self._log_name = f"{log.identity()}/{log.topic_id(MEMORY_EVENTS)}"
        self._state = self._read_state()

    def bring_in_line(self, writer: MemoryWriter | None) -> Report:
        """Take edits in and write the files. Without a writer edited files are left as they are."""
        report = Report(self._scope, str(self._root))
        noted = self._state.files
        held = dict(self._read_files(report))
        skipped = {path for path, data in held.items() if data is None}
        offsets = {each.offset for each in noted.values()}
        memory = read_memory(self._log, self._scope, at=offsets)
        edited = self._edited(held, memory.now, report)
        now = memory.now
        if writer is None:
            for path in edited:
                report.refused.append(f"{path} was edited; `--sync` brings that into the log")
            skipped |= set(edited)
        else:
            for path in edited:
                base = memory.then.get(noted[path].offset) if path in noted else None
                if base is not None and _sha(text_of(base, path)) != noted[path].sha256:
                    base = None  # it was written from another log
                if not self._take(path, held.get(path), base, memory.now, writer, report):
                    skipped.add(path)
            last = max((w.offset for w in self._written), default=None)
            if last is not None:
                now = read_memory(self._log, self._scope, upto=last).now
            if now.refused > memory.now.refused:
                report.refused.append(
                    f"not everything was taken: {now.why}; the edited files are left as they are"
                )
                skipped |= set(report.took)
        self._write_files(now, held, skipped, report)
        report.left_out = core_left_out(now)
        return report

    # -- 1, 3: what is there -----------------------------------------------------------------------

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
                f"{self._root / STATE} can not be read ({error}). Nothing was changed. Delete it: "
                "then nothing in the files is taken for deleted, and everything is kept."
            ) from error
        if state.scope != self._scope:
            raise Refused(
                f"{self._root} holds the memory of {state.scope}, not of {self._scope}. Nothing "
                "was changed: name another directory with --dir."
            )
        # Of another log the offsets mean nothing, and nobody knows what the files were.
        return state if state.log == self._log_name else empty

    def _read_files(self, report: Report) -> Iterator[tuple[str, bytes | None]]:
        """Every file below the directory that may be memory; None where it can not be read."""
        for path in sorted(self._names(report)):
            if tier_of(path) is None:
                report.ignored.append(path)
                continue
            try:
                data = self._dir.read(path, FILE_BYTES_MAX)
            except ToolFailed as error:
                report.refused.append(f"{error}; it is left alone")
                data = None
            yield path, data

    def _names(self, report: Report) -> list[str]:
        found: list[str] = []
        todo = [""]
        while todo:
            inside = todo.pop()
            with self._dir.directory(inside) as fd, os.scandir(fd) as entries:
                for entry in entries:
                    path = f"{inside}{entry.name}"
                    if entry.name.startswith("."):
                        continue  # our own state, and what editors and systems leave behind
                    if len(found) >= NAMES_MAX:
                        raise Refused(f"{self._root} holds over {NAMES_MAX} files; none was read")
                    if entry.is_dir(follow_symlinks=False) and path.count("/") < DEPTH_MAX:
                        todo.append(f"{path}/")
                    else:
                        found.append(path.encode("utf-8", "replace").decode())
        return found

    def _edited(
        self, held: Mapping[str, bytes | None], now: MemoryView, report: Report
    ) -> list[str]:
        """The files that are not as they were last written; deleted ones too."""
        noted = self._state.files
        gone = [path for path in noted if path not in held and text_of(now, path)]
        if gone and not any(path in held for path in noted):
            report.refused.append(
                f"all {len(gone)} files are gone from {self._root}: nothing was taken for deleted, "
                "they are written again; delete single files to retire what is in them"
            )
            gone = []
        edited = [
            path
            for path, data in held.items()
            if data is not None
            and (path not in noted or _sha(data) != noted[path].sha256)
            and data != text_of(now, path).encode()
        ]
        return sorted([*edited, *gone])

    # -- 4: into the log ---------------------------------------------------------------------------

    def _take(
        self,
        path: str,
        data: bytes | None,
        base: MemoryView | None,
        now: MemoryView,
        writer: MemoryWriter,
        report: Report,
    ) -> bool:
        """Make events of an edit and produce them; whether the file could be read as memory."""
        try:
            edits = edits_of(path, lines_in(path, data or b""), base, now, self._user)
        except FileRefused as why:
            report.refused.append(f"{why}; the file is left as it is, nothing of it was taken")
            return False
        report.conflicts += edits.conflicts
        if edits.events:
            report.took[path] = len(edits.events)
        self._written += [writer.write(self._scope, event) for event in edits.events]
        return True

    # -- 5, 6: onto the disk -----------------------------------------------------------------------

    def _write_files(
        self,
        now: MemoryView,
        held: Mapping[str, bytes | None],
        skipped: set[str],
        report: Report,
    ) -> None:
        files = {path: old for path, old in self._state.files.items() if path in skipped}
        for path in sorted({*paths_of(now), *held, *self._state.files} - skipped):
            data = text_of(now, path).encode()
            before = held.get(path)
            try:
                if data and data != before:
                    self._dir.replace(path, data, before)
                    report.wrote.append(path)
                elif not data and before is not None:
                    self._remove(path, before)
                    report.removed.append(path)
            except ToolFailed as error:
                report.refused.append(f"{error}; sync again")
                if path in self._state.files:
                    files[path] = self._state.files[path]
                continue
            if data:
                files[path] = WrittenFile(_sha(data), now.offset)
        state = State(self._scope, self._log_name, files)
        noted = msgspec.json.format(msgspec.json.encode(state), indent=1)
        with _refusing(self._root / STATE):
            self._dir.replace(STATE, noted, self._dir.read(STATE, STATE_BYTES_MAX))

    def _remove(self, path: str, expected: bytes) -> None:
        """Delete a file whose entries are all gone, if it is still as it was read."""
        if self._dir.read(path, FILE_BYTES_MAX) != expected:
            raise ToolFailed(f"{path} was changed by somebody else, nothing was removed")
        parent, _, name = path.rpartition("/")
        with self._dir.directory(parent) as fd, suppress(FileNotFoundError):
            os.unlink(name, dir_fd=fd)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Say what Workdir refuses in the words of a command."""
    try:
        yield
    except ToolFailed as error:
        raise Refused(f"{path}: {error}. Nothing was noted.") from error


def _sha(data: str | bytes) -> str:
    return sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def report_json(report: Report) -> dict:
    """A report for `--json`."""
    return json.loads(msgspec.json.encode(report))
