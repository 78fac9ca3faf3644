"""The life of a worker process: what ends it, and what does not."""

import os
import signal
import threading

from foldlog.processors.worker.host import EndSignal


def test_only_the_signals_that_end_a_worker_end_it():
    """The interpreter notes every signal that has a handler, an agent's own among them."""
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with EndSignal().at_signals() as ending:
            waited = []
            thread = threading.Thread(target=lambda: waited.append(ending.wait()))
            thread.start()
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGTERM)
            thread.join()
            assert waited == [True]
            ending.request()
            assert ending.wait() is False, "it ended by itself"
    finally:
        signal.signal(signal.SIGUSR1, before)
