"""Confluent framing: events stay unchanged, plain records may lie between them, and writers wait
for the registry."""

import io
import json
from contextlib import ExitStack

import pytest
from fastavro import schemaless_reader
from hypothesis import given

from foldlog.log import Clock, LogBusy, LogUnreachable, MemoryLog, RegistryAway, framing
from foldlog.log.framing import FramedLog, from_confluent, to_confluent
from foldlog.log.registry import Registry
from foldlog.schemas import codec
from foldlog.schemas.codec import ROWS, Undecodable, decode, encode, headers_for
from foldlog.schemas.topics import DEAD_LETTERS, MEMORY_EVENTS, SESSION_EVENTS, topics
from foldlog.tests.log import contract
from foldlog.tests.log.group_contract import GroupContract
from foldlog.tests.log.mock_registry import MockRegistry
from foldlog.tests.schemas.arbitrary import any_event, example_of
from foldlog.tests.schemas.shapes import shapes

EXAMPLES = [example_of(row.cls) for row in ROWS]
PREFIX = "inst."


@pytest.fixture
def serving():
    mock = MockRegistry()
    with ExitStack() as stack:
        stack.enter_context(mock.serving())
        mock.stop = stack.close
        yield mock


class Home:
    """The processes of one home directory, which share a registry cache and an in-memory log."""

    def __init__(self, mock: MockRegistry, folder) -> None:
        self.mock, self.folder, self.seconds = mock, folder, 0.0
        self.kafka = MemoryLog(topics(2))
        self.registry = self.client()

    def client(self, folder=None, **more) -> Registry:
        folder = folder or self.folder
        return Registry(self.mock.url, folder, monotonic_s=lambda: self.seconds, **more)

    def log(self, registry=None, *, confluent=True) -> FramedLog:
        return FramedLog(self.kafka, registry or self.registry, confluent=confluent, prefix=PREFIX)

    def write(self, *events, log=None, partition=0, topic=SESSION_EVENTS):
        producer = (log or self.log()).producer()
        for event in events:
            value = event if isinstance(event, bytes) else encode(event)
            producer.append(topic, "s", value, partition=partition)

    def stored(self, topic=SESSION_EVENTS, partition=0) -> list[bytes]:
        return [record.value for record in self.kafka.records(topic, partition)]

    def read(self, log=None, topic=SESSION_EVENTS) -> list[bytes]:
        reader = (log or self.log()).reader(topic, {0: 0})
        return [record.value for record in reader.poll(0)]


@pytest.fixture
def home(serving, tmp_path):
    return Home(serving, tmp_path / "registry")


@pytest.fixture(scope="module")
def shared_registry(tmp_path_factory):
    mock = MockRegistry()
    with mock.serving():
        yield Registry(mock.url, tmp_path_factory.mktemp("registry")), mock


# ---- frames -------------------------------------------------------------------------------------


@given(event=any_event())
def test_reframing_there_and_back_returns_the_same_bytes(shared_registry, event):
    registry, mock = shared_registry
    value = encode(event)
    framed = to_confluent(value, SESSION_EVENTS, registry)
    assert framed[:1] == b"\0" and framed[5:] == value[10:]
    assert from_confluent(framed, registry) == value
    # A client that knows only the registry reads the same fields.
    schema = json.loads(mock.schemas[int.from_bytes(framed[1:5], "big")]["schema"])
    body = io.BytesIO(framed[5:])
    assert schemaless_reader(body, schema) == schemaless_reader(
        io.BytesIO(value[10:]), codec.schema_of(codec.BY_CLASS[type(event)].name)
    )
    assert not body.read()


@pytest.mark.parametrize("topic", [SESSION_EVENTS, MEMORY_EVENTS])
def test_every_event_type_is_registered_once_and_read_back(home, topic):
    home.write(*EXAMPLES, *EXAMPLES, topic=topic)
    values = [encode(event) for event in EXAMPLES]
    assert home.read(topic=topic) == values * 2
    assert all(value[:1] == b"\0" for value in home.stored(topic))
    names = {codec.schema_of(row.name)["name"] for row in ROWS}
    assert set(home.mock.subjects) == {f"inst.{topic}-foldlog.v1.{name}" for name in names}
    # One request for each type; later processes of this home write and read without the registry.
    assert len(home.mock.requests) == len(ROWS)
    home.mock.stop()
    later = home.log(home.client())
    home.write(*EXAMPLES, log=later, topic=topic)
    assert home.read(later, topic) == values * 3


def test_a_reader_of_another_home_requests_each_id_once(home, tmp_path):
    home.write(*EXAMPLES)
    home.mock.requests.clear()
    values = [encode(event) for event in EXAMPLES]
    assert home.read(home.log(home.client(tmp_path / "other"))) == values
    assert len(home.mock.requests) == len(set(home.mock.requests)) == len(ROWS)
    home.mock.stop()
    assert home.read(home.log(home.client(tmp_path / "other"))) == values


def test_both_framings_of_a_log_are_read_whichever_is_written(home):
    plain = home.log(confluent=False)
    home.write(*EXAMPLES, log=plain)
    home.write(*EXAMPLES)
    home.write(*EXAMPLES, log=plain)
    values = [encode(event) for event in EXAMPLES]
    assert {value[:1] for value in home.stored()} == {b"\0", b"\xc3"}
    assert home.read() == home.read(plain) == values * 3


@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: f"{shape.type}.v{shape.version}")
def test_a_retired_shape_is_read_by_its_own_schema(shared_registry, shape):
    registry, mock = shared_registry
    framed = b"\0" + mock.add(shape.schema).to_bytes(4, "big") + shape.value[10:]
    value = from_confluent(framed, registry)
    assert value == shape.value
    assert type(decode(value)) is codec.BY_NAME[shape.type].cls
    assert from_confluent(to_confluent(value, "t", registry), registry) == value


def test_other_topics_and_other_values_are_unchanged(home):
    others = [b"", b"\0", b"\0\0\0\0", b"{}", codec.MAGIC, codec.MAGIC + b"12345678body"]
    home.write(*others)
    assert home.stored() == others == home.read()
    poison = encode(EXAMPLES[0])[:-1]
    framed = b"\0" + home.mock.add(codec.schema_of(ROWS[0].name)).to_bytes(4, "big")
    home.write(poison, framed, topic=DEAD_LETTERS)
    assert home.stored(DEAD_LETTERS) == [poison, framed] == home.read(topic=DEAD_LETTERS)
    assert not home.mock.requests
    assert to_confluent(None, "t", home.registry) is from_confluent(None, home.registry) is None


ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}


@pytest.mark.parametrize(
    ("schema", "more"),
    [
        ({"type": "record", "name": "Order", "namespace": "shop", "fields": []}, {}),
        (ENUM, {}),
        ('"nonsense"', {}),
        ("{not json", {}),
        ("[" * 100_000, {}),
        ('syntax = "proto3";', {"schemaType": "PROTOBUF"}),
        (codec.schema_of("GEN_CHUNK"), {"schemaType": "JSON"}),
        (codec.schema_of("GEN_CHUNK"), {"references": [{"name": "x"}]}),
    ],
)
def test_records_with_a_foreign_schema_are_unchanged(home, schema, more):
    foreign = b"\0" + home.mock.add(schema, **more).to_bytes(4, "big") + b"body"
    home.write(foreign, EXAMPLES[0])
    assert home.read() == [foreign, encode(EXAMPLES[0])]
    with pytest.raises(Undecodable):
        decode(home.read()[0])
    assert len([line for line in home.mock.requests if line.startswith("GET")]) == 1


def test_an_id_unknown_to_the_registry_does_not_block_the_reader(home):
    unknown = b"\0\xff\xff\xff\xffbody"
    home.write(unknown, EXAMPLES[0])
    assert home.read() == home.read() == [unknown, encode(EXAMPLES[0])]
    assert len(home.mock.requests) == 2


# ---- the registry is unavailable ----------------------------------------------------------------


def test_while_the_registry_is_unavailable_only_registered_types_are_written(home):
    home.write(EXAMPLES[0])
    home.mock.stop()
    producer = home.log().producer()
    name = codec.schema_of(ROWS[1].name)["name"]
    message = f"{home.mock.url}: .*{name} could not be registered.*refused.*Nothing was.*Restart"
    with pytest.raises(RegistryAway, match=message) as raised:
        producer.append(SESSION_EVENTS, "s", encode(EXAMPLES[1]), partition=0)
    # The worker retries a LogBusy; the CLI and the gateway report a LogUnreachable.
    assert isinstance(raised.value, LogBusy) and isinstance(raised.value, LogUnreachable)
    home.write(EXAMPLES[0])
    assert len(home.stored()) == 2
    with home.mock.serving():
        with pytest.raises(RegistryAway):  # no request is sent before the next attempt
            producer.append(SESSION_EVENTS, "s", encode(EXAMPLES[1]), partition=0)
        home.seconds += 2
        producer.append(SESSION_EVENTS, "s", encode(EXAMPLES[1]), partition=0)
    assert home.read()[2] == encode(EXAMPLES[1])


def test_a_reader_waits_at_an_unresolved_id_and_reads_other_partitions(home, tmp_path, caplog):
    one, two, three = EXAMPLES[:3]
    home.write(one, two, one, encode(three))
    home.write(one, one, partition=1)
    other = home.client(tmp_path / "other")
    other.head_of(int.from_bytes(home.stored()[0][1:5], "big"))
    home.mock.stop()
    reader = home.log(other).reader(SESSION_EVENTS, {0: 0, 1: 0})
    records = reader.poll(0)
    assert [(r.partition, r.offset) for r in records] == [(0, 0), (1, 0), (1, 1)]
    assert reader.positions() == {0: 1, 1: 2}
    for _ in range(3):
        home.seconds += 2
        assert reader.poll(0) == [] and reader.positions() == {0: 1, 1: 2}
    assert "session-events/0 waits at offset 1" in caplog.text and home.mock.url in caplog.text
    with home.mock.serving():
        home.seconds += 2
        more = [record for _ in range(2) for record in reader.poll(0)]
    assert [r.value for r in more] == [encode(event) for event in (two, one, three)]


class TestFramedLog(contract.LogContract, GroupContract):
    """The contract tests on a log with Confluent framing. Their values are not all events."""

    @pytest.fixture
    def log(self, home, monkeypatch):
        monkeypatch.setattr(framing, "EVENT_TOPICS", frozenset({contract.EVENTS}))
        self.kafka = MemoryLog([contract.SPEC], clock_ms=Clock())
        yield FramedLog(self.kafka, home.registry, confluent=True, prefix="")
        self.kafka.close()

    def recreate(self, log):
        self.kafka.delete_topic(contract.EVENTS)
        self.kafka.apply_topics([contract.SPEC])

    def committed(self, log, group):
        return self.kafka.committed(contract.EVENTS, group)

    def pass_time(self, log):
        self.kafka.clock_ms.advance(10)

    def test_a_member_waits_for_the_registry_and_loses_nothing(self, home, log, tmp_path):
        producer = log.producer()
        for event in EXAMPLES[:3]:
            producer.append(contract.EVENTS, "s", encode(event), partition=1)
        home.mock.stop()
        framed = FramedLog(self.kafka, home.client(tmp_path / "x"), confluent=True, prefix="")
        revoked: list = []
        member = framed.group_reader(
            contract.EVENTS, "g", "w", lambda ps: dict.fromkeys(ps, 0), revoked.append
        )
        assert member.poll(0) == member.poll(0) == [] and member.positions()[1] == 0
        with home.mock.serving():
            home.seconds += 2
            assert [decode(r.value) for r in member.poll(0)] == EXAMPLES[:3]
        member.commit(member.positions())
        assert self.committed(log, "g")[1] == 3 and not revoked


def test_headers_name_the_event_of_a_framed_record(home):
    event = EXAMPLES[0]
    producer = home.log().producer()
    producer.append(SESSION_EVENTS, "s", encode(event), headers_for(event, "producer"))
    reader = home.log().reader(SESSION_EVENTS, {0: 0, 1: 0})
    (record,) = reader.poll(0)
    assert codec.entry_of(record, chunks=True).event == event
