"""storage_growth: bytes stored per byte said after 200 turns, beside LangGraph's SqliteSaver.

Ours: the records of the log as they are produced, value, key and headers, before compression and
without Kafka's framing: every event, chunks and claims included. Theirs: the rows of the SQLite
file, without its pages and indexes. The note gives both as they lie on a disk. Our store is not
counted: it is a cache that the log can make anew. LangGraph saves after each step, its default;
saving once a turn (`durability="exit"`) would lose a turn's steps in a crash. Both packages are MIT
licensed.
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


def storage_growth(here: Installation, runs: int = 1, turns: int = TURNS) -> Ratio:
    """The bench. Nothing of it varies, so it runs once."""
    job = [turn(number) for number in range(1, turns + 1)]
    said = sum(turn.said_bytes for turn in job)
    stored = theirs(job)
    records = recorded(job)
    ours, disk = stored_bytes(records), on_disk(here, records)
    note = (
        f"bytes stored per byte said ({turns} turns, {said:,} bytes said), rows and records; on"
        f" disk {disk / said:.2f} (zstd, sent as a worker sends) beside {stored['file'] / said:.1f}"
    )
    assert stored["messages"] == 4 * turns, "the same job"
    ratio = ours / stored["rows"]
    aim = "at most 0.02"
    return Ratio(
        "storage_growth", ours / said, stored["rows"] / said, "bytes/byte", ratio, 1, aim, note
    )


def theirs(job: list[Turn]) -> dict[str, int]:
    """What LangGraph stores for the job: messages, bytes of rows, bytes of the file."""
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
    """Bytes of the broker's segments, when each record is sent before the next is known.

    That is the worst case of a worker: what it produces together shares a batch, and compresses
    better.
    """
    producer = here.log.producer()
    for record in records:
        producer.append(record.topic, record.key, record.value, record.headers, partition=0)
        producer.flush(10)
    producer.close()
    segments = here.broker_dir.rglob(f"*{SESSION_EVENTS}-0/*.log")
    return sum(path.stat().st_size for path in segments)
