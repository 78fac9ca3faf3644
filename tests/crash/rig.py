"""Fixture helpers: one stage with one worker, which many rounds share, and a supervised worker."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from foldlog.reports.replay import verify
from foldlog.tests.crash.fleet import PATIENCE_S, WorkerHandle, wait_until
from foldlog.tests.crash.stage import Stage
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.programs import ended

SUPERVISE = (
    "import sys; from foldlog.processors.worker import supervise; "
    "sys.exit(supervise.run(sys.argv[1:], lambda text: print(text, flush=True)))"
)


class Rig:
    """Keeps a stage and its worker for several rounds; replaces both after a failed round."""

    def __init__(self, servers: str, directory: Callable[[], Path]) -> None:
        self._servers, self._directory = servers, directory
        self._stack = ExitStack()
        self._stage: Stage | None = None
        self._handle: WorkerHandle | None = None

    @contextmanager
    def round(self) -> Iterator[tuple[Stage, WorkerHandle]]:
        """Yield the stage and the worker's handle for one test."""
        if self._stage is None:
            self._stage = self._stack.enter_context(stage_on(self._servers, self._directory()))
            self._handle = self._stage.handle()
        assert self._handle is not None
        try:
            yield self._stage, self._handle
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the workers."""
        self._stage = self._handle = None
        self._stack.close()


@contextmanager
def stage_on(servers: str, directory: Path, partitions: int | None = None) -> Iterator[Stage]:
    """Yield a stage that has its own topics, and close it when the block ends."""
    more = {} if partitions is None else {"partitions": partitions}
    stage = Stage(servers, directory, unique_name("crash") + "-", **more)
    try:
        yield stage
    finally:
        stage.close()


def replay_differs(stage: Stage, worker: str = "w1") -> list[str]:
    """The differences between the worker's stores and a new fold of the log from offset 0."""
    found = []
    for verified in verify(stage.log, stage.settings_of(worker)):
        found += [verified.problem] if verified.problem else []
        found += [str(difference) for difference in verified.differences]
    return found


@contextmanager
def supervised(handle: WorkerHandle) -> Iterator[subprocess.Popen]:
    """A supervisor that runs the worker of this handle until the end of the block."""
    command = [sys.executable, "-c", SUPERVISE, *handle.command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        ended(process, PATIENCE_S)
        assert process.stdout is not None
        process.stdout.close()
        wait_until("no process is left", lambda: not handle.processes())
