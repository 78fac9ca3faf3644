"""Filters the log output of Faust and its Kafka client, so that only useful lines remain.

Faust runs in its own process (`foldlog fleet`).
"""

import asyncio
import logging
import threading

from ..log.client import OncePerWhile

_UNREACHABLE = (
    "KafkaConnectionError",
    "NodeNotReadyError",
    "Unable connect to node",
    "Unable to update metadata",
    "GroupCoordinatorNotAvailableError",
)
"""Messages about an unreachable broker, which the client repeats many times a second."""


_HAS_NO_STREAM = "Stream has not started processing"
"""A warning that Faust logs every 7 s, from minute 5 on, for a partition whose stream has had no
record. A partition of facts may have no record for days."""


_NOISY = ("faust.transport.drivers.aiokafka", "faust.transport.producer", "mode.threads",
          "fleet", "foldlog.fleet.consumer")
_NOISE = (
    _HAS_NO_STREAM,
    "producer buffer full size",  # the stream waits, as it should
    "Thread keepalive is not responding",  # a busy machine
    "Topic creation disabled",
)


class _DropNoise(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()  # a service's name comes first
        return not any(words in text for words in _NOISE)


class _DropUnreachable(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        return not any(words in text for words in _UNREACHABLE)


def filter_logs() -> None:
    """Configure the loggers of Faust and aiokafka, and the exception hook of their threads."""
    for name in ("faust", "mode"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    for part in ("", ".conn", ".cluster", ".consumer.fetcher", ".consumer.group_coordinator"):
        logger = logging.getLogger(f"aiokafka{part}")  # loggers do not inherit filters
        for one in (_DropUnreachable(), OncePerWhile()):
            logger.addFilter(one)
    for name in _NOISY:
        logging.getLogger(name).addFilter(_DropNoise())
    threading.excepthook = _unless_cancelled


def _unless_cancelled(args: threading.ExceptHookArgs, /) -> None:
    """Report a thread's exception, except CancelledError, which a consumer's thread raises if it is
    ended while the broker is down."""
    if args.exc_type is not asyncio.CancelledError:
        threading.__excepthook__(args)
