"""The keeper: a small process that runs one command and lets nothing of it outlive its purpose.

Run as a script, `python -I -S reaper.py LIFELINE ENV -- COMMAND...`, by children.py and by
outside/protocol.py; it must not import foldlog. LIFELINE is the read end of a pipe whose only
writer is the worker: `T` asks the command to terminate, end-of-file (the worker let go, or was
killed) kills everything at once. What the command leaves behind when it ends is killed too, also
what has left its process group: the keeper is the subreaper of all its descendants. It ends as the
command ended, by exit code or by signal.

The command gets the environment that the keeper was given (log/environment.py chooses it), and the
variables that are read as a JSON object from the descriptor ENV: arguments can be seen by others.
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
NOT_STARTED = 127  # what a shell says of a command that does not exist


def _prctl(option: int, value: int) -> None:
    """Ask the kernel, where it is Linux; elsewhere the process group is all we hold."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _become(command: list[str], added: dict[str, str]) -> None:
    """In the child: turn into the command. Never returns."""
    try:
        os.setpgid(0, 0)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # should the keeper itself be killed
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
    """Direct children of this process, orphans of its descendants among them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _kill_all(group: int) -> None:
    """Kill the command's group, then whatever descends from us, until there is nobody left."""
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)
    while True:
        for pid in _children():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)  # each death may hand us orphans, found in the next round
        except ChildProcessError:
            return


def _reap(pid: int) -> int | None:
    """Bury the dead; the wait status of the command if it is among them."""
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
    """End as the command ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


def _given(descriptor: int) -> dict[str, str]:
    """The variables that the command shall have."""
    with open(descriptor) as file:
        text = file.read()
    if text == "{}":
        return {}
    import json  # costs a start some milliseconds: only for a command that is given any

    return json.loads(text)


def main(lifeline: int, command: list[str], added: dict[str, str]) -> None:
    """Run the command until it ends or the lifeline says so."""
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
        os.setpgid(pid, pid)  # both sides do: whoever comes first, the group is there to be told
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
