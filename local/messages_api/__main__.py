"""`python -m foldlog.local.messages_api`: the server in the foreground, until Ctrl-C.

It also ends with the process that started it, unless `--outlive-parent` is given.

Prints one JSON line {"base_url", "pid", "script"} once it listens. Exit code 0 after a signal or
the exit of the parent, 2 for wrong arguments, 3 if the port is taken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import stat
import sys

from .builtin import SPEAKERS, load_script
from .faults import FAULTS
from .hosting import HOST, listen
from .journal import Journal
from .server import ServerState

SCRIPTS = """scripts:
  echo       repeats the message
  obedient   does what the lines of the message say: CALL tool {"json": "input"}, SAY text,
             THINK text, THEN (the next step), FAULT name, GATE name, PACE seconds, STOP reason
  demo       calls the tool that the message names, with its numbers and its texts in quotes, in
             order: charge 1900, temperature "Paris". With tools for files it explores a directory
  FILE.json  a list of rules: [{"contains": "hello", "reply": {"blocks": ["Hi!"]}}]
  FILE.py    sets `script`, a list of Rule, Reply or functions from a request to a Reply
"""
# Fast enough to read along, slow enough to see that it streams.
PACE_S = 0.02
_PARENT_POLL_S = 1.0


def main() -> int:
    arguments = _parser().parse_args()
    if arguments.list_faults:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without an error
        for name, mode in FAULTS.items():
            params = " ".join(f"{key}={value}" for key, value in mode.defaults.items())
            print(f"{name:26} {mode.stage.value:7} {mode.meaning}  {params}".rstrip())
        return 0
    try:
        script = load_script(arguments.script)
    except (ValueError, OSError, KeyError, TypeError) as error:
        print(
            f"--script {arguments.script}: {error}. Nothing was started: docs/test-your-agent.md "
            "describes scripts.",
            file=sys.stderr,
        )
        return 2
    state = ServerState(
        script=script,
        journal=Journal(arguments.journal),
        speakers=SPEAKERS,
        pace_s=arguments.pace_s,
    )
    try:
        return asyncio.run(_serve(state, arguments.port, arguments.outlive_parent))
    except OSError as error:
        print(
            f"cannot listen on {HOST}:{arguments.port}: {error}. Nothing was started: choose "
            "another port with --port.",
            file=sys.stderr,
        )
        return 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m foldlog.local.messages_api",
        description=f"{__doc__}\n{SCRIPTS}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="the loopback port; 0 picks a free one")
    parser.add_argument(
        "--journal", help="the file of the request journal; an existing one is continued"
    )
    parser.add_argument(
        "--script", default="echo", help=f"{', '.join(SPEAKERS)}, or a .json or .py file"
    )
    parser.add_argument(
        "--pace-s",
        type=float,
        default=PACE_S,
        help="pause after each delta of a stream (default %(default)s)",
    )
    parser.add_argument(
        "--outlive-parent", action="store_true", help="keep running when the parent process exits"
    )
    parser.add_argument("--list-faults", action="store_true", help="print the fault modes and exit")
    return parser


async def _serve(state: ServerState, port: int, outlive_parent: bool) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    watcher = None if outlive_parent else asyncio.create_task(_watch_parent(stopping))
    runner, port = await listen(state, port)
    base_url = f"http://{HOST}:{port}"
    state.journal.note("started", base_url=base_url, script=state.script.name)
    ready = {"base_url": base_url, "pid": os.getpid(), "script": state.script.name}
    print(json.dumps(ready), flush=True)
    await stopping.wait()
    await runner.cleanup()
    if watcher is not None:
        watcher.cancel()
    return 0


async def _watch_parent(stopping: asyncio.Event) -> None:
    """Stop the server when the parent process ends. If stdin is a pipe, its end-of-file shows this;
    otherwise `os.getppid` is polled, because its result then changes."""
    loop = asyncio.get_running_loop()
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        loop.add_reader(0, lambda: None if os.read(0, 4096) else stopping.set())
        return
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(_PARENT_POLL_S)
    stopping.set()


if __name__ == "__main__":
    sys.exit(main())
