"""The jar cache, against a real HTTP server that has the faults of downloads."""

import hashlib
import signal
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from foldlog.local.kafka import JarRefused, JarsUnavailable
from foldlog.local.kafka.jars import LOCK, ensure_jars, read_lock
from foldlog.tests.kit.programs import ended
from foldlog.tests.kit.waiting import joined

BYTES = {name: f"the jar {name}".encode() * 5000 for name in ("one", "two", "three")}


class Mirror(ThreadingHTTPServer):
    """A Maven repository of the three jars above, with a fault that a test may switch on."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Answer)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.gets = Counter()
        self.fault = None  # "cut": ends too early; "stall": stops and keeps the connection open
        self.stalled = threading.Event()

    def handle_error(self, request, client_address):
        pass  # some tests kill clients


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.rsplit("/", 1)[-1]
        content = BYTES.get(name.partition("-")[0])
        if content is None or not name.endswith(".jar"):
            self.send_error(404)
            return
        self.server.gets[name] += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.server.fault is None:
            self.wfile.write(content)
            return
        self.wfile.write(content[: len(content) // 2])
        if self.server.fault == "stall":
            self.wfile.flush()
            self.server.stalled.set()
            self.connection.recv(1)  # returns when the client has disconnected

    def log_message(self, *_arguments):
        pass


@pytest.fixture
def mirror():
    with Mirror() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        joined(thread)


@pytest.fixture
def lock(tmp_path):
    return write_lock(tmp_path / "good.lock")


def write_lock(path: Path, **other_hashes: str) -> Path:
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in BYTES.items()}
    lines = [f"{sha}  org.example:{name}:1.0" for name, sha in (hashes | other_hashes).items()]
    path.write_text("\n".join(lines) + "\n")
    return path


def fetch(tmp_path, lock, mirror_address, progress=None):
    report = [] if progress is None else progress
    return ensure_jars(tmp_path / "cache", report.append, lock=lock, mirror=mirror_address)


def left_in(cache: Path) -> list[str]:
    return sorted(p.name for p in cache.iterdir() if p.name != ".lock")


def test_shipped_lock_pins_every_jar_once_and_one_kafka_version():
    jars = read_lock(LOCK)
    assert len({(jar.group, jar.artifact) for jar in jars}) == len(jars) == 35
    assert all(len(jar.sha256) == 64 for jar in jars)
    assert {jar.version for jar in jars if jar.group == "org.apache.kafka"} == {"4.2.1"}


def test_a_cold_cache_is_filled_in_lock_order_and_then_needs_no_network(tmp_path, lock, mirror):
    progress = []
    paths = fetch(tmp_path, lock, mirror.address, progress)
    assert [path.read_bytes() for path in paths] == list(BYTES.values())
    assert "3 jars" in progress[0]
    gets = sum(mirror.gets.values())
    assert fetch(tmp_path, lock, "http://127.0.0.1:1", progress) == paths
    assert sum(mirror.gets.values()) == gets == 3
    assert len(progress) == 1


def test_a_wrong_hash_is_refused_with_both_hashes_and_leaves_nothing(tmp_path, lock, mirror):
    bad = write_lock(tmp_path / "bad.lock", two="0" * 64)
    with pytest.raises(JarRefused) as refused:
        fetch(tmp_path, bad, mirror.address)
    assert "0" * 64 in str(refused.value)
    assert hashlib.sha256(BYTES["two"]).hexdigest() in str(refused.value)
    assert mirror.gets["two-1.0.jar"] == 1  # a wrong hash is never tried again
    assert not [name for name in left_in(tmp_path / "cache") if not name.endswith(".jar")]
    assert not [name for name in left_in(tmp_path / "cache") if name.startswith("two")]
    assert len(fetch(tmp_path, lock, mirror.address)) == 3


@pytest.mark.parametrize("damage", [b"", b"the jar", b"x" * 50_000])
def test_a_damaged_jar_in_the_cache_is_downloaded_again(tmp_path, lock, mirror, damage):
    paths = fetch(tmp_path, lock, mirror.address)
    modified_at = paths[1].stat().st_mtime
    paths[1].write_bytes(damage)
    progress = []
    assert fetch(tmp_path, lock, mirror.address, progress) == paths
    assert paths[1].read_bytes() == BYTES["two"]
    assert paths[1].stat().st_mtime == modified_at  # Java's startup cache compares it
    assert "damaged" in progress[0] and paths[1].name in progress[0]
    assert mirror.gets == {"one-1.0.jar": 1, "two-1.0.jar": 2, "three-1.0.jar": 1}


def test_a_download_that_ends_too_early_is_not_used(tmp_path, lock, mirror):
    mirror.fault = "cut"
    with pytest.raises(JarsUnavailable):
        fetch(tmp_path, lock, mirror.address)
    assert left_in(tmp_path / "cache") == []
    mirror.fault = None
    assert len(fetch(tmp_path, lock, mirror.address)) == 3


FETCH_IN_A_PROCESS = """
import sys
from pathlib import Path
from foldlog.local.kafka.jars import ensure_jars
ensure_jars(Path(sys.argv[1]), print, lock=Path(sys.argv[2]), mirror=sys.argv[3])
"""


def fetch_in_a_process(tmp_path, lock, mirror):
    arguments = [str(tmp_path / "cache"), str(lock), mirror.address]
    return subprocess.Popen(
        [sys.executable, "-c", FETCH_IN_A_PROCESS, *arguments], stderr=subprocess.PIPE
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_download_ends_at_once_and_leaves_no_jar(tmp_path, lock, mirror, how):
    mirror.fault = "stall"
    with fetch_in_a_process(tmp_path, lock, mirror) as downloading:
        assert mirror.stalled.wait(60)
        downloading.send_signal(how)
        downloading.wait(20)  # less than a request's timeout, so that was not waited for
    assert not [name for name in left_in(tmp_path / "cache") if name.endswith(".jar")]
    mirror.fault = None
    paths = fetch(tmp_path, lock, mirror.address)
    assert left_in(tmp_path / "cache") == sorted(path.name for path in paths)


def test_two_processes_with_a_cold_cache_download_each_jar_once(tmp_path, lock, mirror):
    with (
        fetch_in_a_process(tmp_path, lock, mirror) as first,
        fetch_in_a_process(tmp_path, lock, mirror) as second,
    ):
        assert (ended(first), ended(second)) == (0, 0)
    assert mirror.gets == {"one-1.0.jar": 1, "two-1.0.jar": 1, "three-1.0.jar": 1}


def test_no_network_is_an_error_with_what_to_do_and_without_an_address(tmp_path, lock):
    with pytest.raises(JarsUnavailable) as refused:
        fetch(tmp_path, lock, "http://127.0.0.1:1")  # nothing listens there
    assert "org.example:" in str(refused.value) and "network" in str(refused.value)
    assert "127.0.0.1" not in str(refused.value)
    assert left_in(tmp_path / "cache") == []


def test_a_cache_that_cannot_be_written_is_a_clear_error(tmp_path, lock, mirror):
    (tmp_path / "cache").write_text("a file where the directory should be")
    with pytest.raises(JarsUnavailable, match="cannot be used"):
        fetch(tmp_path, lock, mirror.address)
