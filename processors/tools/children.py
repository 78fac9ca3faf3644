"""The processes that a tool starts. A process ends when the command that started it ends, when the
run of the tool ends, or when the worker dies, whichever comes first.

Each command runs under a reaper (reaper.py), a separate process that outlives a killed worker just
long enough to kill the processes that the worker started. A parent-death signal alone is not
enough: it reaches only the first process, and is also sent when the starting thread ends.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...log.environment import HAND_OVER_S, for_children
from .output_sink import Stop

REAPER = Path(__file__).with_name("reaper.py")
TERM_S = 0.3  # from SIGTERM to SIGKILL: enough to remove a lock file, small compared to the grace
KILL_S = 5.0  # a process that survives SIGKILL this long hangs in the kernel: do not wait longer
OUTPUT_BYTES_MAX = 1024 * 1024  # kept output of a command: a quarter of it from the start
_READ_BYTES = 64 * 1024


def reaper_command(lifeline: int, env_end: int, command: Sequence[str]) -> list[str]:
    """The command line of a reaper that runs `command`."""
    script = [sys.executable, "-I", "-S", str(REAPER), str(lifeline), str(env_end)]
    return [*script, "--", *command]


@contextlib.asynccontextmanager
async def handed_env(env: Mapping[str, str]) -> AsyncIterator[int]:
    """Yields a descriptor to pass to a reaper that is started in the block. The reaper reads the
    command's extra environment variables from it.

    The descriptor is a socket, because other processes can read arguments and pipes through /proc,
    but cannot open a socket. The variables are written after the block, because they may exceed the
    socket's buffer.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            yield theirs.fileno()
        ours.setblocking(False)
        handing = asyncio.get_running_loop().sock_sendall(ours, json.dumps(dict(env)).encode())
        with contextlib.suppress(OSError):  # the reaper has ended already, which the caller notices
            await asyncio.wait_for(handing, HAND_OVER_S)


class Ended(NamedTuple):
    """How a command ended.

    code: the exit code, or minus the number of the signal that killed the command.
    left_out: how many bytes of output were dropped.

    why: None if the command ended by itself, else `timeout` or the reason of the abort.
    """

    code: int
    output: bytes
    left_out: int
    why: str | None


class Children:
    """The commands of one tool run. A tool uses it as `ctx.children`.

    env_names: globs of environment variables of the worker that commands get in addition to PASSED.
    """

    def __init__(self, stop: Stop, env_names: Sequence[str] = ()) -> None:
        self._stop = stop
        self._env_names = tuple(env_names)
        self._loop = asyncio.get_running_loop()
        self._lifelines: dict[asyncio.subprocess.Process, int] = {}
        self._dying: list[asyncio.Future[Any]] = []
        self._closed = False

    async def run(
        self,
        command: Sequence[str],
        *,
        cwd: Path | str | None = None,
        timeout_s: float | None = None,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
        output_bytes_max: int = OUTPUT_BYTES_MAX,
    ) -> Ended:
        """Run a command to its end. Standard output and error are joined. Raises OSError.

        The command is ended after timeout_s seconds, and when the run is aborted: by SIGTERM, then
        by SIGKILL for the command and everything it started. From the worker's environment, the
        command gets the variables that every program needs (PASSED in log/environment.py) and those
        that the operator named. env: additional variables.
        """
        if self._closed or self._stop.requested:
            raise OSError(f"{command[0]} was not started: the run is ending")
        process = await self._start(command, cwd, env or {}, pass_fds)
        output = _Output(output_bytes_max)
        reading = asyncio.ensure_future(output.read(process.stdout))
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait(
                {reading, stopping}, timeout=timeout_s, return_when="FIRST_COMPLETED"
            )
            why = None
            if not reading.done():
                why = self._stop.why or "timeout"
                await self._terminate(process, reading)
            code = await self._code(process, None if why is None else KILL_S)
        finally:
            stopping.cancel()
            self._close_lifeline(process)
            if not reading.done():
                self._dying.append(asyncio.gather(reading, process.wait(), return_exceptions=True))
        return Ended(code, output.kept(), output.left_out, why)

    def run_blocking(self, command: Sequence[str], **options: Any) -> Ended:
        """Like `run`, for a tool that is not a coroutine function: blocks the tool's own thread."""
        return asyncio.run_coroutine_threadsafe(self.run(command, **options), self._loop).result()

    @property
    def busy(self) -> bool:
        """Whether a command is running. An abort ends the running command, so a tool that waits for
        a command notices the abort."""
        return bool(self._lifelines)

    async def close(self) -> None:
        """Kill the commands that still run and wait for their end. Later commands are refused."""
        self._closed = True
        for process in list(self._lifelines):
            self._close_lifeline(process)
            self._dying.append(asyncio.ensure_future(process.wait()))
        if self._dying:
            await asyncio.wait(self._dying, timeout=KILL_S)
            await asyncio.sleep(0)  # the loop closes the pipes of dead processes in its next round

    async def _start(
        self,
        command: Sequence[str],
        cwd: Path | str | None,
        env: Mapping[str, str],
        pass_fds: Sequence[int],
    ) -> asyncio.subprocess.Process:
        read_end, write_end = os.pipe()
        try:
            async with handed_env(env) as env_end:
                process = await asyncio.create_subprocess_exec(
                    *reaper_command(read_end, env_end, command),
                    cwd=cwd,
                    env=for_children(self._env_names),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=(read_end, env_end, *pass_fds),
                )
        except BaseException:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        self._lifelines[process] = write_end
        return process

    async def _terminate(
        self, process: asyncio.subprocess.Process, reading: asyncio.Future[None]
    ) -> None:
        with contextlib.suppress(OSError):
            os.write(self._lifelines[process], b"T")
        await asyncio.wait({reading}, timeout=TERM_S)
        self._close_lifeline(process)
        await asyncio.wait({reading}, timeout=KILL_S)

    @staticmethod
    async def _code(process: asyncio.subprocess.Process, timeout_s: float | None) -> int:
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(process.wait(), timeout_s)
        return -signal.SIGKILL

    def _close_lifeline(self, process: asyncio.subprocess.Process) -> None:
        """Close the lifeline of a command. The command's reaper then kills all of its own
        descendants."""
        lifeline = self._lifelines.pop(process, None)
        if lifeline is not None:
            os.close(lifeline)


class _Output:
    """The head and the tail of a command's output, in bounded memory."""

    def __init__(self, bytes_max: int) -> None:
        self._head_max = bytes_max // 4
        self._tail_max = bytes_max - self._head_max
        self._head, self._tail, self._total = bytearray(), bytearray(), 0

    async def read(self, stream: asyncio.StreamReader | None) -> None:
        assert stream is not None
        while data := await stream.read(_READ_BYTES):
            self._total += len(data)
            room = self._head_max - len(self._head)
            self._head += data[:room]
            self._tail += data[room:]
            if len(self._tail) > 2 * self._tail_max:
                del self._tail[: -self._tail_max]

    def kept(self) -> bytes:
        """Head and tail of the output; the `left_out` bytes between them were dropped."""
        return bytes(self._head + self._tail[-self._tail_max :])

    @property
    def left_out(self) -> int:
        return self._total - len(self.kept())
