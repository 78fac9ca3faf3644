"""Peers: other people's code in an environment of its own, asked over a pipe, one JSON line each.

A peer is a script of this directory (peer_*.py) that imports what bench/peers.lock installs into
bench/.venv, and nothing of foldlog. It answers each line on its standard input with a line. Without
the environment a bench gives no figure and says how to get it. Licences of what is compared with:
OpenAI Agents SDK, LangGraph, langgraph-checkpoint-sqlite, all MIT.
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
        """Its answer to one question; raises RuntimeError if it died over it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has already said why, on its standard error
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}")
        return json.loads(answer)


@contextmanager
def peer(script: str, package: str) -> Iterator[Peer]:
    """A peer script, started; `package` is what it needs. Raises Missing without it."""
    if not PYTHON.exists():
        raise Missing(f"{package} is not installed; `make bench` installs it into bench/.venv")
    named = package.partition(" ")[0]
    found = subprocess.run(
        [PYTHON, "-c", f"import importlib.metadata as m; m.version({named!r})"],
        capture_output=True,
    )
    if found.returncode:
        raise Missing(f"{package} is not in bench/.venv; remove that directory and `make bench`")
    env = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    process = subprocess.Popen(
        [PYTHON, HERE / script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    try:
        yield Peer(process)
    finally:
        process.stdin.close()  # type: ignore[union-attr]
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
