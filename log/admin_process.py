"""Runs the admin client in a process of its own, so that an outage cannot end ours.

librdkafka aborts its process when an admin request times out at a bad moment
(confluentinc/librdkafka#4605). A worker that died this way lost the records in its producers'
queues, and every gateway its viewers. `AdminProcess` is our end: it calls the methods of
`admin.Cluster` over a socket, and starts another process if the last one died. `main` is the other
end; its process ends when the socket closes, so it never outlives ours.

The properties may contain secrets. They go over the socket, never into arguments or variables.
"""

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from itertools import count
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import finalize

from .admin import Cluster
from .client import LOGGER, unreachable
from .environment import begin, start_process
from .errors import FoldlogError, LogUnreachable

P = ParamSpec("P")
T = TypeVar("T")

HUNG_S = 300.0
"""How long a request may take. Each one ends earlier by itself, so a process that takes longer
hangs, and is killed.
"""

_ENDING_S = 1.0
"""How long a request may take while our process is ending."""

_CLOSE_S = 5.0
"""How long to wait for the end of a killed process. It takes milliseconds."""

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that a terminal or service manager sends to us and all our processes. A clean end may
still need the cluster.
"""


class AdminProcess:
    """Calls the methods of `Cluster` in another process. May be used from several threads."""

    def __init__(self, properties: Mapping[str, Any], timeout_s: float) -> None:
        self._opening = dict(properties), timeout_s
        self._servers = str(properties["bootstrap.servers"])
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._is_ending = False

    def ask(
        self, method: Callable[Concatenate[Cluster, P], T], *about: P.args, **more: P.kwargs
    ) -> T:
        """Call a method of `Cluster`. Raises what it raises; LogUnreachable if its process dies."""
        with self._lock:
            child = self._living()
            answer: Future[T] = child.send(method.__name__, *about, **more)
            is_ending = self._is_ending
        if not wait([answer], _ENDING_S if is_ending else HUNG_S).done:
            if is_ending:
                raise self._ending()
            child.process.kill()
            raise unreachable(self._servers, "its client hangs")
        return answer.result()

    def _living(self) -> "_Child":
        if self._child is None or self._child.is_dead:
            try:
                self._child = _Child(self._opening, self._servers, self._lock)
            except OSError as error:  # the system has no process, descriptor or memory for it
                raise unreachable(self._servers, f"its client does not start: {error}") from error
            # The socket ends it together with our process, also if we are killed.
            finalize(self, self._child.process.kill).atexit = False
        return self._child

    def _ending(self) -> LogUnreachable:
        return unreachable(self._servers, "this process is ending")

    def interrupt(self) -> None:
        """Make every waiting request fail. Called from another thread."""
        with self._lock:
            self._is_ending = True
            if self._child is not None:
                self._child.fail(self._ending())

    def close(self) -> None:
        """End the process. A later call starts another one."""
        with self._lock:
            child, self._child = self._child, None
            if child is None:
                return
            child.is_dead = True
            child.fail(unreachable(self._servers, "this log was closed"))
        child.process.kill()  # it holds nothing that could be lost
        child.thread.join(_CLOSE_S)


_CLOSED = (EOFError, OSError, pickle.UnpicklingError)
"""What reading raises when the process at the other end has died, perhaps while it wrote."""


class _Link:
    """One end of the socket. One thread at a time may send, and another one receive."""

    def __init__(self, end: socket.socket) -> None:
        self._stream = end.makefile("rwb")
        end.close()  # the stream keeps it open

    def send(self, value: Any) -> None:
        # Not into the stream: a value that cannot be pickled must not be sent in part.
        self._stream.write(pickle.dumps(value))
        self._stream.flush()

    def recv(self) -> Any:
        return pickle.load(self._stream)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it still holds a request that was never sent
            self._stream.close()


class _Child:
    """One process, and the requests that it has not answered. `lock`: held by the callers."""

    def __init__(self, opening: Any, servers: str, lock: threading.Lock) -> None:
        self.is_dead = False
        self._servers, self._lock = servers, lock
        self._numbers = count()
        self._waiting: dict[int, Future[Any]] = {}
        ours, theirs = socket.socketpair()
        self._link = _Link(ours)
        with theirs:
            self.process = start_process(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # a failed assertion of librdkafka
                start_new_session=True,  # Ctrl-C does not reach it
            )
        with contextlib.suppress(OSError):  # it has already died, which `_receive` reports
            self._link.send(opening)
        self.thread = threading.Thread(target=self._receive, name="foldlog-admin", daemon=True)
        self.thread.start()

    def send(self, method: str, *about: Any, **more: Any) -> Future[Any]:
        """Send a request, and return its answer."""
        number, answer = next(self._numbers), Future[Any]()
        self._waiting[number] = answer
        with contextlib.suppress(OSError):  # it has just died, which `_receive` reports
            self._link.send((number, method, about, more))
        return answer

    def fail(self, error: FoldlogError) -> None:
        """Let every request fail that has no answer."""
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer.set_exception(error)

    def _settle(self, number: int, found: Any) -> None:
        with self._lock:
            answer = self._waiting.pop(number, None)
        if answer is None:  # it was interrupted
            return
        if isinstance(found, Exception):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def _receive(self) -> None:
        try:
            with contextlib.suppress(*_CLOSED):
                while True:
                    # No variable here: an error's traceback would keep its caller's log alive.
                    self._settle(*self._link.recv())
        finally:
            self.process.kill()
            code = self.process.wait()
            how = f"its client ended by signal {-code}" if code < 0 else f"exit code {code}"
            with self._lock:
                if not self.is_dead:
                    LOGGER.info("no admin client at %s: %s", self._servers, how)
                self.is_dead = True
                self.fail(unreachable(self._servers, how))
            self._link.close()


def main() -> None:
    """The process: answers the requests of the process at the other end of the socket."""
    begin()
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(*_CLOSED):
        _serve(_Link(socket.socket(fileno=int(sys.argv[1]))))
    os._exit(0)  # at once: no caller is left for the requests that still run


def _serve(link: _Link) -> None:
    """Answer requests until the socket closes, each on its own thread, because it may wait."""
    properties, timeout_s = link.recv()
    cluster: Cluster | None = None
    sending = threading.Lock()

    def reply(number: int, found: Any) -> None:
        with sending:
            link.send((number, found))

    def answer(number: int, call: Callable[..., Any], about: Any, more: Any) -> None:
        reply(number, _result(call, about, more))

    while True:
        number, method, about, more = link.recv()
        try:
            cluster = cluster or Cluster(properties, timeout_s)
        except FoldlogError as error:
            reply(number, error)
            continue
        request = number, getattr(cluster, method), about, more
        threading.Thread(target=answer, args=request, daemon=True).start()


def _result(call: Callable[..., Any], about: Any, more: Any) -> Any:
    try:
        return call(*about, **more)
    except FoldlogError as error:
        return error
    except Exception:  # a bug, whose traceback would be lost with this process
        return AssertionError(traceback.format_exc())


if __name__ == "__main__":
    main()
