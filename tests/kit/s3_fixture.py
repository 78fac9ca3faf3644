"""A real S3 server for the tests of a file: S3Proxy, on the Java of the local Kafka.

A pytest plugin, loaded by tests/conftest.py. s3proxy.lock pins its jars, and
kit/downloads.py downloads them once, to the directory of the jars of Kafka. Tests that use it carry
the marker `broker`.

The server ignores conditional writes, and its times have whole seconds.
"""

import contextlib
import os
import signal
import socket
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from foldlog.local.kafka import BrokerError, process
from foldlog.local.kafka.java import find_java
from foldlog.tests.kit import downloads, stopped_process

BUCKET = "blobs"
USER, PASSWORD = "quokka", "quokka-secret"  # no part of a word that a message may have
STARTS_S = 100.0  # on a busy machine; it takes 1.5 s on an idle one
JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-DLOG_LEVEL=warn")


class S3Server:
    """A server with one bucket, in a directory. It may be killed, paused and started again."""

    def __init__(self, directory: Path, jars: list[Path]) -> None:
        self.directory, self._jars = directory, jars
        self.port = _free_port()
        self.files = directory / "data" / BUCKET
        self.files.mkdir(parents=True)
        self._pid = 0

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a client finds the server."""
        return {
            "AWS_ACCESS_KEY_ID": USER,
            "AWS_SECRET_ACCESS_KEY": PASSWORD,
            "AWS_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "AWS_REGION": "us-east-1",
        }

    def url(self, prefix: str) -> str:
        """A place in the bucket."""
        return f"s3://{BUCKET}/{prefix}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        properties = self.directory / "s3proxy.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in {
            "s3proxy.endpoint": f"http://127.0.0.1:{self.port}",
            "s3proxy.authorization": "aws-v4",
            "s3proxy.identity": USER,
            "s3proxy.credential": PASSWORD,
            "s3proxy.ignore-unknown-headers": "true",
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": self.directory / "data",
            "jclouds.identity": "x",
            "jclouds.credential": "x",
        }.items()))
        classes = os.pathsep.join(map(str, self._jars))
        command = [str(find_java().path), *JVM, "-cp", classes, "org.gaul.s3proxy.Main",
                   "--properties", str(properties)]
        with open(self.directory / "server.log", "ab") as log:
            with process.spawned(command, cwd=self.directory, log=log, tied=True) as pid:
                self._pid = pid
                self._await_answer()

    def _await_answer(self) -> None:
        deadline = time.monotonic() + STARTS_S
        while not _answers(self.port):
            if process.wait_gone(self._pid, 0.05) or time.monotonic() > deadline:
                raise AssertionError((self.directory / "server.log").read_text()[-2000:])

    def kill(self) -> None:
        """End the server with SIGKILL. Its files stay."""
        if self._pid:
            process.kill(self._pid)
            self._pid = 0

    def pause(self) -> None:
        """Stop the server's process; connections stay open and get no answer."""
        stopped_process.stop(self._pid)

    def resume(self) -> None:
        """Continue after `pause`."""
        os.kill(self._pid, signal.SIGCONT)


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
    except urllib.error.HTTPError:
        return True  # it answers that a signature is missing
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextlib.contextmanager
def running(jars: list[Path]) -> Iterator[S3Server]:
    """A server, as long as the block."""
    with tempfile.TemporaryDirectory(prefix="foldlog-s3-") as directory:
        server = S3Server(Path(directory), jars)
        try:
            server.start()
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def s3_jars() -> list[Path]:
    """The server's jars, verified."""
    try:
        return downloads.s3_jars()
    except BrokerError as error:
        downloads.missing("the S3 server", error)


@pytest.fixture(scope="module")
def shared_s3_server(s3_jars: list[Path]) -> Iterator[S3Server]:
    """The shared server. Use `s3` instead."""
    with running(s3_jars) as server:
        yield server


@pytest.fixture
def s3(shared_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The shared server, with the environment of its clients. Do not kill it. Clients are patient,
    because the machine may be busy.
    """
    for limit in ("DEADLINE_S", "RETRY_S"):
        monkeypatch.setattr(f"foldlog.log.object_store.{limit}", 100.0)
    for name, value in shared_s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return shared_s3_server


@pytest.fixture
def own_s3(s3_jars: list[Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server for one test, which may kill, pause and start it again."""
    with running(s3_jars) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


