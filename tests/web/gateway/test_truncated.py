"""A log lost its last records and reused their offsets, as after an unclean leader election."""

import time

import pytest

from foldlog.client.session_fold import SessionFold
from foldlog.log.kafka import KafkaLog
from foldlog.processors.agent import Agent
from foldlog.processors.store.views_codec import view_hashes
from foldlog.producers import Sessions
from foldlog.schemas.topics import SESSION_EVENTS, topics
from foldlog.tests.kit.broker_fixture import unique_name
from foldlog.tests.kit.manual_worker import SESSION, ManualWorker, message, opened
from foldlog.tests.kit.played import settings_in
from foldlog.web.gateway.tail import Tail

AGENT = Agent(name="a", model="m")
PATIENCE_S = 60
SEGMENT = "0" * 20 + ".log"


def end_of(log) -> int:
    return log.end_offsets(SESSION_EVENTS)[0]


def messages(log, settings, *texts: str) -> None:
    """Open s1 if necessary, and send it these messages, one record each."""
    sessions = Sessions(log, settings)
    sessions.open("s1", agent="default")
    for text in texts:
        sessions.say("s1", text, message_id=text)
    sessions.close()


def fresh(log) -> dict[str, str]:
    """The hashes of the views that result from folding the present log."""
    with SessionFold(log, "s1") as folded:
        return view_hashes(folded.to_end())


def wait_until_equal(tail: Tail, log) -> None:
    """Wait until a gateway has the same views as the present log."""
    end = time.monotonic() + PATIENCE_S
    while True:
        views = tail.views("s1")
        if views is not None and view_hashes(views) == fresh(log):
            return
        assert time.monotonic() < end and tail.failed is None, tail.failed
        time.sleep(0.05)


@pytest.mark.broker
def test_a_gateway_refolds_a_log_that_was_truncated_and_continued(own_broker, tmp_path):
    """One gateway is running and another starts later; both have views from records that the log
    has lost."""
    broker, prefix, settings = own_broker(), unique_name() + ".", settings_in(tmp_path)
    log = KafkaLog(broker.bootstrap_servers, topic_prefix=prefix)
    log.apply_topics(topics(1))
    messages(log, settings, *(f"before-{number}" for number in range(9)))
    output: list[str] = []
    later = Tail(log, tmp_path / "later", output.append)
    later.start()
    wait_until_equal(later, log)
    later.close()
    running = Tail(log, tmp_path / "running", output.append)
    running.start()
    wait_until_equal(running, log)
    before = end_of(log)

    broker.kill()
    (segment,) = broker.dir.rglob(f"{prefix}{SESSION_EVENTS}-0/{SEGMENT}")
    segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])
    broker.up()
    again = KafkaLog(broker.bootstrap_servers, topic_prefix=prefix)
    assert 0 < end_of(again) < before
    messages(again, settings, *(f"after-{number}" for number in range(15)))
    assert end_of(again) > before

    wait_until_equal(running, again)
    running.close()
    later = Tail(again, tmp_path / "later", output.append)
    later.start()
    wait_until_equal(later, again)
    later.close()
    assert [line for line in output if "is rebuilt from the log" in line]
    log.close()
    again.close()


def refolded(last_at: int) -> list[str]:
    """The messages of a worker after a truncation of its log. The log continues with another
    message, and then with the same last record, `last_at` ms later."""
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


def test_a_worker_identifies_its_last_record_also_by_its_timestamp():
    """If the log lost an event, its producer writes the event again, so equal bytes do not prove
    that the log is the same."""
    assert refolded(last_at=1) == ["kept", "same"]
    assert refolded(last_at=0) == ["lost", "same"], "within one ms they cannot be distinguished"
