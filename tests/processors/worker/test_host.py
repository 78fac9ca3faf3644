"""The signals that end a worker process."""

import os
import signal
import threading

from foldlog.processors.worker.host import EndSignal
from foldlog.tests.kit.waiting import joined, within


def test_only_SIGTERM_and_SIGINT_end_a_worker():
    """The wakeup file descriptor gets every signal that has a handler, including signals of an
    agent's own code."""
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with EndSignal().at_signals() as ending:
            waited = []
            thread = threading.Thread(target=lambda: waited.append(within("the end", ending.wait)))
            thread.start()
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGTERM)
            joined(thread)
            assert waited == [True]
            ending.request()
            assert within("the end", ending.wait) is False, "no signal requested the end"
    finally:
        signal.signal(signal.SIGUSR1, before)
