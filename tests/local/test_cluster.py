"""Three real brokers are started, killed, stopped and interrupted as one local Kafka."""

import json
import signal
import socket
import subprocess
import sys

import pytest

from foldlog.local.kafka import Broker, BrokerCluster, BrokerFailed, Condition, local_kafka
from foldlog.local.kafka.cluster import read_shared
from foldlog.log.kafka import KafkaLog
from foldlog.schemas.topics import Replication, TopicSpec
from foldlog.tests.crash.fleet import wait_until
from foldlog.tests.kit.programs import output_of

THREE = Replication(3, 2, required=True)
SPEC = TopicSpec(
    name="kept", key="", cleanup="delete", holds="", partitions=3, replication=THREE
)


UP = """
import sys
from pathlib import Path
from foldlog.local.kafka import BrokerCluster
BrokerCluster(dir=Path(sys.argv[1]), cache_dir=Path(sys.argv[2]), preferred_port=None).up()
"""


@pytest.fixture
def cluster(tmp_path, broker_cache_dir):
    """A cluster that is not started, and is killed at the test's end."""
    made = BrokerCluster(dir=tmp_path / "kafka", cache_dir=broker_cache_dir, preferred_port=None)
    yield made
    made.kill()


def pids(cluster) -> list[int | None]:
    return [broker.pid for broker in cluster.brokers]


def write(cluster, value: bytes) -> None:
    log = KafkaLog(cluster.bootstrap_servers)
    producer, answers = log.producer(), []
    for partition in range(3):
        producer.append("kept", None, value, partition=partition, on_delivery=answers.append)
    assert producer.flush(60) == 0
    assert [answer.partition for answer in answers]
    log.close()


def values(cluster) -> list[bytes]:
    """The values of every partition, read from the brokers."""
    log = KafkaLog(cluster.bootstrap_servers)
    ends = log.end_offsets("kept")
    reader, found = log.reader("kept", dict.fromkeys(ends, 0)), []

    def has_read_all() -> bool:
        found.extend(record.value for record in reader.poll(0.2))
        return reader.positions() == ends

    wait_until("the records are read", has_read_all)
    log.close()
    return sorted(found)


@pytest.mark.broker
@pytest.mark.crash
@pytest.mark.spread
def test_three_brokers_are_one_kafka(cluster):
    assert not cluster.down() and not cluster.dir.exists()
    assert cluster.status().condition is Condition.STOPPED
    arguments = [str(cluster.dir), str(cluster.cache_dir)]
    with subprocess.Popen(
        [sys.executable, "-c", UP, *arguments], stderr=subprocess.PIPE
    ) as command:
        wait_until("a broker is started", lambda: _some_run(cluster))
        command.send_signal(signal.SIGINT)
        _, error = output_of(command)
    assert b"KeyboardInterrupt" in error, error
    assert pids(cluster) == [None] * 3, "Ctrl-C ends what was started"
    state = cluster.up()
    assert cluster.up() == state and cluster.status().running, "a second run changes nothing"
    assert state.bootstrap_servers == cluster.bootstrap_servers
    log = KafkaLog(cluster.bootstrap_servers)
    log.apply_topics([SPEC]).demand()
    log.close()
    write(cluster, b"one")
    first, *others = pids(cluster)
    cluster.brokers[0].kill()
    status = cluster.status()
    assert status.condition is Condition.PARTIAL
    assert [each.condition for each in status.brokers].count(Condition.GONE) == 1
    write(cluster, b"two")
    cluster.up()
    assert pids(cluster)[1:] == others and pids(cluster)[0] not in (first, None)
    assert cluster.down() and not cluster.down()
    assert pids(cluster) == [None] * 3 and cluster.status().condition is Condition.STOPPED
    with socket.socket() as other:  # another program has taken a port meanwhile
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections linger
        other.bind(("127.0.0.1", state.brokers[1].port))
        other.listen()
        again = cluster.up()
    assert again.cluster_id == state.cluster_id
    assert again.bootstrap_servers != state.bootstrap_servers
    assert values(cluster) == [b"one"] * 3 + [b"two"] * 3


def _some_run(cluster) -> bool:
    return read_shared(cluster.dir) is not None and any(pids(cluster))


def test_the_number_of_brokers_of_a_directory_is_final(tmp_path):
    new = local_kafka(tmp_path / "new", tmp_path)
    assert isinstance(new, Broker) and not new.dir.exists()
    three = local_kafka(tmp_path / "new", tmp_path, brokers=3)
    assert isinstance(three, BrokerCluster) and not three.dir.exists()
    (tmp_path / "one" / "data").mkdir(parents=True)
    with pytest.raises(BrokerFailed, match=r"has 1 broker,.*--home DIR up --brokers 3"):
        local_kafka(tmp_path / "one", tmp_path, brokers=3)
    (tmp_path / "three").mkdir()
    shared = tmp_path / "three" / "cluster.json"
    shared.write_text(json.dumps({"cluster_id": "x", "ports": [20_001, 20_005, 20_009]}))
    assert isinstance(local_kafka(tmp_path / "three", tmp_path), BrokerCluster)
    with pytest.raises(BrokerFailed, match="has 3 brokers"):
        local_kafka(tmp_path / "three", tmp_path, brokers=1)
    shared.write_text("{")
    with pytest.raises(BrokerFailed, match="is damaged"):
        local_kafka(tmp_path / "three", tmp_path)
