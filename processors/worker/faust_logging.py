"""What Faust and its Kafka client say, cut down to what tells an operator something.

They read a few records a day in a process of their own (rendezvous.py).
"""

import asyncio
import logging
import threading

from ...log.client import OncePerWhile

_AWAY = (
    "KafkaConnectionError",
    "NodeNotReadyError",
    "Unable connect to node",
    "Unable to update metadata",
)
"""A broker that is away, in the words of a client that is told so many times a second."""


_HAS_NO_STREAM = "Stream has not started processing"
"""Faust's alarm, every 7 s from minute 5 on, for a partition whose stream has had no record. Ours
read tables and announcements, on which there may be none for days."""


class _NoStream(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return _HAS_NO_STREAM not in record.getMessage()  # behind the name of the service


class _SaidElsewhere(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return not any(words in text for words in _AWAY)


def quiet() -> None:
    """Set the loggers of Faust and aiokafka, and what a thread of theirs says when it is ended."""
    for name in ("faust", "mode"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    for part in ("", ".conn", ".cluster", ".consumer.fetcher", ".consumer.group_coordinator"):
        logger = logging.getLogger(f"aiokafka{part}")  # a filter is not inherited
        for one in (_SaidElsewhere(), OncePerWhile()):
            logger.addFilter(one)
    logging.getLogger("faust.transport.drivers.aiokafka").addFilter(_NoStream())
    threading.excepthook = _unless_cancelled


def _unless_cancelled(args: threading.ExceptHookArgs, /) -> None:
    """Ending the thread of a consumer whose broker is away cancels it: that is no news."""
    if args.exc_type is not asyncio.CancelledError:
        threading.__excepthook__(args)
