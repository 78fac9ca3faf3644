"""Who holds the port decides: nobody, a stranger, another Kafka, or ourselves."""

import re
import socket
import struct
import threading
from contextlib import ExitStack

import pytest

from foldlog.local.kafka import Broker, Condition, PortTaken
from foldlog.local.kafka.ports import DEFAULT_PORT, free_pair, is_taken
from foldlog.local.kafka.probe import ask


@pytest.fixture
def broker_of(tmp_path, broker_cache_dir):
    """A broker of this test's directory, not started; stopped at the end whatever happens."""
    with ExitStack() as stack:

        def make(**more) -> Broker:
            broker = Broker(dir=tmp_path / "kafka", cache_dir=broker_cache_dir, **more)
            stack.callback(broker.kill)
            return broker

        yield make


@pytest.fixture
def stranger():
    """A program that listens, accepts, says `stranger.says` and is no Kafka."""
    with Stranger() as listening:
        yield listening


class Stranger(socket.socket):
    def __init__(self, port: int = 0, says: bytes = b""):
        super().__init__()
        self.says = says
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.bind(("127.0.0.1", port))
        self.listen()
        self.port = self.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        try:
            while True:
                with self.accept()[0] as client:
                    client.sendall(self.says)
                    client.recv(1000)
        except OSError:
            pass  # closed by the test


def metadata(port: int, *, correlation_id: int = 1) -> bytes:
    """What a Kafka of the cluster `other` that advertises `port` says to our request."""
    body = struct.pack(">iiiih", correlation_id, 0, 1, 1, 9) + b"127.0.0.1"
    body += struct.pack(">ihh", port, -1, 5) + b"other" + struct.pack(">ii", 1, 0)
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    "says",
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
def test_a_program_that_is_no_kafka_gives_no_answer(stranger, says):
    stranger.says = says
    assert is_taken(stranger.port)
    assert ask(stranger.port, timeout_s=0.2) is None


def test_a_kafka_tells_its_cluster_and_the_ports_it_advertises(stranger):
    stranger.says = metadata(4711)
    assert ask(stranger.port) == ("other", (4711,))


def test_a_closed_port_gives_no_answer_and_is_free():
    port = free_pair()
    assert ask(port) is None
    assert not is_taken(port)


def test_the_default_port_is_a_contract(tmp_path):
    assert Broker(dir=tmp_path, cache_dir=tmp_path).preferred_port == DEFAULT_PORT == 19092


def test_forced_port_held_by_a_stranger_is_an_error_and_starts_nothing(broker_of, stranger):
    broker = broker_of(port=stranger.port)
    with pytest.raises(PortTaken, match=f"port {stranger.port} is taken by another program"):
        broker.up()
    assert broker.status().condition is Condition.STOPPED
    assert stranger.fileno() > 0


def test_the_controllers_port_counts_too(broker_of, stranger):
    with pytest.raises(PortTaken, match=f"port {stranger.port} is taken"):
        broker_of(port=stranger.port - 1).up()


@pytest.mark.broker
def test_forced_port_of_another_kafka_names_its_cluster_and_leaves_it_alone(broker_of, broker):
    other = broker.state()
    with pytest.raises(PortTaken, match=f"another Kafka .cluster {other.cluster_id}"):
        broker_of(port=other.port).up()
    assert broker_of(port=other.port).down() is False
    assert broker.status().running and broker.state() == other


@pytest.mark.broker
def test_default_port_taken_moves_to_a_free_pair_that_others_find(broker_of, broker):
    mine, said = broker_of(preferred_port=broker.state().port), []
    state = mine.up(said.append)
    assert state.port != broker.state().port
    assert any(f"port {broker.state().port} is taken by another Kafka" in line for line in said)
    assert broker_of(preferred_port=broker.state().port).bootstrap_servers == (
        f"127.0.0.1:{state.port}"
    )
    assert ask(state.port).cluster_id == state.cluster_id != broker.state().cluster_id
    with pytest.raises(PortTaken, match=f"already runs on port {state.port}"):
        broker_of(port=free_pair()).up()


@pytest.mark.broker
def test_port_lost_to_another_kafka_while_ours_starts_is_tried_on_another(broker_of):
    wanted = free_pair()
    broker = broker_of(preferred_port=wanted)
    assert broker.up().port == wanted
    broker.down()
    (broker.dir / "server.properties").unlink()
    thief = threading.Thread(target=take_the_port_of, args=(broker,))
    thief.start()
    state = broker.up()
    thief.join()
    with thief.stranger as stranger:
        assert stranger.port == wanted != state.port
    assert broker.status().running
    assert state.cluster_id != "other"


def take_the_port_of(broker: Broker) -> None:
    """As soon as the properties name the port, before the JVM gets that far, a Kafka is there."""
    properties, text = broker.dir / "server.properties", ""
    while not (named := re.search(r"^listeners=\S+:(\d+),", text, re.MULTILINE)):
        text = properties.read_text() if properties.exists() else ""
    port = int(named[1])
    threading.current_thread().stranger = Stranger(port, metadata(port))
