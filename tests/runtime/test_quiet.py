"""What the libraries of a worker say of a broker that goes away, and of their own end."""

import asyncio
import logging
import threading

import pytest

from foldlog.processors.runtime import quiet as quiet_module
from foldlog.processors.runtime.quiet import quiet


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    quiet()
    yield
    for part in ("", ".conn", ".cluster", ".consumer.fetcher", ".consumer.group_coordinator"):
        logging.getLogger(f"aiokafka{part}").filters.clear()


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
