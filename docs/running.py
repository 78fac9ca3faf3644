"""What the pictures of the README are taken of: `foldlog dev` with the README's agent, for real.

A broker, a worker and a gateway of their own, in a directory that is gone afterwards. The model is
scripted: it answers QUESTION with ANSWER, and calls a tool that a message names.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from foldlog.docs.tables import ROOT
from foldlog.local.messages_api import spawn
from foldlog.log import Settings

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
    """An installation that runs. env: to type `foldlog` commands with."""

    directory: Path
    env: dict[str, str]
    gateway: str

    def printed(self, *arguments: str, stdin: str = "") -> str:
        """What a `foldlog` command prints."""
        return _printed(self.directory, self.env, *arguments, stdin=stdin)


@contextmanager
def running(directory: Path) -> Iterator[Running]:
    """The installation, from when its worker has its partitions until all of it has ended."""
    env = _environment(directory)
    script = directory / "script.json"
    reply = {"blocks": [{"type": "text", "text": ANSWER}], "chunk": "word"}
    rules = [{"contains": QUESTION, "reply": reply}, {"reply": "demo"}]
    script.write_text(json.dumps({"rules": rules}))
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (directory / "my_app.py").write_text(code)
    output = directory / "dev.log"
    with spawn(script, pace_s=PACE_S) as server, output.open("w") as file:
        env |= {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "scripted"}
        process = subprocess.Popen(
            ["foldlog", "dev", "--agent", "my_app:agent"], cwd=directory, env=env,
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
        )
        try:
            end = time.monotonic() + WAIT_S
            while "partitions 0" not in _printed(directory, env, "status") or not _gateway(output):
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"foldlog dev did not start: {output.read_text()}")
            yield Running(directory, env, _gateway(output))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(WAIT_S)
            _printed(directory, env, "down")


def _gateway(output: Path) -> str:
    found = re.search(r"the gateway serves (\S+)", output.read_text())
    return found[1] if found else ""


def _environment(directory: Path) -> dict[str, str]:
    """An installation of its own, with the `foldlog` of this environment on its PATH."""
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


def _printed(directory: Path, env: Mapping[str, str], *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["foldlog", *arguments], cwd=directory, env=dict(env), input=stdin, capture_output=True,
        text=True,
    )
    return done.stdout
