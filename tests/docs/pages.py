"""Runs a page of docs/ as a reader would: its commands in order, in a new directory.

A code block whose first line is a comment with a file name is saved as that file. The lines of
output that a page shows must appear in the output of the command, in order. Numbers and hashes may
differ, and `...` matches anything.
"""

import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from foldlog.tests.kit.own_environment import bare_env
from foldlog.tests.kit.programs import END_S, end
from foldlog.tests.kit.slowness import allowed

ROOT = Path(__file__).parents[2]
WAIT_S = allowed(90)  # for a worker to take its partitions on a busy machine, or for an output

SERVERS = ("foldlog dev", "foldlog worker", "foldlog gateway",
           "python -m foldlog.local.messages_api", "python -m http.server", "python -m uvicorn")
READS = ("show", "sessions", "status", "context", "request", "doctor", "tail", "search", "wake")
QUERIES = {f"foldlog {command}" for command in READS} | {"cat refunds.txt"}
PROBLEM = "PROBLEM "  # printed by `foldlog doctor`, whose exit code is then 1
# Of the scripted server, of pages' own servers, of a proxy and its gateways, as shown.
PORTS = ("8199", "5173", "8100", "8400", "8401", "8402")
GATEWAY_PORT = "8377"  # if it is free
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"(?:# |<!-- )(\w+\.\w+)(?: -->)?\n")
_SERVES = re.compile(r"the gateway serves http://127\.0\.0\.1:(\d+)/")
_BEGINS = re.compile(r"^(?=(?:foldlog|python|export|for|kill|cat) )", re.MULTILINE)
_VARIES = re.compile(r"\\\.\\\.\\\.|[0-9a-f]{8,}|\d+")


class Block(NamedTuple):
    """A fenced block: its language, its text, and the text block that follows it."""

    language: str
    text: str
    printed: str


def blocks(page: str) -> list[Block]:
    """The blocks of a page below docs/, in order, each with the output that the page shows."""
    found = _BLOCK.findall((ROOT / "docs" / page).read_text("utf-8"))
    pairs = zip(found, [*found, ("", "")][1:], strict=True)
    return [
        Block(language, text, after if follows == "text" else "")
        for (language, text), (follows, after) in pairs
        if language != "text"
    ]


def missing(expected: str, printed: str) -> list[str]:
    """The lines of output on a page that a command did not print, in order."""
    rest = iter([" ".join(line.split()) for line in printed.splitlines()])
    unmatched = []
    for line in filter(None, (" ".join(line.split()) for line in expected.splitlines())):
        pattern = re.compile(_VARIES.sub(_anything, re.escape(line)))
        if not any(pattern.search(other) for other in rest):
            unmatched.append(line)
    return unmatched


def _anything(found: re.Match) -> str:
    return ".*" if found[0].startswith("\\") else "[0-9a-f]+"


class Reader:
    """Types the commands of a page. Use it in a `with` statement, which ends the processes that it
    started."""

    def __init__(self, directory: Path, env: Mapping[str, str]) -> None:
        self.env = bare_env("PYTHONPATH") | dict(env)
        self.directory = directory
        self._bin = directory / "bin"
        self._bin.mkdir()
        for name, module in (("foldlog", "-m foldlog.cli"), ("python", "")):
            script = self._bin / name
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {module} "$@"\n')
            script.chmod(0o755)
        self.env["PATH"] = f"{self._bin}:{self.env['PATH']}"
        self.ports = dict(zip(PORTS, map(str, _free_ports(len(PORTS))), strict=True))
        self._servers: list[tuple[subprocess.Popen, Path]] = []

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        for process, _ in reversed(self._servers):
            end(process, END_S, signal.SIGINT)

    def read(self, page: str) -> None:
        """Save the page's files, type its `sh` blocks, and compare the outputs with the page."""
        for block in blocks(page):
            text = self.with_free_ports(block.text)
            if block.language == "sh":
                self.type(text, block.printed)
            elif (file := _FILE.match(text)) is not None:
                (self.directory / file[1]).write_text(text)

    def with_free_ports(self, text: str) -> str:
        """A text of the page with free ports in place of those that it shows."""
        return re.sub("|".join(self.ports), lambda shown: self.ports[shown[0]], text)

    def type(self, text: str, expected: str = "") -> None:
        """Type one block. Assert that nothing failed and that `expected` was printed."""
        commands, queries = [], []
        for command in filter(None, _BEGINS.split(text.strip())):
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").strip().partition("=")
                self.env[name] = value
            elif command.startswith(SERVERS):
                if commands:
                    self._run("".join(commands), "", "")
                    commands = []
                self._serve(command.strip(), expected)
            elif " ".join(command.split()[:2]) in QUERIES:
                queries.append(command)
            else:
                commands += [*queries, command]
                queries = []
        if commands or queries:
            self._run("".join(commands), "".join(queries), expected)

    def _serve(self, command: str, expected: str) -> None:
        """Start a server in a separate terminal, and wait for the expected output. A web
        application takes the place of another one."""
        for earlier, _ in self._servers:
            if "uvicorn" in command and "uvicorn" in earlier.args[-1] and earlier.poll() is None:
                end(earlier, END_S, signal.SIGINT)
        out = self.directory / f"terminal-{len(self._servers)}"
        with out.open("w") as file:
            process = subprocess.Popen(
                ["sh", "-c", f"exec {command}"], cwd=self.directory, env=self.env, text=True,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            )
        self._servers.append((process, out))
        wanted, until = expected or "base_url" * ("messages_api" in command), _until()
        has_gateway = command.startswith("foldlog dev")
        while missing(wanted, out.read_text()) or (
            has_gateway and not _SERVES.search(out.read_text())
        ):
            assert process.poll() is None and time.monotonic() < until, out.read_text()
            time.sleep(0.05)
        if (serves := _SERVES.search(out.read_text())) is not None:
            self.ports[GATEWAY_PORT] = serves[1]

    def _run(self, commands: str, queries: str, expected: str) -> None:
        """Run the commands once, then repeat the queries until they print the expected output."""
        printed, until = "", _until()
        if commands:
            printed, code = self._shell(commands)
            assert code == 0, (commands, printed)
        while True:
            shown, code = self._shell(queries) if queries else ("", 0)
            unmatched = missing(expected, printed + shown)
            if not unmatched and code == int(PROBLEM in expected):
                return
            report = "\n".join([commands + queries, (printed + shown)[-4_000:],
                              *(f"missing: {line}" for line in unmatched)])
            assert queries and time.monotonic() < until, report
            time.sleep(1)  # polls: the other process sends no signal; a look is a process

    def _shell(self, script: str) -> tuple[str, int]:
        ran = subprocess.run(
            ["sh", "-ec", script], cwd=self.directory, env=self.env, text=True, timeout=WAIT_S,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        assert "Traceback" not in ran.stdout, (script, ran.stdout)
        return ran.stdout, ran.returncode


def _free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        free = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in free:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in free]


def _until() -> float:
    return time.monotonic() + WAIT_S
