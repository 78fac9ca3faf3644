"""A worker process of the crash tests: the real host with the agents of agents.py.

python worker_main.py --settings JSON --dir DIR [--log FILE] [--worker-id W] [--crash-at NAME:N]
[--control-fd FD]

A point can also be armed by the file DIR/W.arm (`NAME:N`, or `NAME:N stop` for SIGSTOP; an empty
file disarms). The worker reads and deletes the file at its start and at SIGHUP. The exit codes are
those of the command line.
"""

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from foldlog.log import environment
from foldlog.processors import crash_points
from foldlog.processors.worker import supervise


def main(arguments: list[str]) -> int:
    environment.begin()
    options = _parser().parse_args(arguments)
    if options.log is not None:
        fd = os.open(options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s: %(message)s")
    order = options.dir / f"{options.worker_id}.arm"
    signal.signal(signal.SIGHUP, lambda *_: _arm_from(order))
    if options.control_fd is not None:
        supervise.await_go(options.control_fd)
    if options.crash_at is not None:
        crash_points.arm(options.crash_at)
    _arm_from(order)
    return _work(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--settings", type=json.loads, required=True)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--worker-id")
    parser.add_argument("--crash-at")
    parser.add_argument("--control-fd", type=int)
    parser.add_argument("--agents", nargs="*", help="only those of these names")
    parser.add_argument("--rolling-update", action="store_true")
    return parser


def _arm_from(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        at, _, how = path.read_text().partition(" ")
        crash_points.disarm()
        if at:
            crash_points.arm(at, _stop if how == "stop" else None)
        path.unlink()


def _stop() -> None:
    # The calling thread: a signal for the process is handled by its main thread, and on a busy
    # machine this one continues until that is scheduled; it once read its claim back and began.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _work(options: argparse.Namespace) -> int:
    # Not earlier: a spare makes its heavy imports while it waits for its go.
    from foldlog.cli.__main__ import exit_code
    from foldlog.log import Settings
    from foldlog.log.errors import FoldlogError
    from foldlog.processors.worker import host
    from foldlog.tests.crash.agents import agents
    from foldlog.tests.crash.witnesses_delivery import SECRET, SECRET_ENV

    secrets = {SECRET_ENV: SECRET}
    settings = Settings.load(secrets, options.dir / "foldlog.toml", options.settings)
    try:
        served = [a for a in agents(options.dir) if not options.agents or a.name in options.agents]
        return host.run(
            settings, served, worker_id=options.worker_id, rolling=options.rolling_update
        )
    except FoldlogError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return exit_code(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
