"""storage_growth: bytes stored per byte of content in 200 turns, against LangGraph's SqliteSaver.

Our side is the values, keys and headers of all records of the log, including chunks and claims,
before compression and without Kafka's framing. The peer's side is the rows of the SQLite file,
without pages and indexes. The note gives the sizes of both sides on disk. Our store is not counted,
because it is a cache that can be rebuilt from the log. LangGraph saves after each step, its
default; saving once per turn (`durability="exit"`) would lose a turn's steps in a crash. Both
packages are MIT licensed.
"""

from foldlog.bench.job import Turn, agent, turn
from foldlog.bench.measure import Installation, Ratio
from foldlog.bench.peers import peer
from foldlog.bench.played import Played, canned
from foldlog.processors.store.store import DictBackend
from foldlog.schemas.record import Record
from foldlog.schemas.topics import SESSION_EVENTS

TURNS = 200
PACKAGE = "langgraph-checkpoint-sqlite 3.1.2"


def storage_growth(here: Installation, runs: int = 1) -> Ratio:
    """Run the bench, which is deterministic, so one run is enough."""
    job = [turn(number) for number in range(1, TURNS + 1)]
    content = sum(turn.content_bytes for turn in job)
    stored = theirs(job)
    records = recorded(job)
    ours, disk = stored_bytes(records), on_disk(here, records)
    note = (
        f"bytes stored per byte of content ({TURNS} turns, {content:,} bytes), rows and records; on"
        f" disk {disk / content:.2f} (zstd, sent as a worker sends) against"
        f" {stored['file'] / content:.1f}"
    )
    assert stored["messages"] == 4 * TURNS, "the same job"
    ratio = ours / stored["rows"]
    aim = "at most 0.02"
    return Ratio(
        "storage_growth", ours / content, stored["rows"] / content, "bytes/byte", ratio, 1, aim,
        note, peers={"LangGraph SqliteSaver": stored["rows"] / content},
    )


def theirs(job: list[Turn]) -> dict[str, int]:
    """The sizes that LangGraph stores for the job: messages, bytes of rows, bytes of the file."""
    with peer("peer_langgraph.py", PACKAGE) as langgraph:
        return langgraph.ask([turn._asdict() for turn in job])


def recorded(job: list[Turn]) -> list[Record]:
    """The log of the job."""
    return Played(agent(), DictBackend(), canned).play_all(job).records


def stored_bytes(records: list[Record]) -> int:
    """Bytes of keys, values and headers."""
    return sum(
        len(record.key or b"")
        + len(record.value or b"")
        + sum(len(name) + len(value) for name, value in record.headers)
        for record in records
    )


def on_disk(here: Installation, records: list[Record]) -> int:
    """The bytes of the broker's segments if each record is sent in a separate batch.

    This is a worker's worst case, because records produced together share a batch and compress
    better.
    """
    producer = here.log.producer()
    for record in records:
        producer.append(record.topic, record.key, record.value, record.headers, partition=0)
        producer.flush(10)
    producer.close()
    segments = here.broker_dir.rglob(f"*{SESSION_EVENTS}-0/*.log")
    return sum(path.stat().st_size for path in segments)
