"""A real broker is started, stopped, killed and interrupted, also by two commands at the same
time."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from foldlog.local.kafka import Broker, Condition, temporary_broker
from foldlog.local.kafka.process import wait_gone
from foldlog.local.kafka.temporary import TEMPORARY, temporary_directory
from foldlog.tests.kit import stopped_process
from foldlog.tests.kit.programs import line_of, output_of

pytestmark = pytest.mark.broker

needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
UP_S = 90.0  # more than `up` waits for a broker
GONE_S = 20.0  # everything takes under a second on an idle machine

UP = """
import dataclasses, json, sys
from pathlib import Path
from foldlog.local.kafka import Broker
broker = Broker(dir=Path(sys.argv[1]), cache_dir=Path(sys.argv[2]), preferred_port=None)
print(json.dumps(dataclasses.asdict(broker.up())))
"""

TIED = """
import sys, threading
from pathlib import Path
from foldlog.local.kafka import temporary_broker
def hold():
    global held
    held = temporary_broker(Path(sys.argv[1]))
    print(held.__enter__().state().pid, flush=True)
if sys.argv[2] == "thread":  # it ends before the broker is used
    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
else:
    hold()
print("ready", flush=True)
sys.stdin.read()
"""


def append(broker: Broker, topic: str, values: list[bytes]) -> None:
    """Append values, and wait until the broker has acknowledged them."""
    where = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    admin = AdminClient(where)
    if topic not in admin.list_topics(timeout=GONE_S).topics:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(GONE_S)
    producer = Producer({**where, "acks": "all"})
    failed = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(GONE_S) == 0
    assert failed == []


def read(broker: Broker, topic: str, count: int) -> list[bytes]:
    where = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "group.id": "reader"}
    consumer = Consumer(where)
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, GONE_S)]
    finally:
        consumer.close()


def eventually(condition, what: str):
    """Wait until another process meets a condition. The process sends no signal, so this polls."""
    deadline = time.monotonic() + 60
    while not (result := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return result


def processes_in(directory: Path) -> list[int]:
    """The ids of the processes that run in this working directory, as every JVM of its broker
    does."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/cwd") == str(directory):
                found.append(int(name))
        except OSError:
            pass  # it has just ended, or is a zombie
    return found


def up_in_a_process(broker: Broker) -> subprocess.Popen:
    arguments = [str(broker.dir), str(broker.cache_dir)]
    return subprocess.Popen(
        [sys.executable, "-c", UP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def listening(port: int) -> set[str]:
    """The local addresses (in hex, as the kernel writes them) that listen on the port."""
    addresses = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, _, port_hex = local.partition(":")
            if state == "0A" and int(port_hex, 16) == port:
                addresses.add(address)
    return addresses


@needs_proc
def test_up_listens_on_loopback_only(broker):
    port = broker.state().port
    assert listening(port) == listening(port + 1) == {"0100007F"}


def test_up_is_idempotent_down_is_clean_and_data_survives_them(broker_of):
    broker = broker_of("a dir, with ümläuts=")
    assert not broker.down()
    assert not broker.dir.exists()
    assert broker.status().condition is Condition.STOPPED
    state = broker.up()
    assert broker.up() == state == broker.state()
    assert broker.status().running and broker.status().pid == state.pid
    stopped_process.stop(state.pid)
    assert broker.status().condition is Condition.SILENT
    os.kill(state.pid, signal.SIGCONT)
    append(broker, "kept", [b"one", b"two"])
    assert broker.down()
    assert wait_gone(state.pid, 0)
    assert broker.status().condition is Condition.STOPPED
    assert not broker.down()
    second = broker.up()
    append(broker, "kept", [b"three"])
    assert read(broker, "kept", 3) == [b"one", b"two", b"three"]
    assert second.cluster_id == state.cluster_id
    assert second.pid != state.pid
    assert second.port == state.port  # so that running workers and gateways find the broker again


def open_to_others(directory: Path) -> list[str]:
    """The paths that other users of this machine could read."""
    paths = [directory, *directory.rglob("*")]
    return [str(path) for path in paths if path.exists() and path.stat().st_mode & 0o077]


def test_the_data_is_private_even_if_an_older_release_left_it_open(broker_of):
    broker = broker_of()
    broker.dir.mkdir(mode=0o755)
    broker.up()
    append(broker, "later", [b"x"])  # files that a running Kafka creates
    assert (broker.dir / "data" / "later-0").is_dir() and open_to_others(broker.dir) == []
    broker.down()
    assert open_to_others(broker.dir) == []
    for path in (broker.dir, *broker.dir.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    broker.up()
    assert open_to_others(broker.dir) == []


def test_after_kill_9_it_is_back_on_its_port_with_every_acknowledged_record(broker_of):
    broker = broker_of()
    first = broker.up()
    values = [str(n).encode() for n in range(5000)]
    append(broker, "kept", values)
    broker.kill()
    assert broker.status().condition is Condition.GONE
    second = broker.up()
    assert read(broker, "kept", 5000) == values
    assert (second.port, second.cluster_id) == (first.port, first.cluster_id)
    assert second.pid != first.pid


def test_two_ups_at_once_share_one_broker_that_outlives_them_and_a_lost_state_file(broker_of):
    broker = broker_of()
    with up_in_a_process(broker) as one, up_in_a_process(broker) as other:
        one_output, one_error = output_of(one, UP_S)
        other_output, other_error = output_of(other, UP_S)
    assert (one.returncode, other.returncode) == (0, 0), (one_error, other_error)
    started = json.loads(one_output)
    assert started == json.loads(other_output)
    assert broker.status().pid == started["pid"]
    (broker.dir / "broker.json").write_text('{"pid": 1')
    assert broker.state() is None
    assert broker.up().pid == started["pid"]
    assert broker.state().port == started["port"]
    assert broker.down()
    assert wait_gone(started["pid"], 0)


@needs_proc
def test_ctrl_c_leaves_no_process_and_the_next_up_works(broker_of):
    broker = broker_of()
    for _moment in ("formatting", "starting"):
        with up_in_a_process(broker) as command:
            eventually(lambda: processes_in(broker.dir), "no JVM was started")
            command.send_signal(signal.SIGINT)
            _, error = output_of(command, UP_S)
        assert b"KeyboardInterrupt" in error
        assert processes_in(broker.dir) == []
        assert broker.status().condition is Condition.STOPPED
        assert broker.up().cluster_id
        broker.down()


def test_the_next_up_completes_one_that_was_killed(broker_of):
    broker = broker_of()
    with up_in_a_process(broker) as command:
        started = eventually(lambda: broker.status().pid, "no broker was started")
        command.kill()
    assert broker.up().pid == started
    assert broker.status().running


@pytest.mark.parametrize("started_from", ["main", "thread"])
def test_a_temporary_broker_lives_as_long_as_its_process(broker_cache_dir, started_from):
    with subprocess.Popen(
        [sys.executable, "-c", TIED, str(broker_cache_dir), started_from],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        try:
            pid = int(line_of(holder.stdout, "the broker's process id", UP_S))
            assert line_of(holder.stdout, "the holder is ready") == b"ready\n"
            assert not wait_gone(pid, 0.5)  # the thread that started it has ended
        finally:
            holder.kill()
    if sys.platform == "linux":
        assert wait_gone(pid, GONE_S)
        with temporary_directory() as later:
            assert not list(later.parent.glob(f"{TEMPORARY}{holder.pid}-*"))


@needs_proc
def test_a_temporary_broker_leaves_no_process_and_no_file(broker_cache_dir):
    with pytest.raises(ZeroDivisionError), temporary_broker(broker_cache_dir) as broker:
        1 / 0  # noqa: B018
    assert not broker.dir.exists()
    assert processes_in(broker.dir) == []
