"""Runs peers: other frameworks in a separate environment, controlled over a pipe with JSON lines.

A peer is a script in this directory (peer_*.py) that imports what bench/peers.lock installs into
bench/.venv, and nothing of foldlog. It answers each line on its standard input with one line.
Without the environment a bench returns no figure and states how to install it. The
licences are in peers.in.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foldlog.bench.measure import Missing

HERE = Path(__file__).parent
PYTHON = HERE / ".venv" / "bin" / "python"


class Peer:
    """A running peer."""

    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process

    def ask(self, question: Any) -> Any:
        """The peer's answer to one question. Raises RuntimeError if the process died."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the reason is on its standard error
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._process.args} exited with code {self._process.wait()}")
        return json.loads(answer)


@contextmanager
def peer(script: str, package: str) -> Iterator[Peer]:
    """Run a peer script until the block ends. Raises Missing if `package`, which it needs, is not
    installed."""
    if not PYTHON.exists():
        raise Missing(f"{package} is not installed; `make bench` installs it into bench/.venv")
    name = package.partition(" ")[0]
    found = subprocess.run(
        [PYTHON, "-c", f"import importlib.metadata as m; m.version({name!r})"],
        capture_output=True,
    )
    if found.returncode:
        raise Missing(f"{package} is not in bench/.venv; delete it and run `make bench`")
    env = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
    with subprocess.Popen(
        [PYTHON, HERE / script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:  # the end of the block closes its stdin, and it exits
        yield Peer(process)
