"""dev: loads the agents again when one of their files changes.

The files are those of the agents' modules, and of modules that these import from the same
directories. A changed version is first imported by a separate process. If this fails, the traceback
is printed, and the running worker continues with the version that it loaded. Otherwise the
supervisor replaces the worker: the old worker ends cleanly, and the new worker continues from the
log.

The separate process is this file as a program: `python -m foldlog.cli.commands.reload FD AGENT...`.
It writes its result to the file descriptor FD, as JSON.
"""

import json
import os
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from ...log import environment
from ...log.environment import start_process
from ..agents import load_agents, source_of
from ..worker_info import worker_info

OURS = tuple(file.parent for file in Path(__file__).parents[2].glob("*/__init__.py"))

LOOK_S = 0.25
"""Seconds between two checks of the files. A change counts once two checks in a row find the same
new state, because an editor may write a file in steps.
"""

IMPORT_S = 60.0
"""How long a changed version may take to import."""

DRAIN_S = 30.0
"""How long a reload waits for running tools, in seconds; a tool call interrupted by a worker's end
may be in doubt.
"""

Stamps = dict[str, tuple[int, int, int] | None]


class Loaded(NamedTuple):
    """The result of importing the agents: the files to watch, and the agents' names or the error.

    `trace`: the traceback's frames in the user's files.
    `error`: the reason.
    """

    files: tuple[str, ...]
    names: tuple[str, ...]
    trace: str
    error: str


def load(names: Sequence[str]) -> Loaded:
    """Import the agents in this process."""
    try:
        agents = load_agents(names)
    except click.UsageError as wrong:
        trace, failed = traceback_of(wrong.__cause__)
        return Loaded(files_of(names, failed), (), trace, wrong.format_message())
    return Loaded(files_of(names), tuple(agent.name for agent in agents), "", "")


def files_of(names: Iterable[str], failed: Iterable[str] = ()) -> tuple[str, ...]:
    """The files of the agents' modules, and of all modules imported from the same directories.

    `failed`: the files in the traceback of a failed import, whose modules Python has dropped.
    """
    roots = {Path.cwd()}
    found: set[str] = set(failed)
    for source in map(source_of, names):
        file = source.file or getattr(sys.modules.get(source.module), "__file__", None)
        if file is None:
            path = source.directory.joinpath(*source.module.split("."))
            found |= {str(path.with_suffix(".py")), str(path / "__init__.py")}
        else:
            roots.add(Path(file).parent)
        if source.file is not None:
            found.add(str(source.file))
    for loaded in list(sys.modules.values()):
        file = getattr(loaded, "__file__", None)
        if file is None:
            continue
        path = Path(file)
        if not is_installed(path) and any(path.is_relative_to(root) for root in roots):
            found.add(str(path))
    return tuple(sorted(found))


def is_installed(path: Path) -> bool:
    """Whether a file belongs to Python or to an installed package, foldlog among them."""
    below = (Path(sysconfig.get_path("stdlib")), *OURS)
    return bool({"site-packages", "dist-packages"} & set(path.parts)) or any(
        path.is_relative_to(directory) for directory in below
    )


def traceback_of(error: BaseException | None) -> tuple[str, list[str]]:
    """The traceback of a failed import, without the frames of Python and foldlog; and the files
    whose frames it shows.
    """
    if error is None:
        return "", []
    shown = traceback.TracebackException.from_exception(error)
    frames = [
        frame for frame in shown.stack
        if not frame.filename.startswith("<") and not is_installed(Path(frame.filename))
    ]
    files = [frame.filename for frame in frames]
    if isinstance(error, SyntaxError) and error.filename:
        files.append(error.filename)
    if not files:
        return "", []  # no file of the user raised it, so the reason is enough
    shown.stack = traceback.StackSummary.from_list(frames)
    return "".join(shown.format(chain=False)).rstrip(), files


def stamps_of(files: Iterable[str]) -> Stamps:
    """The state of each file, which differs after a change: time, size and inode, or None if the
    file is missing.
    """
    found: Stamps = {}
    for file in files:
        try:
            status = os.stat(file)
        except OSError:
            found[file] = None
        else:
            found[file] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return found


def load_elsewhere(names: Sequence[str]) -> Loaded:
    """The result of `load` in a separate process."""
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "foldlog.cli.commands.reload", str(write_end), *names]
    try:
        process = start_process(command, pass_fds=(write_end,))
    finally:
        os.close(write_end)
    killed = threading.Timer(IMPORT_S, process.kill)
    killed.start()
    with open(read_end, "rb") as file:
        written = file.read()
    code = process.wait()
    killed.cancel()
    try:
        found: dict[str, Any] = json.loads(written)
    except ValueError:
        how = f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}"
        why = f"a process that imports {', '.join(names)} {how} (limit {IMPORT_S:g} s)"
        return Loaded((), (), "", why)
    return Loaded(tuple(found["files"]), tuple(found["names"]), found["trace"], found["error"])


class Reloader:
    """Watches the files in a thread; `wanted` is set when a worker with a new version may start."""

    def __init__(
        self,
        names: Sequence[str],
        first: Loaded,
        state_dir: Path,
        report: Callable[[str], None],
        check: Callable[[Sequence[str]], Loaded] = load_elsewhere,
    ) -> None:
        self.wanted = threading.Event()
        self._names, self._state_dir, self._report, self._check = names, state_dir, report, check
        self._agents = first.names
        self._stamps = stamps_of(first.files)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="reload", daemon=True)

    @contextmanager
    def watching(self) -> Iterator[threading.Event]:
        """Watch the files during a block. Each new version that can be loaded sets the yielded
        event.
        """
        self._thread.start()
        try:
            yield self.wanted
        finally:
            self._stop.set()
            self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            now = stamps_of(self._stamps)
            if now == self._stamps:
                continue
            while not self._stop.wait(LOOK_S) and now != (later := stamps_of(self._stamps)):
                now = later
            if not self._stop.is_set():
                self._changed(now)

    def _changed(self, now: Stamps) -> None:
        changed = sorted(Path(file).name for file in now if now[file] != self._stamps[file])
        what = f"{', '.join(changed)} changed"
        self._stamps = now
        found = self._check(self._names)
        # Keep watching the earlier files too, because a failed import shows only some of the files.
        self._stamps |= stamps_of(set(found.files) - set(self._stamps))
        if found.error:
            if found.trace:
                self._report(found.trace)
            self._report(
                f"{what}, and cannot be loaded: {found.error} The worker keeps running with the "
                "version before; save the file again to load it."
            )
            return
        self._report(f"{what}: replacing the worker")
        self._report_agents(found.names)
        self._drain()
        self.wanted.set()

    def _report_agents(self, names: tuple[str, ...]) -> None:
        gone = [name for name in self._agents if name not in names]
        new = [name for name in names if name not in self._agents]
        self._agents = names
        if new:
            self._report(
                f"new: agent {', '.join(new)}; talk to it with foldlog chat --agent {new[0]}"
            )
        if gone:
            self._report(
                f"gone: agent {', '.join(gone)}. Its sessions are kept and wait until an agent of "
                "that name is loaded"
            )

    def _drain(self) -> None:
        """Wait until no tool runs, at most DRAIN_S seconds."""
        until, is_reported = time.monotonic() + DRAIN_S, False
        while (number := tools_running(self._state_dir)) and time.monotonic() < until:
            if not is_reported:
                is_reported = True
                self._report(
                    f"{number} tool{'s' * (number != 1)} still running: the worker is replaced "
                    f"after that, or in {DRAIN_S:g} s"
                )
            if self._stop.wait(LOOK_S):
                return


def tools_running(state_dir: Path) -> int:
    """How many tools the worker of this directory runs now; 0 if it does not respond."""
    status = worker_info(state_dir).status or {}
    return int(status.get("running", {}).get("tools", 0))


def main(words: Sequence[str]) -> None:
    """Run the process that imports a changed version."""
    environment.begin()
    found = load(words[1:])
    with open(int(words[0]), "w", encoding="utf-8") as out:
        json.dump(found._asdict(), out)
    sys.stdout.flush()
    os._exit(0)  # without waiting for threads that the agents' modules started


if __name__ == "__main__":
    main(sys.argv[1:])
