"""Brings the local Kafka up and down, and says how it is.

It owns the directory: data, properties, log, and the state file in which other commands find the
bootstrap address. It knows no topic. A broker started here outlives the command that started it;
`up` finds a running one and uses it, whoever started it.

Order of `up`, under the directory's lock: look for a running broker; Java; room on the disk; jars;
format (once, into another name, then renamed); ports; properties; start; wait until a metadata
answer carries our cluster id and port; write the state file.
"""

import base64
import dataclasses
import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from . import node, process
from .errors import BrokerError, BrokerFailed, DiskFull, PortTaken
from .jars import LOCK, Progress, ensure_jars, only_one
from .java import find_java
from .last_words import explain
from .ports import DEFAULT_PORT, free_pair, holder_of
from .probe import ask

_PORT_TRIES = 5
_READY_S = 60.0  # 1 to 2.5 s on an idle machine; one that is busy with other work takes its time
_READY_POLL_S = 0.02
_DOWN_S = 30.0  # 0.3 s on an idle broker; SIGKILL after that loses nothing (it replays its log)
_DIR_MODE, _FILE_MODE = 0o700, 0o600  # what was said in sessions is their owner's alone
_FREE_BYTES_MIN = 100 << 20  # 38 MB of jars, and some room to write in


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """A broker that was ready. `start_time` is Unix seconds."""

    pid: int
    start_time: float
    port: int
    cluster_id: str

    @property
    def bootstrap_servers(self) -> str:
        return f"{node.HOST}:{self.port}"


class Condition(StrEnum):
    RUNNING = "running"
    SILENT = "silent"  # the process is there and does not answer (starting, stopped, swamped)
    GONE = "gone"  # it was up and ended by itself or was killed; `up` brings it back
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """How the broker is now; `state` as of its last start, None if it is stopped."""

    condition: Condition
    state: BrokerState | None
    pid: int | None

    @property
    def running(self) -> bool:
        return self.condition is Condition.RUNNING


@dataclass(frozen=True, kw_only=True)
class Broker:
    """The local Kafka of one directory.

    `dir` holds its data between runs, `cache_dir` the jars (shared by all). `port` forces a port
    (and the next one, for the controller); without it the last used or `preferred_port` is taken,
    or a free pair if that is held by something else. `properties` are added to the node's,
    `java_options` to the JVM's. `tied`: the broker ends with this process (Linux). `mirror` is the
    address of a Maven repository to use instead of the public one. `env`: the environment of the
    broker (default: that of this process).
    """

    dir: Path
    cache_dir: Path
    port: int | None = None
    preferred_port: int | None = DEFAULT_PORT
    properties: Mapping[str, str] = field(default_factory=dict)
    java_options: tuple[str, ...] = ()
    tied: bool = False
    mirror: str | None = None
    env: Mapping[str, str] | None = None
    jar_lock: Path = LOCK
    free_bytes_min: int = _FREE_BYTES_MIN

    def up(self, progress: Progress = lambda _line: None) -> BrokerState:
        """Returns when the broker answers; starts it if it does not run. Raises BrokerError.

        Interrupted (Ctrl-C) or failed, it leaves no process that it started.
        """
        try:
            self.dir.mkdir(mode=_DIR_MODE, parents=True, exist_ok=True)
            with self._only_one(progress):
                found = process.find(self._marker)
                state = (found and self._join(*found, progress)) or self._start(progress)
                _make_private(self.dir)
                return state
        except OSError as error:
            raise _unusable(self.dir, error) from error

    def down(self) -> bool:
        """Stops the broker and keeps its data; False if none ran. The next `up` takes its port
        again if it can: workers and gateways that went on look for it there."""
        if not self.dir.exists():
            return False
        with self._only_one(lambda _line: None):
            found = process.find(self._marker)
            if found:
                process.end(found[0], patience_s=_DOWN_S)
                self._port_file.write_text(f"{_port_in(found[1])}\n")
                self._port_file.chmod(_FILE_MODE)
            self._state_file.unlink(missing_ok=True)
            return found is not None

    def kill(self) -> None:
        """SIGKILL, for tests and the demo: what a crash looks like. Does nothing if none runs."""
        if found := process.find(self._marker):
            process.kill(found[0])

    def status(self) -> BrokerStatus:
        """Looks without a lock and changes nothing."""
        state = self.state()
        found = process.find(self._marker)
        if not found:
            condition = Condition.GONE if state else Condition.STOPPED
            return BrokerStatus(condition=condition, state=state, pid=None)
        pid, arguments = found
        ready = self._is_ready(_port_in(arguments), self._cluster_id())
        condition = Condition.RUNNING if ready else Condition.SILENT
        return BrokerStatus(condition=condition, state=state, pid=pid)

    def state(self) -> BrokerState | None:
        """The state file, as the last `up` wrote it; None after `down`."""
        try:
            return BrokerState(**json.loads(self._state_file.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect. Raises BrokerFailed if `up` was never called."""
        state = self.state()
        if state is None:
            raise BrokerFailed(f"no broker was started in {self.dir}: run `foldlog up`")
        return state.bootstrap_servers

    @property
    def log_file(self) -> Path:
        return self.dir / "broker.log"

    # ---- start

    def _start(self, progress: Progress) -> BrokerState:
        self._check_room()
        java = find_java()
        jars = ensure_jars(
            self.cache_dir / "jars", progress, lock=self.jar_lock, mirror=self.mirror
        )
        jvm = node.jvm(java, jars, self.cache_dir / "start")
        (self.dir / node.LOGGING).write_text(node.LOGGING_TEXT)
        if self.log_file.exists():
            os.replace(self.log_file, self.dir / "broker.log.1")  # keeps the log of a crash
        if not (self.dir / node.DATA).exists():
            self._format(jvm)
        for attempt in range(_PORT_TRIES):
            port = self._choose_port(progress)
            try:
                return self._start_on(port, jvm)
            except PortTaken:  # somebody took it between our look and Kafka's bind
                if self.port is not None or attempt == _PORT_TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def _start_on(self, port: int, jvm: list[str]) -> BrokerState:
        (self.dir / node.PROPERTIES).write_text(node.properties_text(port, self.properties))
        marks = [self._marker, f"{_PORT_MARK}{port}"]
        options = [*marks, *self.java_options]
        command = [jvm[0], *options, *jvm[1:], "kafka.Kafka", node.PROPERTIES]
        start_time = time.time()
        with self._child(command, tied=self.tied) as pid:
            self._await_ready(pid, port)
            state = BrokerState(
                pid=pid, start_time=start_time, port=port, cluster_id=self._cluster_id()
            )
            self._write_state(state)
        return state

    def _join(self, pid: int, arguments: list[str], progress: Progress) -> BrokerState | None:
        """Waits for a broker that runs already; None if it ends meanwhile."""
        port = _port_in(arguments)
        if self.port is not None and port != self.port:
            raise PortTaken(
                f"the broker of {self.dir} already runs on port {port}, not on {self.port}. It was"
                " left running. Run `foldlog down` first, or use the port it has."
            )
        if not self._is_ready(port, self._cluster_id()):
            progress(f"waiting for the broker that is starting (process {pid})")
        try:
            self._await_ready(pid, port)
        except BrokerFailed:
            if process.wait_gone(pid, 0):
                return None
            raise
        state = self.state()
        if state is None or (state.pid, state.port) != (pid, port):  # its `up` was killed
            state = BrokerState(
                pid=pid, start_time=time.time(), port=port, cluster_id=self._cluster_id()
            )
            self._write_state(state)
        return state

    def _format(self, jvm: list[str]) -> None:
        shutil.rmtree(self.dir / node.NEW_DATA, ignore_errors=True)  # of an interrupted format
        text = node.properties_text(DEFAULT_PORT, self.properties, data=node.NEW_DATA)
        (self.dir / node.FORMAT_PROPERTIES).write_text(text)
        with self._child([*jvm, *node.format_arguments(_new_cluster_id())], tied=True) as pid:
            if not process.wait_gone(pid, _READY_S):
                raise BrokerFailed(f"formatting took over {_READY_S:.0f} s; see {self.log_file}")
        if process.exit_code(pid) != 0:
            raise explain(self.log_file, self.dir)
        os.rename(self.dir / node.NEW_DATA, self.dir / node.DATA)

    @contextmanager
    def _child(self, command: list[str], *, tied: bool) -> Iterator[int]:
        self.log_file.write_bytes(b"")  # what we may have to explain is this process alone
        with open(self.log_file, "ab") as log:
            with process.spawned(command, cwd=self.dir, log=log, tied=tied, env=self.env) as pid:
                yield pid

    def _await_ready(self, pid: int, port: int) -> None:
        cluster_id = self._cluster_id()
        deadline = time.monotonic() + _READY_S
        while not self._is_ready(port, cluster_id):
            if process.wait_gone(pid, _READY_POLL_S):
                raise explain(self.log_file, self.dir)
            if time.monotonic() > deadline:
                raise BrokerFailed(
                    f"the broker (process {pid}) did not answer on port {port} within"
                    f" {_READY_S:.0f} s. Its data is kept. See {self.log_file}; then run"
                    " `foldlog down` and `foldlog up`."
                )

    def _is_ready(self, port: int, cluster_id: str) -> bool:
        answer = ask(port)
        return answer is not None and answer.cluster_id == cluster_id and port in answer.ports

    # ---- ports

    def _choose_port(self, progress: Progress) -> int:
        if self.port is not None:
            if holder := holder_of(self.port):
                raise PortTaken(
                    f"port {holder}. Nothing was started and nothing was changed. Stop that"
                    " program, or choose another port."
                )
            return self.port
        last = self.state()  # clients still look for the port it had, after a crash or a `down`
        wanted = last.port if last else self._port_before() or self.preferred_port
        if wanted is not None:
            holder = holder_of(wanted)
            if holder is None:
                return wanted
            progress(f"port {holder}; choosing another one")
        return free_pair()

    def _port_before(self) -> int | None:
        """The port it had when it was last stopped; None if that is not known."""
        try:
            return int(self._port_file.read_text())
        except (OSError, ValueError):
            return None

    # ---- files

    @property
    def _marker(self) -> str:
        # a hash: paths with blanks or odd letters do not survive every system's process table
        path = os.fsencode(self.dir.resolve())
        return f"-Dfoldlog.broker={hashlib.sha256(path).hexdigest()[:16]}"

    @property
    def _state_file(self) -> Path:
        return self.dir / "broker.json"

    @property
    def _port_file(self) -> Path:
        return self.dir / "last.port"

    def _write_state(self, state: BrokerState) -> None:
        scratch = self._state_file.with_suffix(".new")
        scratch.write_text(json.dumps(dataclasses.asdict(state)))
        os.replace(scratch, self._state_file)

    def _cluster_id(self) -> str:
        meta = self.dir / node.DATA / "meta.properties"
        with suppress(FileNotFoundError):
            for line in meta.read_text().splitlines():
                if line.startswith("cluster.id="):
                    return line.partition("=")[2]
        raise BrokerFailed(
            f"{meta} is missing or damaged, so Kafka can not use the data beside it. The data is"
            f" untouched. Restore the file, or move {self.dir} away to start empty."
        )

    def _check_room(self) -> None:
        free = shutil.disk_usage(self.dir).free
        if free < self.free_bytes_min:
            raise DiskFull(
                f"{free >> 20} MB free at {self.dir}, Kafka needs at least"
                f" {self.free_bytes_min >> 20}. Nothing was started, the data is kept. Free some"
                " space and run `foldlog up` again."
            )

    def _only_one(self, progress: Progress) -> AbstractContextManager[None]:
        return only_one(
            self.dir / "up.lock",
            lambda: progress("another `foldlog up` or `down` is at work here, waiting for it"),
        )


def _make_private(directory: Path) -> None:
    """Close to others what we or an older release wrote; Java's umask does it for the rest."""
    os.chmod(directory, _DIR_MODE)
    for at, directories, files in os.walk(directory):
        for names, mode in ((directories, _DIR_MODE), (files, _FILE_MODE)):
            for name in names:
                with suppress(FileNotFoundError):  # a running Kafka renames and deletes
                    os.chmod(os.path.join(at, name), mode)


_PORT_MARK = "-Dfoldlog.port="


def _port_in(arguments: list[str]) -> int:
    return next(int(a.removeprefix(_PORT_MARK)) for a in arguments if a.startswith(_PORT_MARK))


def _unusable(directory: Path, error: OSError) -> BrokerError:
    if error.errno == errno.ENOSPC:
        return DiskFull(
            f"the disk is full ({error}). The data in {directory} is kept. Free some space and run"
            " `foldlog up` again."
        )
    return BrokerFailed(
        f"{directory} can not be used: {error}. Nothing was changed. Make it writable, or choose"
        " another directory."
    )


def _new_cluster_id() -> str:
    """A Kafka uuid: 16 random bytes, url-safe base64 without padding."""
    while True:
        cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        if not cluster_id.startswith("-"):  # the format tool would take it for an option
            return cluster_id
