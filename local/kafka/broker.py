"""Starts and stops the local Kafka, and reports its status.

The broker's directory has the data, the properties, the log, and the state file from which other
commands read the bootstrap address. A broker outlives the command that started it, and `up` reuses
a running broker, no matter which command started it.

Order of `up`, under the directory's lock: look for a running broker; find Java; check the free disk
space; fetch the jars; format the data directory, once (under a temporary name, then renamed);
choose ports; write the properties; start; wait until a metadata response has our cluster id and
port; write the state file.
"""

import base64
import dataclasses
import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from . import node, process
from .crash_report import explain
from .errors import BrokerError, BrokerFailed, DiskFull, PortTaken
from .jars import LOCK, Progress, ensure_jars, only_one
from .java import find_java
from .ports import DEFAULT_PORT, free_pair, holder_of
from .probe import ask

_PORT_TRIES = 5
_READY_S = 60.0  # 1 to 2.5 s on an idle machine, much longer on a busy one
_READY_POLL_S = 0.02
_DOWN_S = 30.0  # 0.3 s on an idle broker; SIGKILL after that loses nothing (it replays its log)
_DIR_MODE, _FILE_MODE = 0o700, 0o600  # only the owner may read the content of sessions
_FREE_BYTES_MIN = 100 << 20  # 38 MB of jars, and room for some writes


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """A broker that has become ready. `start_time` is Unix seconds."""

    pid: int
    start_time: float
    port: int
    cluster_id: str

    @property
    def bootstrap_servers(self) -> str:
        return f"{node.HOST}:{self.port}"


class Condition(StrEnum):
    RUNNING = "running"
    PARTIAL = "partial"  # some brokers of a cluster respond, and others do not
    SILENT = "silent"  # the process exists but does not respond (starting, paused, overloaded)
    GONE = "gone"  # it was up, and exited or was killed; `up` starts it again
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """The broker's current status.

    `state`: the state file that its last start wrote; None if it is stopped.
    """

    condition: Condition
    state: BrokerState | None
    pid: int | None

    @property
    def running(self) -> bool:
        return self.condition is Condition.RUNNING


@dataclass(frozen=True, kw_only=True)
class Broker:
    """The local Kafka of one directory.

    dir: keeps the data between runs.
    cache_dir: has the jars of all brokers.
    port: forces the port for clients; the controller has the next one. Without it, the broker uses
        its last port, or `preferred_port` at its first start. If another program has that port, the
        broker uses any free pair.
    properties: are added to the node's properties, and `java_options` to the JVM's options.
    tied: whether the broker ends with this process (Linux).
    mirror: the address of a Maven repository to use instead of the public one.
    env: the environment of the broker (default: that of this process).

    A broker of a cluster (`cluster.py`) has its own `node_id`, and the client `ports` and the
    `cluster_id` of the cluster.
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
    node_id: int = 1
    ports: tuple[int, ...] = ()
    cluster_id: str | None = None

    def up(self, progress: Progress = lambda _line: None) -> BrokerState:
        """Start the broker if it does not run, and return when it responds. Raises BrokerError.

        If the call fails or is interrupted (Ctrl-C), it ends the process that it started.
        """
        try:
            self.dir.mkdir(mode=_DIR_MODE, parents=True, exist_ok=True)
            with self._only_one(progress):
                found = process.find(self._marker)
                state = (found and self._join(*found, progress)) or self._start(progress)
                make_private(self.dir)
                return state
        except OSError as error:
            raise unusable(self.dir, error) from error

    def launch(self, stack: ExitStack, progress: Progress) -> Callable[[], BrokerState]:
        """Start the process of the broker if it does not run. Returns a function that waits until
        the broker responds. Both raise BrokerError.

        For a broker that cannot respond before others have started. It needs a `port`. `stack` must
        be open until the function has returned: it holds the lock of the directory, and an error
        that leaves it ends the process.
        """
        assert self.port is not None, "the ports of a cluster are chosen together"
        self.dir.mkdir(mode=_DIR_MODE, parents=True, exist_ok=True)
        stack.enter_context(self._only_one(progress))
        found = process.find(self._marker)
        if found is None:
            jvm = self._prepare(progress)
            return self._launch_on(stack, self._choose_port(progress), jvm)

        def join() -> BrokerState:
            state = self._join(*found, progress)
            if state is None:
                raise explain(self.log_file, self.dir)
            return state

        return join

    def down(self) -> bool:
        """Stop the broker and keep its data; False if it did not run.

        The next `up` reuses the port if it can, because running workers and gateways expect the
        broker there.
        """
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
        """Send SIGKILL to the broker, to simulate a crash in tests and the demo.

        Does nothing if it does not run.
        """
        if found := process.find(self._marker):
            process.kill(found[0])

    @property
    def pid(self) -> int | None:
        """The process id of the broker, or None if it does not run."""
        found = process.find(self._marker)
        return found[0] if found else None

    def status(self) -> BrokerStatus:
        """The current status, read without a lock and without changing anything."""
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
        """The content of the state file, which the last `up` wrote; None after `down`."""
        try:
            return BrokerState(**json.loads(self._state_file.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    @property
    def bootstrap_servers(self) -> str:
        """The address to which clients connect. Raises BrokerFailed if `up` was never called."""
        state = self.state()
        if state is None:
            raise BrokerFailed(f"no broker has been started in {self.dir}. Run `foldlog up`.")
        return state.bootstrap_servers

    @property
    def log_file(self) -> Path:
        return self.dir / "broker.log"

    # ---- start

    def _start(self, progress: Progress) -> BrokerState:
        jvm = self._prepare(progress)
        for attempt in range(_PORT_TRIES):
            port = self._choose_port(progress)
            try:
                with ExitStack() as stack:
                    return self._launch_on(stack, port, jvm)()
            except PortTaken:  # taken between our check and Kafka's bind
                if self.port is not None or attempt == _PORT_TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    def _prepare(self, progress: Progress) -> list[str]:
        """Provide what a start needs, and format the data directory, once. Returns the beginning of
        the broker's command line."""
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
        return jvm

    def _launch_on(
        self, stack: ExitStack, port: int, jvm: list[str]
    ) -> Callable[[], BrokerState]:
        (self.dir / node.PROPERTIES).write_text(self._properties_text(port))
        marks = [self._marker, f"{_PORT_MARK}{port}"]
        options = [*marks, *self.java_options]
        command = [jvm[0], *options, *jvm[1:], "kafka.Kafka", node.PROPERTIES]
        start_time = time.time()
        pid = stack.enter_context(self._child(command, tied=self.tied))

        def await_ready() -> BrokerState:
            self._await_ready(pid, port)
            return self._write_state(pid, port, start_time)

        return await_ready

    def _properties_text(self, port: int, data: str = node.DATA) -> str:
        return node.properties_text(
            port, self.properties, data, node_id=self.node_id, ports=self.ports
        )

    def _join(self, pid: int, arguments: list[str], progress: Progress) -> BrokerState | None:
        """Wait until a broker that already runs is ready; None if it exits first."""
        port = _port_in(arguments)
        if self.port is not None and port != self.port:
            raise PortTaken(
                f"the broker of {self.dir} already runs on port {port}, not on {self.port}. It"
                " keeps running. Run `foldlog down` first, or use its port."
            )
        if not self._is_ready(port, self._cluster_id()):
            progress(f"waiting for the broker to start (process {pid})")
        try:
            self._await_ready(pid, port)
        except BrokerFailed:
            if process.wait_gone(pid, 0):
                return None
            raise
        state = self.state()
        if state is None or (state.pid, state.port) != (pid, port):  # its `up` was killed
            return self._write_state(pid, port, time.time())
        return state

    def _format(self, jvm: list[str]) -> None:
        shutil.rmtree(self.dir / node.NEW_DATA, ignore_errors=True)  # from an interrupted format
        text = self._properties_text(self.port or DEFAULT_PORT, node.NEW_DATA)
        (self.dir / node.FORMAT_PROPERTIES).write_text(text)
        cluster_id = self.cluster_id or new_cluster_id()
        arguments = node.format_arguments(cluster_id, alone=not self.ports)
        with self._child([*jvm, *arguments], tied=True) as pid:
            if not process.wait_gone(pid, _READY_S):
                raise BrokerFailed(
                    f"formatting took over {_READY_S:.0f} s. Nothing was started. See"
                    f" {self.log_file}; then run `foldlog up` again."
                )
        if process.exit_code(pid) != 0:
            raise explain(self.log_file, self.dir)
        os.rename(self.dir / node.NEW_DATA, self.dir / node.DATA)

    @contextmanager
    def _child(self, command: list[str], *, tied: bool) -> Iterator[int]:
        self.log_file.write_bytes(b"")  # a crash report covers only this process
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
        last = self.state()  # after a crash or a `down`, clients still expect its last port
        wanted = last.port if last else self._last_port() or self.preferred_port
        if wanted is not None:
            holder = holder_of(wanted)
            if holder is None:
                return wanted
            progress(f"port {holder}; choosing another one")
        return free_pair()

    def _last_port(self) -> int | None:
        """The port that the broker had when it was last stopped; None if unknown."""
        try:
            return int(self._port_file.read_text())
        except (OSError, ValueError):
            return None

    # ---- files

    @property
    def _marker(self) -> str:
        # a hash: some systems' process tables garble paths with spaces or unusual characters
        path = os.fsencode(self.dir.resolve())
        return f"-Dfoldlog.broker={hashlib.sha256(path).hexdigest()[:16]}"

    @property
    def _state_file(self) -> Path:
        return self.dir / "broker.json"

    @property
    def _port_file(self) -> Path:
        return self.dir / "last.port"

    def _write_state(self, pid: int, port: int, start_time: float) -> BrokerState:
        cluster_id = self._cluster_id()
        state = BrokerState(pid=pid, start_time=start_time, port=port, cluster_id=cluster_id)
        scratch = self._state_file.with_suffix(".new")
        scratch.write_text(json.dumps(dataclasses.asdict(state)))
        os.replace(scratch, self._state_file)
        return state

    def _cluster_id(self) -> str:
        meta = self.dir / node.DATA / "meta.properties"
        with suppress(FileNotFoundError):
            for line in meta.read_text().splitlines():
                if line.startswith("cluster.id="):
                    return line.partition("=")[2]
        raise BrokerFailed(
            f"{meta} is missing or damaged, so Kafka cannot use the data in this directory. The"
            f" data is untouched. Restore the file, or move {self.dir} away to start empty."
        )

    def _check_room(self) -> None:
        free = shutil.disk_usage(self.dir).free
        if free < self.free_bytes_min:
            raise DiskFull(
                f"only {free >> 20} MB are free at {self.dir}; Kafka needs at least"
                f" {self.free_bytes_min >> 20} MB. Nothing was started, the data is kept. Free some"
                " space and run `foldlog up` again."
            )

    def _only_one(self, progress: Progress) -> AbstractContextManager[None]:
        return only_one(
            self.dir / "up.lock",
            lambda: progress("waiting for another `foldlog up` or `down` in this directory"),
        )


def make_private(directory: Path) -> None:
    """Make all present files private, including those of older releases. The umask does this for
    files that Java creates later."""
    os.chmod(directory, _DIR_MODE)
    for at, directories, files in os.walk(directory):
        for names, mode in ((directories, _DIR_MODE), (files, _FILE_MODE)):
            for name in names:
                with suppress(FileNotFoundError):  # a running Kafka renames and deletes
                    os.chmod(os.path.join(at, name), mode)


_PORT_MARK = "-Dfoldlog.port="


def _port_in(arguments: list[str]) -> int:
    return next(int(a.removeprefix(_PORT_MARK)) for a in arguments if a.startswith(_PORT_MARK))


def unusable(directory: Path, error: OSError) -> BrokerError:
    if error.errno == errno.ENOSPC:
        return DiskFull(
            f"the disk is full ({error}). The data in {directory} is kept. Free some space and run"
            " `foldlog up` again."
        )
    return BrokerFailed(
        f"{directory} cannot be used: {error}. Nothing was changed. Make it writable, or choose"
        " another directory."
    )


def new_cluster_id() -> str:
    """A Kafka uuid: 16 random bytes, url-safe base64 without padding."""
    while True:
        cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        if not cluster_id.startswith("-"):  # the format tool would read it as an option
            return cluster_id
