"""The reaper: a small process that runs one command and kills everything the command leaves behind.

children.py and outside/protocol.py run this file as a script, `python -I -S reaper.py LIFELINE ENV
-- COMMAND...`; it must not import foldlog. LIFELINE is the read end of a pipe whose only writer is
the worker. `T` in the pipe asks the command to terminate; end-of-file (the worker closed the pipe,
or was killed) kills all processes at once. Processes that outlive the command are killed too, even
if they left its process group, because the reaper is the subreaper of all its descendants. The
reaper ends as the command ended, by exit code or by signal.

The command gets the reaper's environment (which log/environment.py selects) and further variables.
The reaper reads these from the descriptor ENV, as a JSON object, because other processes can see
arguments.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
NOT_STARTED = 127  # a shell's exit code for a command that does not exist


def _prctl(option: int, value: int) -> None:
    """Call Linux's prctl. Other systems lack it:
    there the reaper controls only the process group."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _become(command: list[str], added: dict[str, str]) -> None:
    """Replace the child process with the command. Never returns."""
    try:
        os.setpgid(0, 0)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # kills the command if the reaper is killed
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.execvpe(command[0], command, dict(os.environ) | added)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(NOT_STARTED)


def _children() -> list[int]:
    """The direct children of this process, including orphans of its descendants."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _kill_all(group: int) -> None:
    """Kill the command's group, then every remaining descendant."""
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)
    while True:
        for pid in _children():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)  # a dead process may leave orphans, found in the next round
        except ChildProcessError:
            return


def _reap(pid: int) -> int | None:
    """Reap dead children. Returns the command's wait status if the command is among them."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while True:
            found, found_status = os.waitpid(-1, os.WNOHANG)
            if found == 0:
                break
            if found == pid:
                status = found_status
    return status


def _end_as(status: int) -> None:
    """End this process with the command's exit code or signal."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _given(descriptor: int) -> dict[str, str]:
    """The variables for the command, read from a descriptor."""
    with open(descriptor) as file:
        text = file.read()
    if text == "{}":
        return {}
    import json  # takes some milliseconds, only for a command with variables

    given: dict[str, str] = json.loads(text)
    return given


def main(lifeline: int, command: list[str], added: dict[str, str]) -> None:
    """Run the command until it ends or the lifeline closes."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    os.set_inheritable(lifeline, False)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pid = os.fork()
    if pid == 0:
        _become(command, added)
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # called by parent and child, so the group exists before its first use
    while True:
        ready, _, _ = select.select([lifeline, wake_read], [], [])
        if lifeline in ready:
            if not os.read(lifeline, 1):
                _kill_all(pid)
                os.kill(os.getpid(), signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGTERM)
        if wake_read in ready:
            os.read(wake_read, 4096)
            status = _reap(pid)
            if status is not None:
                _kill_all(pid)
                _end_as(status)


if __name__ == "__main__":
    end = sys.argv.index("--")
    main(int(sys.argv[1]), sys.argv[end + 1 :], _given(int(sys.argv[2])))
