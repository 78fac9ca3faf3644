"""Starts Python programs by a fork of a process that has made their imports: a start then costs
tenths of a second of CPU time instead of seconds.

`command` returns a command line. Its process (forked_client.py) passes on its stdin, stdout,
stderr, environment, directory and signals, and ends with the exit code of the program. The program
dies with it. Start a program without a fork if a test stops its process with SIGSTOP, reads
/proc/PID of it, or changes what it imports.

Run as a process, this file is the parent: `python -m foldlog.tests.kit.forked SOCKET MODULE...`. It
ends when its stdin closes. It has no threads, because a fork copies only the calling thread.
"""

import atexit
import contextlib
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from foldlog.tests.kit.programs import END_S, line_of

CLIENT = Path(__file__).with_name("forked_client.py")


def command(modules: Sequence[str], *arguments: str | Path) -> tuple[str, ...]:
    """The command line of a program that needs these modules. arguments: those of `python`:
    `-m MODULE`, `-c CODE` or a file, then those of the program."""
    at = _parent(tuple(modules))
    return (sys.executable, "-I", "-S", str(CLIENT), at, *map(str, arguments))


@cache
def _parent(modules: tuple[str, ...]) -> str:
    """The socket of the parent that has imported these modules."""
    at = str(Path(tempfile.mkdtemp(prefix="foldlog-forked-")) / "socket")
    process = subprocess.Popen(
        [sys.executable, "-m", "foldlog.tests.kit.forked", at, *modules],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    atexit.register(process.communicate, timeout=END_S)
    assert line_of(process.stdout, "the modules are imported") == "ready\n"
    return at


class Parent:
    """The process that forks. `run` returns in a forked process, with what that process runs."""

    def __init__(self, at: str) -> None:
        self._at = at
        self._clients: dict[int, socket.socket] = {}  # by the pid of the program
        self._dead, death = os.pipe()
        os.set_blocking(death, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(death)

    def run(self) -> Callable[[], Any]:
        """Fork programs until stdin closes."""
        assert threading.active_count() == 1, threading.enumerate()
        with socket.socket(socket.AF_UNIX) as listener, selectors.PollSelector() as self._ready:
            listener.bind(self._at)
            listener.listen()
            for source in (0, self._dead, listener):
                self._ready.register(source, selectors.EVENT_READ)
            print("ready", flush=True)
            while True:
                for key, _ in self._ready.select():
                    if key.fileobj == 0:
                        self._end()
                    elif key.fileobj == self._dead:
                        os.read(self._dead, 4096)
                        self._reap()
                    elif key.fileobj is not listener:  # a client has ended
                        self._kill(key.data)
                    elif program := self._accepted(listener.accept()[0]):
                        return program

    def _accepted(self, client: socket.socket) -> Callable[[], Any] | None:
        """Start what a client orders. Returns what to run in the forked process, else None."""
        _, descriptors, *_ = socket.recv_fds(client, 1, 3)
        with client.makefile("rb") as sent:
            order = sent.readline()
        if not order.endswith(b"\n"):  # the client has ended
            client.close()
        elif pid := os.fork():
            self._clients[pid] = client
            self._ready.register(client, selectors.EVENT_READ, pid)
            _report(client, pid)
        else:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _program(descriptors, **json.loads(order))
        for each in descriptors:
            os.close(each)
        return None

    def _reap(self) -> None:
        """Report the programs that have ended."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                with self._forget(pid) as client:
                    _report(client, os.waitstatus_to_exitcode(status))

    def _kill(self, pid: int) -> None:
        """End a program, so that it has ended before another one is started."""
        if pid in self._clients:  # else it has ended in the same round
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self._forget(pid).close()

    def _forget(self, pid: int) -> socket.socket:
        client = self._clients.pop(pid)
        self._ready.unregister(client)
        return client

    def _end(self) -> NoReturn:
        for pid in list(self._clients):
            self._kill(pid)
        shutil.rmtree(Path(self._at).parent, ignore_errors=True)
        os._exit(0)


def _report(client: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the client has ended
        client.sendall(b"%d\n" % number)


def _program(
    descriptors: list[int], arguments: list[str], directory: str, env: dict[str, str]
) -> Callable[[], Any]:
    """Become the program that a client orders. Returns what runs it."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(directory)
    if arguments[0] == "-m":
        sys.argv, sys.path[0] = arguments[1:], directory
        return lambda: runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    if arguments[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *arguments[2:]], directory
        return lambda: exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    sys.argv, sys.path[0] = arguments, str(Path(arguments[0]).absolute().parent)
    return lambda: runpy.run_path(arguments[0], run_name="__main__")


def main(at: str, modules: Sequence[str]) -> None:
    """Import the modules, and fork programs."""
    for name in modules:
        importlib.import_module(name)
    Parent(at).run()()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
