"""Runs the server in a process of its own.

The process prints one JSON line when it is ready, and exits when the parent closes its stdin.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODULE = "foldlog.local.messages_api"
_STOP_S = 5.0


@dataclass
class ServerProcess:
    """A running server. `with spawn(...) as server: server.base_url`."""

    base_url: str
    pid: int
    process: subprocess.Popen[str]

    def stop(self) -> None:
        """Stop the server and wait until it has ended. Does nothing if it has exited."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def spawn(
    script: str | Path = "demo",
    *,
    port: int = 0,
    journal: str | Path | None = None,
    pace_s: float | None = None,
    env: Mapping[str, str] | None = None,
) -> ServerProcess:
    """Start a server process and wait until it listens. The server ends with this process.

    env: the environment of the server (default: that of this process).

    Raises RuntimeError if the server does not start; the server's error is on stderr.
    """
    command = [sys.executable, "-m", MODULE, "--script", str(script), "--port", str(port)]
    if journal is not None:
        command += ["--journal", str(journal)]
    if pace_s is not None:
        command += ["--pace-s", str(pace_s)]
    process = subprocess.Popen(
        command,
        env=None if env is None else dict(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C does not reach it; it exits when we close its stdin
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
    except BaseException:  # Ctrl-C: do not leave a starting server behind
        with process:
            process.kill()
        raise
    if not line:
        with process:
            code = process.wait()
        raise RuntimeError(
            f"the scripted Messages API server did not start (exit code {code}); its error is on "
            "stderr"
        )
    ready: dict[str, Any] = json.loads(line)
    return ServerProcess(ready["base_url"], ready["pid"], process)
