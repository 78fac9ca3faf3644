"""The filter for the log output of Faust and aiokafka."""

import asyncio
import logging
import threading

import pytest
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread

from foldlog.fleet import logs
from foldlog.fleet.logs import filter_logs
from foldlog.tests.kit.waiting import joined


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    filter_logs()
    yield
    for part in ("", ".conn", ".cluster", ".consumer.fetcher", ".consumer.group_coordinator"):
        logging.getLogger(f"aiokafka{part}").filters.clear()
    for name in logs._NOISY:
        logging.getLogger(name).filters.clear()


def test_only_our_own_client_reports_an_unreachable_broker(caplog):
    """The defect: one `foldlog down` logged eight lines about the internals of a library."""
    fetcher = logging.getLogger("aiokafka.consumer.fetcher")
    fetcher.error("Failed fetch messages from %s: %s", 1, "NodeNotReadyError: Attempt to send")
    logging.getLogger("aiokafka.conn").error("Unable connect to node with id %s", 1)
    assert caplog.messages == []
    fetcher.error("Topic %s is not authorized", "t")
    assert caplog.messages == ["Topic t is not authorized"]


def test_a_cancelled_thread_logs_no_traceback(monkeypatch):
    """The defect: `foldlog down`, followed by Ctrl-C on `dev`, printed thirty lines of traceback
    for a clean end."""
    reported = []
    monkeypatch.setattr(threading, "__excepthook__", lambda args: reported.append(args.exc_type))

    def end_thread(error):
        def run():
            raise error

        thread = threading.Thread(target=run)
        thread.start()
        joined(thread)

    end_thread(asyncio.CancelledError())
    assert reported == [] and threading.excepthook is logs._unless_cancelled
    end_thread(KeyError("a bug"))
    assert reported == [KeyError]


def test_a_stream_without_records_logs_no_warning(caplog):
    """The defect: if no user had opened a tab, a worker logged fifteen lines every 7 s from the
    fifth minute on."""
    thread = AIOKafkaConsumerThread.logger
    thread.error("[^---AIOKafkaConsumerThread]: Stream has not started processing TP(...)")
    thread.error("Stream has not started processing %r (started %s). ...", "tp", "5 minutes ago")
    assert caplog.messages == []
    thread.error("Stream stopped processing, or is slow for %r", "tp")
    assert caplog.messages == ["Stream stopped processing, or is slow for 'tp'"]
