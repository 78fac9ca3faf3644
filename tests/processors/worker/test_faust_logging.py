"""What the libraries of a worker say of a broker that goes away, and of their own end."""

import asyncio
import logging
import threading

import pytest
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread

from foldlog.processors.worker import faust_logging as quiet_module
from foldlog.processors.worker.faust_logging import filter_logs


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    filter_logs()
    yield
    for part in ("", ".conn", ".cluster", ".consumer.fetcher", ".consumer.group_coordinator"):
        logging.getLogger(f"aiokafka{part}").filters.clear()
    AIOKafkaConsumerThread.logger.filters.clear()


def test_a_broker_that_is_away_is_told_by_our_own_client_alone(caplog):
    """Eight lines of a library's insides for one `foldlog down`."""
    fetcher = logging.getLogger("aiokafka.consumer.fetcher")
    fetcher.error("Failed fetch messages from %s: %s", 1, "NodeNotReadyError: Attempt to send")
    logging.getLogger("aiokafka.conn").error("Unable connect to node with id %s", 1)
    assert caplog.messages == []
    fetcher.error("Topic %s is not authorized", "t")
    assert caplog.messages == ["Topic t is not authorized"]


def test_a_thread_that_is_cancelled_as_it_ends_leaves_no_traceback(monkeypatch):
    """`foldlog down`, then Ctrl-C on `dev`: thirty lines of traceback for a clean end."""
    seen = []
    monkeypatch.setattr(threading, "__excepthook__", lambda args: seen.append(args.exc_type))

    def ends(error):
        def run():
            raise error

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    ends(asyncio.CancelledError())
    assert seen == [] and threading.excepthook is quiet_module._unless_cancelled
    ends(KeyError("a bug"))
    assert seen == [KeyError]


def test_a_stream_that_has_had_no_record_yet_is_no_alarm(caplog):
    """Fifteen lines every 7 s, from the fifth minute of a worker on: nobody had opened a tab."""
    thread = AIOKafkaConsumerThread.logger
    thread.error("[^---AIOKafkaConsumerThread]: Stream has not started processing TP(...)")
    thread.error("Stream has not started processing %r (started %s). ...", "tp", "5 minutes ago")
    assert caplog.messages == []
    thread.error("Stream stopped processing, or is slow for %r", "tp")
    assert caplog.messages == ["Stream stopped processing, or is slow for 'tp'"]
