"""Stands for a program that forked.py runs: `python -I -S forked_client.py SOCKET ARGUMENT...`."""

import contextlib
import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Order the program, pass on signals, and end as the program ends."""
    at, *arguments = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as parent:
        parent.connect(at)
        socket.send_fds(parent, [b"x"], [0, 1, 2])
        order = {"arguments": arguments, "directory": os.getcwd(), "env": dict(os.environ)}
        parent.sendall(json.dumps(order).encode() + b"\n")
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):  # the program alone has the pipes now
            os.dup2(null, number)
        reports = parent.makefile()
        pid = int(reports.readline())

        def pass_on(number: int, _: object) -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

        for each in PASSED_ON:
            signal.signal(each, pass_on)
        code = int(reports.readline())
    if code < 0:
        with contextlib.suppress(OSError):  # of SIGKILL
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
