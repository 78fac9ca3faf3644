"""A log that lost its end and whose offsets were used again, as after an unclean election."""

import time

import pytest

from foldlog.consumers.gateway.tail import Tail
from foldlog.consumers.session_fold import SessionFold
from foldlog.log.kafka import KafkaLog
from foldlog.processors.agent import Agent
from foldlog.processors.store.views_codec import view_hashes
from foldlog.producers import Sessions
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.broker_fixture import unique_name
from foldlog.tests.consumers.played import settings_in
from foldlog.tests.laws.manual_worker import SESSION, ManualWorker, message, opened

AGENT = Agent(name="a", model="m")
PATIENCE_S = 60
SEGMENT = "0" * 20 + ".log"


def end_of(log) -> int:
    return log.end_offsets(SESSION_EVENTS)[0]


def messages(log, settings, *texts: str) -> None:
    """Messages to s1, which is opened if need be, each a record."""
    sessions = Sessions(log, settings)
    sessions.open("s1", agent="default")
    for text in texts:
        sessions.say("s1", text, message_id=text)
    sessions.close()


def fresh(log) -> dict[str, str]:
    """What the log of now folds to."""
    with SessionFold(log, "s1") as folded:
        return view_hashes(folded.to_end())


def agrees(tail: Tail, log) -> None:
    """Wait until a gateway has the views of the log of now."""
    end = time.monotonic() + PATIENCE_S
    while True:
        views = tail.views("s1")
        if views is not None and view_hashes(views) == fresh(log):
            return
        assert time.monotonic() < end and tail.failed is None, tail.failed
        time.sleep(0.05)


@pytest.mark.broker
def test_a_log_that_was_truncated_and_written_on_is_folded_anew(own_broker, tmp_path):
    """A gateway that runs and one that starts later: each had views of records that are gone."""
    broker, prefix, settings = own_broker(), unique_name() + ".", settings_in(tmp_path)
    log = KafkaLog(broker.bootstrap_servers, topic_prefix=prefix)
    log.apply_topics(topics(1))
    messages(log, settings, *(f"before-{number}" for number in range(9)))
    told: list[str] = []
    later = Tail(log, tmp_path / "later", told.append)
    later.start()
    agrees(later, log)
    later.close()
    running = Tail(log, tmp_path / "running", told.append)
    running.start()
    agrees(running, log)
    before = end_of(log)

    broker.kill()
    (segment,) = broker.dir.rglob(f"{prefix}{SESSION_EVENTS}-0/{SEGMENT}")
    segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])
    broker.up()
    again = KafkaLog(broker.bootstrap_servers, topic_prefix=prefix)
    assert 0 < end_of(again) < before
    messages(again, settings, *(f"after-{number}" for number in range(15)))
    assert end_of(again) > before

    agrees(running, again)
    running.close()
    later = Tail(again, tmp_path / "later", told.append)
    later.start()
    agrees(later, again)
    later.close()
    assert [line for line in told if "is rebuilt from the log" in line]
    log.close()
    again.close()


def refolded(last_at: int) -> list[str]:
    """The messages of a worker whose log was cut and written on: another message, then the same
    last record, taken by the broker at another time."""
    first = ManualWorker(AGENT)
    first.write("producer", opened("a"))
    first.write("producer", message("lost"))
    first.write("producer", message("same"))
    first.assign()
    first.read(3)
    first.revoke()
    other = ManualWorker(AGENT, "2")
    other.disk.update(first.disk)
    other.write("producer", opened("a"))
    other.write("producer", message("kept"))
    other.ms += last_at
    other.write("producer", message("same"))
    other.assign()
    for _ in range(4):
        for partition, offset in other.worker.consume(other.reader.poll(0, 1)).items():
            other.reader.seek(partition, offset)
    return [row.message_id for row in other.worker.owned[0].views(SESSION).messages.received]


def test_a_worker_knows_its_last_record_by_the_time_it_was_taken_too():
    """A producer writes its event again when the log has lost it: its bytes alone say nothing."""
    assert refolded(last_at=1) == ["kept", "same"]
    assert refolded(last_at=0) == ["lost", "same"], "what cannot be told apart: the same ms"
