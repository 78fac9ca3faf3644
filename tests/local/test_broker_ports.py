"""`up` when its port is free, or is used by another program, another Kafka or its own broker."""

import re
import socket
import struct
import threading
from time import monotonic

import pytest

from foldlog.local.kafka import Broker, Condition, PortTaken
from foldlog.local.kafka.ports import DEFAULT_PORT, free_pair, is_taken
from foldlog.local.kafka.probe import ask
from foldlog.tests.kit.waiting import PATIENCE_S, joined


@pytest.fixture
def server():
    """A program that is not Kafka and uses a port. It sends `server.response` to each client."""
    with OtherServer() as listening:
        yield listening


SERVES_S = 110.0  # less than the limit of a test


class OtherServer(socket.socket):
    def __init__(self, port: int = 0, response: bytes = b""):
        super().__init__()
        self.response = response
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.bind(("127.0.0.1", port))
        self.listen()
        self.settimeout(SERVES_S)
        self.port = self.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        deadline = monotonic() + SERVES_S
        try:
            while monotonic() < deadline:
                with self.accept()[0] as client:
                    client.settimeout(SERVES_S)
                    client.sendall(self.response)
                    client.recv(1000)
        except OSError:
            pass  # closed by the test


def metadata(port: int, *, correlation_id: int = 1) -> bytes:
    """The metadata response of a Kafka that belongs to the cluster `other` and advertises
    `port`."""
    body = struct.pack(">iiiih", correlation_id, 0, 1, 1, 9) + b"127.0.0.1"
    body += struct.pack(">ihh", port, -1, 5) + b"other" + struct.pack(">ii", 1, 0)
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        struct.pack(">i", 1 << 30),
        struct.pack(">i", -1),
        struct.pack(">i", 8) + b"\0" * 8,
        struct.pack(">ii", 12, 1) + b"\xff" * 8,
        struct.pack(">iiiiih", 18, 1, 0, 1, 1, 99),
        metadata(1, correlation_id=2),
    ],
)
def test_a_program_that_is_not_kafka_gives_no_answer(server, response):
    server.response = response
    assert is_taken(server.port)
    assert ask(server.port, timeout_s=0.2) is None


def test_a_kafka_returns_its_cluster_and_the_ports_it_advertises(server):
    server.response = metadata(4711)
    assert ask(server.port) == ("other", (4711,))


def test_a_closed_port_gives_no_answer_and_is_free():
    port = free_pair()
    assert ask(port) is None
    assert not is_taken(port)


def test_the_default_port_is_part_of_the_contract(tmp_path):
    assert Broker(dir=tmp_path, cache_dir=tmp_path).preferred_port == DEFAULT_PORT == 19092


def test_a_forced_port_that_is_taken_is_an_error_and_starts_nothing(broker_of, server):
    broker = broker_of(port=server.port)
    with pytest.raises(PortTaken, match=f"port {server.port} is taken by another program"):
        broker.up()
    assert broker.status().condition is Condition.STOPPED
    assert server.fileno() > 0


def test_the_controllers_port_is_checked_too(broker_of):
    port = free_pair()
    with OtherServer(port + 1), pytest.raises(PortTaken, match=f"port {port + 1} is taken"):
        broker_of(port=port).up()


@pytest.mark.broker
def test_a_forced_port_of_another_kafka_names_its_cluster_and_leaves_it_running(broker_of, broker):
    other = broker.state()
    with pytest.raises(PortTaken, match=f"another Kafka .cluster {other.cluster_id}"):
        broker_of(port=other.port).up()
    assert broker_of(port=other.port).down() is False
    assert broker.status().running and broker.state() == other


@pytest.mark.broker
def test_a_taken_default_port_is_replaced_by_a_free_pair_that_others_find(broker_of, broker):
    mine, progress = broker_of(preferred_port=broker.state().port), []
    state = mine.up(progress.append)
    assert state.port != broker.state().port
    assert any(f"port {broker.state().port} is taken by another Kafka" in line for line in progress)
    assert broker_of(preferred_port=broker.state().port).bootstrap_servers == (
        f"127.0.0.1:{state.port}"
    )
    assert ask(state.port).cluster_id == state.cluster_id != broker.state().cluster_id
    with pytest.raises(PortTaken, match=f"already runs on port {state.port}"):
        broker_of(port=free_pair()).up()


@pytest.mark.broker
def test_a_port_that_another_kafka_takes_during_the_start_is_replaced(broker_of):
    wanted = free_pair()
    broker = broker_of(preferred_port=wanted)
    assert broker.up().port == wanted
    broker.down()
    (broker.dir / "server.properties").unlink()
    thief = threading.Thread(target=take_the_port_of, args=(broker,))
    thief.start()
    state = broker.up()
    joined(thief)
    with thief.server as server:
        assert server.port == wanted != state.port
    assert broker.status().running
    assert state.cluster_id != "other"


def take_the_port_of(broker: Broker) -> None:
    """Listen on a broker's port as soon as its properties name the port, before the JVM binds
    it."""
    properties, text, deadline = broker.dir / "server.properties", "", monotonic() + PATIENCE_S
    while not (found := re.search(r"^listeners=\S+:(\d+),", text, re.MULTILINE)):
        assert monotonic() < deadline, "the properties never named the port"
        text = properties.read_text() if properties.exists() else ""
    port = int(found[1])
    threading.current_thread().server = OtherServer(port, metadata(port))
