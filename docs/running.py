"""Runs a real `foldlog dev` with the README's agent, for the README's pictures.

It has its own broker, worker and gateway in a temporary directory. The model is scripted: it
answers QUESTION with ANSWER, and calls a tool that a message names.
"""

import ast
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from inspect import getsource
from pathlib import Path
from typing import NamedTuple

from foldlog.docs.tables import ROOT
from foldlog.local.messages_api import spawn
from foldlog.log import Settings
from foldlog.tests.structure.tree import shape

LOG = "dev.log"

PACE_S = 0.06  # between two words of the model
WAIT_S = 120.0
QUESTION = "Can I return shoes that I have worn?"
ANSWER = """\
Yes, within 30 days of delivery. Shoes that you only tried on at
home get a full refund, paid to the card that you used. If you wore
them outside, we look at them first and offer a partial refund.

Put them into their box, print the label from your order page, and
hand the parcel in at any post office. The money is on your card
five working days after the parcel arrives."""


class Running(NamedTuple):
    """A running installation. env: the environment for `foldlog` commands."""

    directory: Path
    env: dict[str, str]

    def printed(self, *arguments: str, stdin: str = "") -> str:
        """The output of a `foldlog` command."""
        return subprocess.run(
            ["foldlog", *arguments], cwd=self.directory, env=self.env, input=stdin,
            capture_output=True, text=True,
        ).stdout

    @property
    def gateway(self) -> str:
        """The gateway's address; empty before it has started."""
        found = re.search(r"the gateway serves (\S+)", (self.directory / LOG).read_text())
        return found[1] if found else ""


@contextmanager
def running(directory: Path) -> Iterator[Running]:
    """A running installation whose worker has taken its partitions; stopped after the block."""
    script = directory / "script.json"
    reply = {"blocks": [{"type": "text", "text": ANSWER}], "chunk": "word"}
    rules = [{"contains": QUESTION, "reply": reply}, {"reply": "demo"}]
    script.write_text(json.dumps({"rules": rules}))
    (directory / "my_app.py").write_text(_readme_agent())
    with spawn(script, pace_s=PACE_S) as server, (directory / LOG).open("w") as log:
        model = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "scripted"}
        place = Running(directory, _environment(directory) | model)
        process = subprocess.Popen(
            ["foldlog", "dev", "--agent", "my_app:agent"], cwd=directory, env=place.env,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )
        try:
            end = time.monotonic() + WAIT_S
            while "partitions 0" not in place.printed("status") or not place.gateway:
                if process.poll() is not None or time.monotonic() > end:
                    output = (directory / LOG).read_text()
                    raise RuntimeError(f"foldlog dev did not start: {output}")
            yield place
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(WAIT_S)
            place.printed("down")


def _readme_agent() -> str:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return code


def fingerprint(*scripts: str) -> str:
    """Identifies the code that made a picture: these scripts, this module, the README's agent.

    Imports, docstrings, comments and types do not count. A picture contains its fingerprint, so a
    test can tell that a script has changed and the picture has not been made again.
    """
    sources = (*scripts, getsource(sys.modules[__name__]), _readme_agent())
    shapes = [shape(ast.parse(source)) for source in sources]
    return f"made by {sha256(repr(shapes).encode()).hexdigest()[:16]}"


def _environment(directory: Path) -> dict[str, str]:
    """The environment of a new installation, with this checkout's `foldlog` on its PATH."""
    programs = directory / "bin"
    programs.mkdir()
    command = programs / "foldlog"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m foldlog.cli "$@"\n')
    command.chmod(0o755)
    names = ("HOME", "LANG", "VIRTUAL_ENV", "PYTHONPATH")
    return {
        **{name: os.environ[name] for name in names if name in os.environ},
        "PATH": f"{programs}:{os.environ['PATH']}",
        "FOLDLOG_HOME": str(directory / "home"),
        "FOLDLOG_CACHE_DIR": str(Settings.load(dict(os.environ), None, {}).cache_dir),
        "FOLDLOG_USER": "ana",
    }
